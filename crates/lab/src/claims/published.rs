//! A claim's published numbers, judged by the claim's own criterion: what a document measured has to be
//! what it says.

use crate::model::{Cell, Sample};
use crate::spec::claim::{Claim, Levels, Row};
use crate::spec::metric::Better;

use super::decide::{Criterion, Sizes};
use super::verdict::Verdict;
use super::{Judgement, judge_with};
use crate::analysis::{Curve, Scale};
use crate::spec::claim::Effect;

/// The verdict on the numbers that the claim's document gives; `None` if it gives none that this effect
/// can be computed from.
///
/// `rows` are the published values, those in the experiment file and those of a file beside it. A document's
/// numbers have no rounds and count as exact: the claim holds if the effect computed from them lies in
/// the claim's region. An effect that the document states in place of values is judged first, at both of
/// its ends. Of a claim about several subjects or cells, those with numbers are judged.
pub fn verdict(claim: &Claim, better: Better, rows: &[Row]) -> Option<Verdict> {
    if let Some(effect) = claim.published.as_ref().and_then(|published| published.effect()) {
        let scale = match &claim.effect {
            Effect::Exponent(_) | Effect::Offered(_) => Scale::Linear,
            _ => Scale::Log,
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

/// The same with the effects behind it.
pub fn judge(claim: &Claim, better: Better, rows: &[Row]) -> Judgement {
    let samples: Vec<Sample> = rows.iter().map(|row| sample(claim, row)).collect();
    judge_with(claim, better, &samples, true)
}

/// A published value as a sample of one round. Levels that the row does not give are those of the
/// claim's `where`, if that gives one.
fn sample(claim: &Claim, row: &Row) -> Sample {
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
