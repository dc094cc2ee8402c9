//! From samples to verdicts: the effect that a claim has on this machine, its uncertainty, and what both mean for the
//! claim.
//!
//! A claim is judged by one or several effects ([`EffectRow`]): one for each combination of a subject, a subject that it is
//! compared with, and a group of cells. The shown interval has 95 %. The verdict takes into account that an
//! experiment has many claims ([`family`]). The verdict that a claim would have alone is kept too.

mod combine;
mod decide;
mod effects;
pub mod family;
pub(crate) mod nature;
pub mod published;
mod rounds;
mod rows;
mod runs;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verdict;

use serde::Serialize;

use crate::model::Sample;
use crate::spec::Experiment;
use crate::spec::claim::{Claim, Which};
use crate::spec::metric::Better;

pub use decide::{RATIO_MARGIN, Sizes};
pub(crate) use rounds::{PairedRatio, Rounds, positive};
pub use rows::EffectRow;
pub(crate) use rows::too_few;
pub(crate) use runs::CellRuns;
pub use runs::{LevelByFactor, RunCounts};
pub use verdict::{Reason, Size, Verdict};

use rows::Rows;
use runs::{Certainty, Runs};

/// The sizes of the tests of a claim alone: intervals have 95 %.
pub const OWN: Sizes = Sizes::all(0.05);

/// A claim, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The claim's letter.
    pub claim: String,
    /// The verdict as one of the claims of an experiment. [`family::judge`] sets it; before, it equals `alone`.
    pub verdict: Verdict,
    /// The verdict with tests of 5 %, as if the claim were the only one.
    pub alone: Verdict,
    /// The two-sided p-value of the decision for or against the claim; `None`: it cannot be tested, or it is counted and
    /// its verdict is never due to chance.
    pub p: Option<f64>,
    /// The p-value adjusted for the number of claims in the experiment.
    pub adjusted_p: Option<f64>,
    /// The two-sided size of the tests behind `verdict`.
    pub size: f64,
    /// The effects that decide.
    pub rows: Vec<EffectRow>,
    /// The effects of further subjects. They decide nothing.
    pub also: Vec<EffectRow>,
    #[serde(skip)]
    which: Which,
}

/// Judges the claim by the samples of its experiment. `better` says whether higher or lower values of the claim's
/// metric are better.
pub fn judge(claim: &Claim, better: Better, samples: &[Sample]) -> Judgement {
    judge_with(claim, better, samples, Certainty::Sampled, Vec::new())
}

/// Judges the claims of an experiment, as one [`family`].
pub fn judge_all(experiment: &Experiment, samples: &[Sample]) -> Vec<Judgement> {
    let judged = experiment.claim.iter().filter_map(|claim| {
        let metric = claim.effect.metric();
        let certainty = match experiment.counted.get(metric) {
            Some(&tolerance) => Certainty::Counted { tolerance },
            None => Certainty::Sampled,
        };
        let better = experiment.metric(metric)?.better;
        Some(judge_with(claim, better, samples, certainty, experiment.case_factors()))
    });
    let mut judged: Vec<Judgement> = judged.collect();
    family::judge(&mut judged);
    judged
}

fn judge_with(
    claim: &Claim,
    better: Better,
    samples: &[Sample],
    certainty: Certainty,
    of_cases: Vec<&str>,
) -> Judgement {
    let runs = Runs::of(claim, better, samples, certainty, of_cases);
    let source = Rows { claim, runs, better, certainty };
    let rows = source.of(&claim.effect);
    let also = claim.also.iter().flat_map(|subject| source.of(&claim.effect.of_subject(subject)));
    let also = also.collect();
    let which = claim.effect.which();
    let alone = combine::verdict(&rows, which, OWN);
    Judgement {
        claim: claim.id.clone(),
        verdict: alone.clone(),
        p: combine::p(&rows, which),
        alone,
        adjusted_p: None,
        size: OWN.holds,
        rows,
        also,
        which,
    }
}

impl Judgement {
    /// Each subject (or group of subjects of which the best counts) with its verdict: first those of the claim, in
    /// the claim's order, then the further subjects.
    pub fn subjects(&self) -> Vec<(Vec<String>, Verdict)> {
        let mut found: Vec<(Vec<String>, Verdict)> = Vec::new();
        for row in self.rows.iter().chain(&self.also) {
            if found.iter().any(|(of, _)| *of == row.of) {
                continue;
            }
            let rows = self.rows.iter().chain(&self.also).filter(|other| other.of == row.of);
            let rows: Vec<&EffectRow> = rows.collect();
            let verdicts = rows.iter().map(|row| row.verdict.clone()).collect();
            found.push((row.of.clone(), combine::of(verdicts, self.which)));
        }
        found
    }

    /// The row that decides. If every effect has to agree, it is the row that speaks most against the claim; if some
    /// effect has to agree, the row that speaks most for the claim.
    pub fn deciding(&self) -> Option<&EffectRow> {
        // The p-value of "the effect is outside the region" minus the p-value of "the effect is in the region".
        let against = |row: &EffectRow| row.p().map_or(0.0, |(outside, inside)| outside - inside);
        let most = |is_wanted: &dyn Fn(&&EffectRow) -> bool| {
            let wanted = self.rows.iter().rev().filter(is_wanted);
            match self.which {
                Which::Some => wanted.min_by(|a, b| against(a).total_cmp(&against(b))),
                _ => wanted.max_by(|a, b| against(a).total_cmp(&against(b))),
            }
        };
        most(&|row| row.verdict == self.verdict).or_else(|| most(&|row| row.alone == self.alone))
    }
}
