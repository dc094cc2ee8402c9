//! The runs that a claim is about, by subject, by the levels of all factors, and by round.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::analysis::summary::median;
use crate::analysis::{Bound, FEWEST_COUNTED, FEWEST_ROUNDS};
use crate::model::{Level, Mark, Sample};
use crate::spec::claim::{Claim, Region};
use crate::spec::factor::CASE;
use crate::spec::metric::Better;

use super::nature::{self, Use};
use super::rounds::Rounds;

/// A level for each of some factors, by the factor's name.
pub type LevelByFactor = BTreeMap<String, Level>;

/// The samples of the cells that a claim covers, read as one metric.
pub(super) struct Runs<'a> {
    samples: Vec<&'a Sample>,
    metric: &'a str,
    better: Better,
    used: Use,
    certainty: Certainty,
    /// The factors that an experiment's cases set.
    of_cases: Vec<&'a str>,
    given: &'a BTreeMap<String, Region>,
}

/// How the values of rounds are to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Certainty {
    /// Each round is a sample, with noise.
    Sampled,
    /// Each round counts the same, within this tolerance.
    Counted { tolerance: f64 },
    /// There is one round, of a document, and it has no noise.
    Published,
}

impl Certainty {
    /// Fewer rounds are not judged.
    pub(super) fn fewest_rounds(self) -> usize {
        match self {
            Certainty::Sampled => FEWEST_ROUNDS,
            Certainty::Counted { .. } => FEWEST_COUNTED,
            Certainty::Published => 1,
        }
    }
}

/// The runs of one subject under the same levels.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellRuns {
    /// The level of the factor `over`.
    pub(super) level: Option<Level>,
    /// The usable values.
    pub(crate) rounds: Rounds,
    /// The outcomes of all runs.
    pub(crate) tally: RunCounts,
}

/// Counts of the outcomes of some runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCounts {
    /// The runs that were made.
    pub runs: usize,
    /// The runs that failed.
    pub failed: usize,
    /// The reason of the first failure.
    pub first_failure: Option<String>,
    /// Why the first run that this machine could not make was not possible.
    pub unavailable: Option<String>,
    /// The runs with values that are bounds because of a mark, by the mark.
    pub bounded: BTreeMap<Mark, usize>,
    /// The runs that were left out for a mark, by the mark.
    pub left_out: BTreeMap<Mark, usize>,
    /// The runs with each mark.
    pub marks: BTreeMap<Mark, usize>,
    /// The metrics of preconditions that a cell does not meet.
    pub unmet: BTreeSet<String>,
    /// The cells of a counted metric whose rounds differ by more than the metric's tolerance.
    pub disagreeing: usize,
}

impl RunCounts {
    /// Adds the runs of another cell.
    pub(crate) fn add(&mut self, other: &RunCounts) {
        self.runs += other.runs;
        self.failed += other.failed;
        self.disagreeing += other.disagreeing;
        self.unmet.extend(other.unmet.iter().cloned());
        self.first_failure = self.first_failure.take().or_else(|| other.first_failure.clone());
        self.unavailable = self.unavailable.take().or_else(|| other.unavailable.clone());
        for (counts, others) in [
            (&mut self.bounded, &other.bounded),
            (&mut self.left_out, &other.left_out),
            (&mut self.marks, &other.marks),
        ] {
            for (mark, runs) in others {
                *counts.entry(*mark).or_default() += runs;
            }
        }
    }

    /// Whether most of the runs failed. That is a result of the subject, and no accident.
    pub(crate) fn fails(&self) -> bool {
        self.failed > 0 && 2 * self.failed >= self.runs
    }
}

impl CellRuns {
    /// The runs of one cell, read as a metric whose values are compared.
    pub(crate) fn compared(samples: &[&Sample], metric: &str, better: Better) -> CellRuns {
        let mut runs = CellRuns::default();
        samples.iter().for_each(|sample| runs.add(sample, metric, better, Use::Compared));
        runs
    }

    fn add(&mut self, sample: &Sample, metric: &str, better: Better, used: Use) {
        let tally = &mut self.tally;
        tally.runs += 1;
        for mark in &sample.validity {
            *tally.marks.entry(*mark).or_default() += 1;
        }
        if sample.validity.contains(&Mark::Unavailable) {
            let reason = sample.failure.clone().unwrap_or_else(|| "not possible here".to_owned());
            tally.unavailable.get_or_insert(reason);
            return;
        }
        if let Some(reason) = &sample.failure {
            tally.failed += 1;
            tally.first_failure.get_or_insert_with(|| reason.clone());
            return;
        }
        if let Some(mark) = nature::unusable(metric, &sample.validity, used) {
            *tally.left_out.entry(mark).or_default() += 1;
            return;
        }
        let Some(value) = sample.values.get(metric).filter(|value| value.is_finite()) else {
            return;
        };
        let bound = nature::bound(metric, better, &sample.validity, used);
        for mark in &sample.validity {
            let by_itself = nature::bound(metric, better, &[*mark].into(), used);
            *tally.bounded.entry(*mark).or_default() += usize::from(by_itself != Bound::Exact);
        }
        tally.bounded.retain(|_, runs| *runs > 0);
        self.rounds.insert(sample.round, (*value, bound));
    }
}

impl<'a> Runs<'a> {
    /// The runs that the claim covers.
    pub(super) fn of(
        claim: &'a Claim,
        better: Better,
        samples: &'a [Sample],
        certainty: Certainty,
        of_cases: Vec<&'a str>,
    ) -> Runs<'a> {
        let samples = samples.iter().filter(|sample| claim.covers(&sample.cell)).collect();
        let metric = claim.effect.metric();
        let used = match certainty {
            Certainty::Counted { .. } => Use::Counted,
            _ => Use::by(&claim.effect),
        };
        Runs { samples, metric, better, used, certainty, of_cases, given: &claim.given }
    }

    /// Every combination of levels at which the subjects were measured, in ascending order, without the level of the
    /// factor `over`. If they were nowhere measured together, the combinations at which any of them was.
    pub(super) fn groups(&self, subjects: &[String], over: Option<&str>) -> Vec<LevelByFactor> {
        let mut groups: Vec<LevelByFactor> = Vec::new();
        let mut measured: Vec<BTreeSet<&str>> = Vec::new();
        for sample in self.samples.iter().filter(|s| subjects.contains(&s.cell.subject)) {
            let group = self.group(&sample.cell.levels, over);
            let at = groups.iter().position(|other| *other == group).unwrap_or_else(|| {
                groups.push(group);
                measured.push(BTreeSet::new());
                groups.len() - 1
            });
            measured[at].insert(&sample.cell.subject);
        }
        let wanted: BTreeSet<&str> = subjects.iter().map(String::as_str).collect();
        if measured.contains(&wanted) {
            let mut has_all = measured.iter().map(|there| *there == wanted);
            groups.retain(|_| has_all.next() == Some(true));
        }
        groups.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        groups
    }

    /// The levels that a cell has in common with those at other levels of the factor `over`. Cells of other cases have other
    /// levels of the factors that cases set.
    fn group(&self, levels: &LevelByFactor, over: Option<&str>) -> LevelByFactor {
        let is_own = |factor: &str| {
            over != Some(factor) && !(over == Some(CASE) && self.of_cases.contains(&factor))
        };
        let kept = levels.iter().filter(|(factor, _)| is_own(factor));
        kept.map(|(factor, level)| (factor.clone(), level.clone())).collect()
    }

    /// The subject's cells in a group, in ascending order of the level of `over`.
    pub(super) fn cells(
        &self,
        subject: &str,
        group: &LevelByFactor,
        over: Option<&str>,
    ) -> Vec<CellRuns> {
        let mut cells: Vec<CellRuns> = Vec::new();
        let mut members: Vec<Vec<&Sample>> = Vec::new();
        for sample in &self.samples {
            let levels = &sample.cell.levels;
            if sample.cell.subject != subject || self.group(levels, over) != *group {
                continue;
            }
            let level = over.and_then(|over| levels.get(over));
            let at = cells.iter().position(|cell| cell.level.as_ref() == level);
            let at = at.unwrap_or_else(|| {
                cells.push(CellRuns { level: level.cloned(), ..CellRuns::default() });
                members.push(Vec::new());
                cells.len() - 1
            });
            cells[at].add(sample, self.metric, self.better, self.used);
            members[at].push(sample);
        }
        for (cell, samples) in cells.iter_mut().zip(&members) {
            let unmet =
                self.given.iter().filter(|(metric, region)| !is_met(metric, **region, samples));
            cell.tally.unmet = unmet.map(|(metric, _)| metric.clone()).collect();
        }
        if let Certainty::Counted { tolerance } = self.certainty {
            for cell in &mut cells {
                cell.tally.disagreeing = usize::from(!agree(&cell.rounds, tolerance));
            }
        }
        cells.sort_by(|a, b| a.level.partial_cmp(&b.level).unwrap_or(Ordering::Equal));
        cells
    }
}

/// Whether the median of a metric over some runs lies in a region. Where the server failed in all of them, nothing is presupposed of it.
fn is_met(metric: &str, region: Region, samples: &[&Sample]) -> bool {
    let mut measured = samples.iter().filter(|sample| !sample.values.is_empty()).peekable();
    if measured.peek().is_none() {
        return true;
    }
    let values: Vec<f64> =
        measured.filter_map(|sample| sample.values.get(metric).copied()).collect();
    median(&values).is_some_and(|median| region.contains(median))
}

/// Whether no round of a counted metric differs from another by more than a tolerance.
fn agree(rounds: &Rounds, tolerance: f64) -> bool {
    let values = || rounds.values().map(|(value, _)| *value);
    let (least, greatest) =
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    greatest - least <= tolerance * least.abs().max(greatest.abs())
}

/// The rounds that all series have.
pub(super) fn common<'a>(all: impl IntoIterator<Item = &'a Rounds>) -> Vec<u32> {
    let mut all = all.into_iter();
    let Some(first) = all.next() else { return Vec::new() };
    let others: Vec<&Rounds> = all.collect();
    let in_all = |round: &&u32| others.iter().all(|rounds| rounds.contains_key(round));
    first.keys().filter(in_all).copied().collect()
}
