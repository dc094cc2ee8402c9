//! The measurements of a candidate: CPU time per response, and responses per second.

use serde::Serialize;

use super::{MODERATE, SATURATION};
use crate::analysis::Bound;
use crate::claims::{CellRuns, Rounds, RunCounts, positive};
use crate::digits::percent;
use crate::model::{Level, Sample};
use crate::spec::factor::CASE;
use crate::spec::metric::Better;

/// The metric at the moderate rate: CPU time per response, in microseconds.
pub(super) const COST: &str = "cpu-per-response";

/// The metric at saturation: responses per second.
pub(super) const SPEED: &str = "response-rate";

/// A candidate is broken if its share of failed requests exceeds that of the default configuration by this many
/// percent points.
const MORE_ERRORS: f64 = 1.0;

/// A candidate with its measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// CPU time per response at the moderate rate, in microseconds, by round.
    pub cost: Rounds,
    /// Responses per second at saturation, by round.
    pub speed: Rounds,
    /// Why the candidate is ruled out; `None`: it is not.
    pub failure: Option<String>,
}

impl Contender {
    /// Reads the samples of a candidate; samples of other candidates are skipped. `errors` is the share of requests
    /// that fail under every candidate, in percent.
    #[must_use]
    pub fn read(name: &str, samples: &[Sample], errors: f64) -> Contender {
        let of = |case: &str| -> Vec<&Sample> {
            let is_of_case = |sample: &&Sample| {
                sample.cell.subject == name
                    && sample.cell.levels.get(CASE) == Some(&Level::Name(case.to_owned()))
            };
            samples.iter().filter(is_of_case).collect()
        };
        let (moderate, saturation) = (of(MODERATE), of(SATURATION));
        let cost = CellRuns::compared(&moderate, COST, Better::Lower);
        let speed = CellRuns::compared(&saturation, SPEED, Better::Higher);
        let failed = [&cost.tally, &speed.tally].into_iter().find_map(failed);
        let failing = [&moderate, &saturation].into_iter().find_map(|it| failing(it, errors));
        Contender {
            name: name.to_owned(),
            cost: positive(cost.rounds),
            speed: positive(speed.rounds),
            failure: failed.or(failing),
        }
    }

    /// The rounds with both measurements.
    pub(super) fn rounds(&self) -> impl Iterator<Item = u32> + '_ {
        self.cost.keys().filter(|round| self.speed.contains_key(round)).copied()
    }

    /// Adds rounds of this candidate that were measured later. Their numbers begin after `after`.
    pub(super) fn add(&mut self, later: &Contender, after: u32) {
        let numbered = |(round, value): (&u32, &(f64, Bound))| (round + after, *value);
        self.cost.extend(later.cost.iter().map(numbered));
        self.speed.extend(later.speed.iter().map(numbered));
        self.failure = self.failure.take().or_else(|| later.failure.clone());
    }
}

/// Why most of the runs have failed, or no run could be made; `None`: neither is so.
fn failed(tally: &RunCounts) -> Option<String> {
    let of_most = tally.first_failure.clone().filter(|_| tally.fails());
    tally.unavailable.clone().or(of_most)
}

/// A reason if in most runs far more requests fail than under the default configuration.
fn failing(samples: &[&Sample], errors: f64) -> Option<String> {
    let mut shares: Vec<f64> =
        samples.iter().filter_map(|sample| sample.values.get("error-percent").copied()).collect();
    shares.sort_by(f64::total_cmp);
    let median = shares.get(shares.len() / 2)?;
    (*median > errors + MORE_ERRORS)
        .then(|| format!("{} % of its requests failed", percent(*median)))
}

/// The rounds that all candidates have.
pub(super) fn common(contenders: &[&Contender]) -> Vec<u32> {
    let Some((first, others)) = contenders.split_first() else { return Vec::new() };
    let in_all = |round: &u32| others.iter().all(|it| it.rounds().any(|other| other == *round));
    first.rounds().filter(in_all).collect()
}

/// A candidate with values, one per round.
#[cfg(test)]
pub(super) fn for_test(name: &str, cost: &[f64], speed: &[f64]) -> Contender {
    let rounds = |values: &[f64]| {
        (1..).zip(values).map(|(round, value)| (round, (*value, Bound::Exact))).collect()
    };
    let (cost, speed) = (rounds(cost), rounds(speed));
    Contender { name: name.to_owned(), cost, speed, failure: None }
}
