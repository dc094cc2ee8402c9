//! From samples to verdicts: what a claim's effect is here, how surely, and what that makes of the
//! claim.
//!
//! A claim is judged by one or several effects ([`Row`]): one for each of its subjects, each subject that
//! these are compared with, and each group of cells. The interval that is shown has 95 %. The verdict
//! takes into account that a report judges many claims ([`family`]); the verdict that a claim would have
//! by itself is kept beside it.

mod combine;
mod decide;
mod effects;
pub mod family;
pub(crate) mod nature;
pub mod published;
mod rows;
mod runs;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verdict;

use serde::Serialize;

use crate::model::Sample;
use crate::spec::claim::{Claim, Which};
use crate::spec::metric::Better;

pub use decide::{RATIO_MARGIN, Sizes};
pub use rows::Row;
pub(crate) use rows::too_few;
pub(crate) use runs::{CellRuns, Rounds};
pub use runs::{Levels, Tally};
pub use verdict::{Reason, Size, Verdict};

use rows::Rows;
use runs::Runs;

/// The sizes of a claim's tests by itself: its intervals have 95 %.
pub const OWN: Sizes = Sizes::all(0.05);

/// A claim, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The claim's letter.
    pub claim: String,
    /// The verdict as one of its report ([`family::judge`]); until then the same as `alone`.
    pub verdict: Verdict,
    /// The verdict with tests of 5 %, as if the claim were the only one.
    pub alone: Verdict,
    /// The two-sided p-value of the decision for or against the claim; `None`: it cannot be tested.
    pub p: Option<f64>,
    /// The same for as many claims as it stands for in its report.
    pub adjusted_p: Option<f64>,
    /// The two-sided size of the tests behind `verdict`.
    pub size: f64,
    /// The effects that decide.
    pub rows: Vec<Row>,
    /// The same effects of further subjects, which do not.
    pub also: Vec<Row>,
    #[serde(skip)]
    which: Which,
}

/// Judges the claim by the samples of its experiment. `better` says which values of the claim's metric
/// are the better ones.
pub fn judge(claim: &Claim, better: Better, samples: &[Sample]) -> Judgement {
    judge_with(claim, better, samples, false)
}

fn judge_with(claim: &Claim, better: Better, samples: &[Sample], is_exact: bool) -> Judgement {
    let runs = Runs::of(claim, better, samples);
    let source = Rows { claim, runs, better, is_exact };
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
    /// The subjects, or groups of which the best counts, with the verdict of each, in the order of the
    /// claim; then the further subjects.
    pub fn subjects(&self) -> Vec<(Vec<String>, Verdict)> {
        let mut found: Vec<(Vec<String>, Verdict)> = Vec::new();
        for row in self.rows.iter().chain(&self.also) {
            if found.iter().any(|(of, _)| *of == row.of) {
                continue;
            }
            let rows = self.rows.iter().chain(&self.also).filter(|other| other.of == row.of);
            let rows: Vec<&Row> = rows.collect();
            let verdicts = rows.iter().map(|row| row.verdict.clone()).collect();
            found.push((row.of.clone(), combine::of(verdicts, self.which)));
        }
        found
    }

    /// The row that decides: of a claim about every effect the one that speaks most against it, of a claim
    /// about some effect the one that speaks most for it.
    pub fn deciding(&self) -> Option<&Row> {
        // The p-value of the claim being false minus that of its being true.
        let against = |row: &Row| row.p().map_or(0.0, |(outside, inside)| outside - inside);
        let most = |is_wanted: &dyn Fn(&&Row) -> bool| {
            let wanted = self.rows.iter().rev().filter(is_wanted);
            match self.which {
                Which::Some => wanted.min_by(|a, b| against(a).total_cmp(&against(b))),
                _ => wanted.max_by(|a, b| against(a).total_cmp(&against(b))),
            }
        };
        most(&|row| row.verdict == self.verdict).or_else(|| most(&|row| row.alone == self.alone))
    }
}
