//! The raw samples of an experiment as columns, one for each metric, so that every name is written once.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::claims::nature::{Use, unusable};
use crate::journal::Run;
use crate::model::Mark;
use crate::record::MeasuredExperiment;

/// The runs of an experiment, in the order in which they ran. Every column has an entry for each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Samples {
    /// The number of the run's cell.
    pub cell: Vec<usize>,
    /// The round, from 1.
    pub round: Vec<u32>,
    /// When the run began, in seconds from the beginning of the session.
    pub at: Vec<f64>,
    /// How long the run took as a whole, in seconds.
    pub took: Vec<f64>,
    /// The marks of the run.
    pub marks: Vec<BTreeSet<Mark>>,
    /// The indices of the runs that medians and comparisons leave out for a mark, by metric.
    pub left_out: BTreeMap<String, Vec<usize>>,
    /// Why a run has no values, by the index of the run.
    pub failures: BTreeMap<usize, String>,
    /// The values by metric; `None` where a run has none.
    pub values: BTreeMap<String, Vec<Option<f64>>>,
}

impl Samples {
    /// The samples of an experiment. `session` is when the session began, in seconds since 1970.
    #[must_use]
    pub fn of(measured: &MeasuredExperiment, session: f64) -> Samples {
        let cells = &measured.header.plan.cells;
        // A forced resumption may have numbered the cells anew, and left out some of them.
        let number = |run: &Run| cells.iter().position(|it| it.cell == run.sample.cell);
        let runs: Vec<(usize, &Run)> =
            measured.runs.iter().filter_map(|run| Some((number(run)?, run))).collect();
        let names: BTreeSet<&String> =
            runs.iter().flat_map(|(_, run)| run.sample.values.keys()).collect();
        let mut samples = Samples::default();
        for (number, (cell, run)) in runs.iter().enumerate() {
            samples.cell.push(*cell);
            samples.round.push(run.sample.round);
            samples.at.push(run.began - session);
            samples.took.push(run.took_s);
            samples.marks.push(run.sample.validity.clone());
            if let Some(failure) = &run.sample.failure {
                samples.failures.insert(number, failure.clone());
            }
        }
        for name in names {
            let column = runs.iter().map(|(_, run)| run.sample.values.get(name).copied());
            samples.values.insert(name.clone(), column.collect());
            let is_left_out =
                |run: &Run| unusable(name, &run.sample.validity, Use::Compared).is_some();
            let left_out: Vec<usize> =
                (0..runs.len()).filter(|number| is_left_out(runs[*number].1)).collect();
            if !left_out.is_empty() {
                samples.left_out.insert(name.clone(), left_out);
            }
        }
        samples
    }

    /// The number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cell.len()
    }

    /// Whether there is no run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cell.is_empty()
    }
}
