//! Sessions side by side, of two kernels, machines or versions of a program: what of a session's experiments another
//! one has too, metric by metric and cell by cell, and what else differs between the two.
//!
//! Runs count, and values are bounds, by the rule of claims and medians. Sessions have no round in common, so
//! that each ratio is one of independent samples ([`crate::analysis::estimate::independent`]); all ratios are one
//! family, as the claims of an experiment are ([`crate::claims::family`]), but of all metrics and with less error: a
//! comparison may be made after each change.

mod condition;
pub mod history;
mod ratio;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::analysis::decision::holm::holm;
use crate::claims::RATIO_MARGIN;
use crate::model::{Cell, Mark, Sample};
use crate::path_text::escaped;
use crate::record::{MeasuredExperiment, SessionRecord};
use crate::report::model::experiment::{self, MetricReport};
use crate::report::model::words;

pub use condition::Condition;
pub use ratio::{CellRatio, LEVEL, Obstacle, Party, SessionStanding};
pub use table::table;

/// The version of the data.
pub const SCHEMA: &str = "drover.compare/1";

/// The probability that noise alone makes any ratio of all sessions better or worse.
pub const FALSE_ALARMS: f64 = 0.01;

/// Sessions, each compared with the same one.
#[derive(Clone, Debug, Serialize)]
pub struct SessionComparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The level of confidence of the intervals.
    pub level: f64,
    /// Ratios from 1 ÷ this to this count as equal.
    pub margin: f64,
    /// The probability that noise alone makes any ratio of all sessions better or worse.
    pub false_alarms: f64,
    /// The session that the others are compared with.
    pub base: SessionIdentity,
    /// The others, in their order.
    pub others: Vec<OtherSession>,
}

/// Which session it is.
#[derive(Clone, Debug, Serialize)]
pub struct SessionIdentity {
    /// Its folder.
    pub folder: String,
    /// When it began (UTC, RFC 3339).
    pub began: String,
    /// Its preset.
    pub preset: String,
    /// The version of Drover.
    pub version: String,
    /// The kernel, as uname(2) tells it; `None` while no experiment has begun.
    pub kernel: Option<String>,
    /// The hash of Drover's binary.
    pub program: Option<String>,
}

/// A session beside the base session.
#[derive(Clone, Debug, Serialize)]
pub struct OtherSession {
    /// Which it is.
    pub session: SessionIdentity,
    /// What differs in the environments: in the base session *then*, in this one *now*.
    pub environment: Vec<String>,
    /// The experiments that both sessions have, in the order of the base session.
    pub experiments: Vec<SharedExperiment>,
    /// The ids of experiments that only the base session has.
    pub only_base: Vec<String>,
    /// The ids of experiments that only this session has.
    pub only_other: Vec<String>,
    /// The cells of which another share of runs failed.
    pub failures: Vec<CellFailures>,
    /// Every metric of every cell that both sessions have, by experiment and metric.
    pub ratios: Vec<CellRatio>,
}

/// An experiment that both sessions have.
#[derive(Clone, Debug, Serialize)]
pub struct SharedExperiment {
    /// Its id.
    pub id: String,
    /// The hash of what decides its runs in the base session.
    pub base_hash: String,
    /// The same in the other session.
    pub other_hash: String,
    /// How many cells both have.
    pub cells: usize,
    /// How many cells only the base session has.
    pub only_base: usize,
    /// How many cells only the other session has.
    pub only_other: usize,
}

/// A cell of which another share of runs failed.
#[derive(Clone, Debug, Serialize)]
pub struct CellFailures {
    /// The experiment's id.
    pub experiment: String,
    /// The cell in words.
    pub name: String,
    /// The runs of the base session that failed, and all of its runs.
    pub base: [usize; 2],
    /// The same of the other session.
    pub other: [usize; 2],
    /// The first failure of the session that failed more often.
    pub reason: String,
}

impl SessionComparison {
    /// Compares sessions with `base`, by these metrics; by all metrics of claims and figures if there is none.
    #[must_use]
    pub fn of(
        base: &SessionRecord,
        others: &[SessionRecord],
        metrics: &[String],
    ) -> SessionComparison {
        let mut comparison = SessionComparison {
            schema: SCHEMA,
            level: LEVEL,
            margin: RATIO_MARGIN,
            false_alarms: FALSE_ALARMS,
            base: identity(base),
            others: others.iter().map(|other| compare(base, other, metrics)).collect(),
        };
        comparison.judge();
        comparison
    }

    /// Gives every ratio its standing among all of them.
    fn judge(&mut self) {
        let all = self.others.iter_mut().flat_map(|other| &mut other.ratios);
        let mut tested: Vec<&mut CellRatio> = all.filter(|ratio| ratio.p.is_some()).collect();
        let p: Vec<f64> = tested.iter().filter_map(|ratio| ratio.p).collect();
        for (ratio, held) in std::iter::zip(&mut tested, holm(&p, FALSE_ALARMS)) {
            ratio.adjusted_p = Some(held.adjusted);
            ratio.settle(held.decided);
        }
    }

    /// The metrics of which at least one cell could be compared.
    #[must_use]
    pub fn compared_metrics(&self) -> BTreeSet<&str> {
        let all = self.others.iter().flat_map(|other| &other.ratios);
        all.filter(|ratio| ratio.standing != SessionStanding::NotComparable)
            .map(|ratio| ratio.metric.as_str())
            .collect()
    }
}

/// The metrics of claims and figures of all experiments that `base` has in common with any of the others.
#[must_use]
pub fn metrics(base: &SessionRecord, others: &[SessionRecord]) -> BTreeSet<String> {
    let pairs = others.iter().flat_map(|other| pairs(base, other));
    pairs.flat_map(|pair| pair.metrics()).map(|metric| metric.name).collect()
}

fn identity(record: &SessionRecord) -> SessionIdentity {
    let environment = record.measured.first().map(|one| &one.header.environment);
    SessionIdentity {
        folder: escaped(&record.folder),
        began: words::utc(record.session.began),
        preset: record.session.preset.clone(),
        version: record.session.version.clone(),
        kernel: environment.map(|it| it.kernel.clone()),
        program: environment.map(|it| it.program.clone()),
    }
}

/// Compares one session, whose ratios are not judged yet.
fn compare(base: &SessionRecord, other: &SessionRecord, chosen: &[String]) -> OtherSession {
    let pairs = pairs(base, other);
    let environment: BTreeSet<String> =
        pairs.iter().flat_map(|pair| pair.environment_differences()).collect();
    let mut found = OtherSession {
        session: identity(other),
        environment: environment.into_iter().collect(),
        experiments: pairs.iter().map(Pair::shared).collect(),
        only_base: missing(base, other),
        only_other: missing(other, base),
        failures: Vec::new(),
        ratios: Vec::new(),
    };
    for pair in &pairs {
        let samples = (pair.base.samples(), pair.other.samples());
        let cells = pair.cells(&samples);
        found.failures.extend(cells.iter().filter_map(|cell| cell.failures(pair)));
        let metrics = pair.metrics();
        let is_chosen = |metric: &&MetricReport| chosen.is_empty() || chosen.contains(&metric.name);
        for metric in metrics.iter().filter(is_chosen) {
            found.ratios.extend(cells.iter().map(|cell| cell.ratio(pair, metric)));
        }
    }
    found
}

/// The ids of experiments that only the first of two sessions has begun.
fn missing(of: &SessionRecord, in_other: &SessionRecord) -> Vec<String> {
    let ids = |record: &SessionRecord| -> Vec<String> {
        record.measured.iter().map(|one| one.experiment.id.clone()).collect()
    };
    let there = ids(in_other);
    ids(of).into_iter().filter(|id| !there.contains(id)).collect()
}

/// An experiment in two sessions.
struct Pair<'r> {
    base: &'r MeasuredExperiment,
    other: &'r MeasuredExperiment,
}

/// The experiments that both sessions have begun.
fn pairs<'r>(base: &'r SessionRecord, other: &'r SessionRecord) -> Vec<Pair<'r>> {
    let pair = |base: &'r MeasuredExperiment| {
        let other = other.measured.iter().find(|one| one.experiment.id == base.experiment.id)?;
        Some(Pair { base, other })
    };
    base.measured.iter().filter_map(pair).collect()
}

/// The cells of a plan.
fn cells(measured: &MeasuredExperiment) -> impl Iterator<Item = &Cell> {
    measured.header.plan.cells.iter().map(|planned| &planned.cell)
}

impl<'r> Pair<'r> {
    fn id(&self) -> &'r str {
        &self.base.experiment.id
    }

    fn environment_differences(&self) -> Vec<String> {
        self.base.header.environment.differences(&self.other.header.environment)
    }

    /// The metrics of claims and figures, as the base session has them and then those that are new.
    fn metrics(&self) -> Vec<MetricReport> {
        let mut all = experiment::metrics(&self.base.experiment);
        for metric in experiment::metrics(&self.other.experiment) {
            if all.iter().all(|known| known.name != metric.name) {
                all.push(metric);
            }
        }
        all
    }

    fn shared(&self) -> SharedExperiment {
        let both = cells(self.base).filter(|cell| cells(self.other).any(|it| it == *cell)).count();
        SharedExperiment {
            id: self.id().to_owned(),
            base_hash: self.base.header.plan.experiment_hash.clone(),
            other_hash: self.other.header.plan.experiment_hash.clone(),
            cells: both,
            only_base: cells(self.base).count() - both,
            only_other: cells(self.other).count() - both,
        }
    }

    /// The cells that both have, with the runs of each.
    fn cells<'s>(&self, (base, other): &'s (Vec<Sample>, Vec<Sample>)) -> Vec<SharedCell<'r, 's>> {
        let both = cells(self.base).filter(|cell| cells(self.other).any(|it| it == *cell));
        let of_cell = |samples: &'s [Sample], cell: &Cell| -> Vec<&'s Sample> {
            samples.iter().filter(|sample| sample.cell == *cell).collect()
        };
        let shared = both.map(|cell| {
            let name = words::cell(cell, &self.base.experiment);
            SharedCell { cell, name, base: of_cell(base, cell), other: of_cell(other, cell) }
        });
        shared.collect()
    }
}

/// A cell that both sessions have.
struct SharedCell<'r, 's> {
    cell: &'r Cell,
    name: String,
    base: Vec<&'s Sample>,
    other: Vec<&'s Sample>,
}

impl SharedCell<'_, '_> {
    fn ratio(&self, pair: &Pair<'_>, metric: &MetricReport) -> CellRatio {
        CellRatio::of(pair.id(), (self.cell, self.name.as_str()), metric, [&self.base, &self.other])
    }

    /// What failed, if that is another share of the runs. What a machine cannot measure has not failed.
    fn failures(&self, pair: &Pair<'_>) -> Option<CellFailures> {
        let [base, other] = [&self.base, &self.other].map(|samples| failed(samples));
        let shares = (base.len() * self.other.len(), other.len() * self.base.len());
        if shares.0 == shares.1 {
            return None;
        }
        let more = if shares.0 > shares.1 { &base } else { &other };
        Some(CellFailures {
            experiment: pair.id().to_owned(),
            name: self.name.clone(),
            base: [base.len(), self.base.len()],
            other: [other.len(), self.other.len()],
            reason: more.first().copied().unwrap_or_default().to_owned(),
        })
    }
}

/// Why runs failed, one reason for each that did.
fn failed<'s>(samples: &[&'s Sample]) -> Vec<&'s str> {
    let testable = samples.iter().filter(|it| !it.validity.contains(&Mark::Unavailable));
    testable.filter_map(|sample| sample.failure.as_deref()).collect()
}
