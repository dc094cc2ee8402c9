//! The estimate of a metric from the runs of one cell: the median of the values that count, with its interval.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::analysis::Bound;
use crate::analysis::estimate::median::median_interval;
use crate::analysis::summary::median;
use crate::claims::CellRuns;
use crate::model::{Mark, Sample};
use crate::spec::metric::Better;

/// The median over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// The lower end of the interval of at least 95 %; `None` with fewer than six rounds.
    pub low: Option<f64>,
    /// The upper end of the interval.
    pub high: Option<f64>,
    /// Whether the median is exact, or a bound.
    pub bound: Bound,
    /// The number of rounds of the median.
    pub rounds: usize,
}

/// The values that count, by round, each with whether it is exact or a bound. A value counts if the run ended well
/// and its marks leave the metric a meaning. Claims use this rule too.
fn rounds(samples: &[&Sample], metric: &str, better: Better) -> BTreeMap<u32, (f64, Bound)> {
    CellRuns::compared(samples, metric, better).rounds
}

/// The median of a cell's runs; `None` if no value counts.
#[must_use]
pub fn estimate(samples: &[&Sample], metric: &str, better: Better) -> Option<Estimate> {
    let rounds = rounds(samples, metric, better);
    let values: Vec<f64> = rounds.values().map(|(value, _)| *value).collect();
    let interval = median_interval(&values, 0.95);
    let bound: Bound = rounds.values().map(|(_, bound)| *bound).collect();
    Some(Estimate {
        value: median(&values)?,
        low: interval.map(|it| if bound.bounds_below() { it.low } else { 0.0 }),
        high: interval.map(|it| if bound.bounds_above() { it.high } else { f64::INFINITY }),
        bound,
        rounds: values.len(),
    })
}

/// How many runs have each mark.
#[must_use]
pub fn marks(samples: &[&Sample]) -> BTreeMap<Mark, usize> {
    let mut marks = BTreeMap::new();
    let all: Vec<&BTreeSet<Mark>> = samples.iter().map(|sample| &sample.validity).collect();
    for mark in all.into_iter().flatten() {
        *marks.entry(*mark).or_default() += 1;
    }
    marks
}
