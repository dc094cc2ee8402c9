//! Judges a claim's published numbers by the claim's own criterion: the numbers of a document have to agree with its
//! words.

use crate::model::{Cell, Sample};
use crate::spec::claim::{Claim, Levels, PublishedValue};
use crate::spec::metric::Better;

use super::decide::{Criterion, Sizes};
use super::runs::Certainty;
use super::verdict::Verdict;
use super::{Judgement, judge_with};
use crate::analysis::{AverageScale, Curve};
use crate::spec::claim::Effect;

/// The verdict on the numbers of the claim's document; `None` if the document gives no numbers from which the effect
/// can be computed.
///
/// `rows` are the published values of the experiment file and of a file beside it. Published numbers have no rounds
/// and count as exact: the claim holds if the effect lies in the claim's region. If the document states the effect
/// and no values, both ends of the stated effect are judged. If the claim is about several subjects or cells, only
/// those with numbers are judged.
pub fn verdict(claim: &Claim, better: Better, rows: &[PublishedValue]) -> Option<Verdict> {
    if let Some(effect) = claim.published.as_ref().and_then(|published| published.effect()) {
        let scale = match &claim.effect {
            Effect::Exponent(_) | Effect::Offered(_) => AverageScale::Linear,
            _ => AverageScale::Log,
        };
        let criterion = Criterion { region: claim.holds, null: claim.null(), scale };
        let decide = |end| criterion.decide(&Curve::exact(end, scale), Sizes::all(0.05));
        let verdicts = effect.ends().map(|end| decide(end).unwrap_or(Verdict::NotMeasured));
        return Some(super::combine::of(verdicts.to_vec(), claim.effect.which()));
    }
    let judgement = judge(claim, better, rows);
    let seen = judgement.rows.iter().map(|row| row.alone.clone());
    let seen: Vec<Verdict> = seen.filter(|verdict| *verdict != Verdict::NotMeasured).collect();
    (!seen.is_empty()).then(|| super::combine::of(seen, claim.effect.which()))
}

/// The judgement of the published numbers, with its effects.
pub fn judge(claim: &Claim, better: Better, rows: &[PublishedValue]) -> Judgement {
    let samples: Vec<Sample> = rows.iter().map(|row| sample(claim, row)).collect();
    judge_with(claim, better, &samples, Certainty::Published, Vec::new())
}

/// A published value as a sample of one round. A level that the row does not give is the level of the claim's
/// `where`, if there is one.
fn sample(claim: &Claim, row: &PublishedValue) -> Sample {
    let mut levels = row.levels.clone();
    for (factor, given) in &claim.cells {
        if let Levels::One(level) = given {
            levels.entry(factor.clone()).or_insert_with(|| level.clone());
        }
    }
    Sample {
        cell: Cell { subject: row.subject.clone(), levels },
        round: 1,
        values: [(claim.effect.metric().to_owned(), row.value)].into(),
        validity: Default::default(),
        failure: None,
    }
}
