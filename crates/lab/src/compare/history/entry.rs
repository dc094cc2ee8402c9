//! What a history keeps of a session: the median of each metric of each cell, where enough rounds count and
//! the values are no bounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::summary::median;
use crate::claims::CellRuns;
use crate::compare::table::another_experiment;
use crate::compare::{cells, ratio};
use crate::hash::hash_bytes;
use crate::journal::Environment;
use crate::model::{Cell, Sample};
use crate::old_names::read_under_metrics;
use crate::path_text::escaped;
use crate::record::{MeasuredExperiment, SessionRecord};
use crate::report::model::experiment::{self, MetricReport};
use crate::report::model::words;

/// The version of a line.
pub(super) const SCHEMA: &str = "drover.history/1";

/// A session in a history: one line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// [`SCHEMA`]. It comes first in the line.
    pub(super) schema: String,
    /// What tells the session from others, wherever its folder is.
    pub id: String,
    /// The name of its folder.
    pub name: String,
    /// When it began, in seconds since 1970 (UTC).
    pub began: f64,
    /// Its preset.
    pub preset: String,
    /// The version of Drover.
    pub version: String,
    /// Where it ran.
    pub environment: Environment,
    /// Its experiments.
    pub(super) experiments: Vec<EntryExperiment>,
}

/// An experiment of a session in a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EntryExperiment {
    /// Its id.
    pub(super) id: String,
    /// The hash of what decides its runs.
    pub(super) hash: String,
    /// The metrics of its claims and figures.
    pub(super) metrics: Vec<MetricReport>,
    /// Its cells, as far as they have a median.
    pub(super) cells: Vec<EntryCell>,
}

/// A cell of a session in a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EntryCell {
    /// The cell.
    pub(super) cell: Cell,
    /// The cell in words.
    pub(super) name: String,
    /// Medians by metric; all of them are above 0.
    #[serde(deserialize_with = "read_under_metrics")]
    pub(super) medians: BTreeMap<String, f64>,
}

impl HistoryEntry {
    /// The session as a history has it.
    ///
    /// # Errors
    /// A session without runs, and one of which runs are missing, with the remedy: its medians would not be
    /// those that it has in the end.
    pub fn of(record: &SessionRecord) -> Result<HistoryEntry, String> {
        let folder = escaped(&record.folder);
        let Some(first) = record.measured.first() else {
            return Err(format!("{folder}: no experiment of this session has begun"));
        };
        if !record.measured.iter().all(MeasuredExperiment::is_complete) {
            return Err(format!(
                "{folder}: this session has not ended: 'drover lab run --resume {folder}' makes the runs that \
                 are missing"
            ));
        }
        let session = &record.session;
        let name = record.folder.file_name().unwrap_or(record.folder.as_os_str());
        Ok(HistoryEntry {
            schema: SCHEMA.to_owned(),
            id: hash_bytes(format!("{} {}", session.began, session.seed).as_bytes()),
            name: escaped(name),
            began: session.began,
            preset: session.preset.clone(),
            version: session.version.clone(),
            environment: first.header.environment.clone(),
            experiments: record.measured.iter().map(EntryExperiment::of).collect(),
        })
    }

    /// Each median, with its experiment's id, its metric and its cell.
    pub(super) fn medians(&self) -> impl Iterator<Item = (&str, &MetricReport, &EntryCell, f64)> {
        self.experiments.iter().flat_map(|one| {
            one.metrics.iter().flat_map(move |metric| {
                one.cells.iter().filter_map(move |cell| {
                    let median = *cell.medians.get(&metric.name)?;
                    Some((one.id.as_str(), metric, cell, median))
                })
            })
        })
    }

    /// What differs in a later session, in words.
    pub(super) fn news_in(&self, later: &HistoryEntry) -> Vec<String> {
        let mut news = self.environment.differences(&later.environment);
        if self.version != later.version {
            news.push(format!("Drover {} then, {} now", self.version, later.version));
        }
        for one in &later.experiments {
            let before = self.experiments.iter().find(|it| it.id == one.id);
            if let Some(before) = before.filter(|before| before.hash != one.hash) {
                news.push(another_experiment(&one.id, &before.hash, &one.hash));
            }
        }
        news
    }

    /// When the session began, as RFC 3339 has it.
    #[must_use]
    pub fn time(&self) -> String {
        words::utc(self.began)
    }
}

impl EntryExperiment {
    fn of(measured: &MeasuredExperiment) -> EntryExperiment {
        let metrics = experiment::metrics(&measured.experiment);
        let samples = measured.samples();
        let of_cell = |cell: &Cell| {
            let own: Vec<&Sample> = samples.iter().filter(|it| it.cell == *cell).collect();
            let median = |metric: &MetricReport| Some((metric.name.clone(), level(&own, metric)?));
            let medians: BTreeMap<String, f64> = metrics.iter().filter_map(median).collect();
            let name = words::cell(cell, &measured.experiment);
            (!medians.is_empty()).then(|| EntryCell { cell: cell.clone(), name, medians })
        };
        EntryExperiment {
            id: measured.experiment.id.clone(),
            hash: measured.header.plan.experiment_hash.clone(),
            cells: cells(measured).filter_map(of_cell).collect(),
            metrics,
        }
    }
}

/// The median of a metric; `None` of too few rounds, of bounds, and of what has no logarithm.
fn level(samples: &[&Sample], metric: &MetricReport) -> Option<f64> {
    let runs = CellRuns::compared(samples, &metric.name, metric.better);
    if ratio::lack(&runs).is_some() || !runs.tally.bounded.is_empty() {
        return None;
    }
    median(&ratio::values(&runs)).filter(|value| *value > 0.0)
}
