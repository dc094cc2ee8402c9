//! Many sessions in the order of time: in which cells, and since which session, a metric has another level.
//!
//! A *series* is a metric of a cell over the sessions that have it. All series are one family: whether one has
//! changed at all is decided by Holm's procedure ([`crate::analysis::decision::holm`]), and where it has changed by
//! [`crate::analysis::decision::change_points`] at the size that this procedure gives it.

mod entry;
mod file;
mod since;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Condition, LEVEL, SessionStanding};
use crate::analysis::Interval;
use crate::analysis::decision::change_points::{self, FEWEST_VALUES};
use crate::analysis::decision::holm::holm;
use crate::analysis::summary::{geometric_mean, logs};
use crate::compare::FALSE_ALARMS;
use crate::digits::ratio_words;
use crate::model::Cell;
use crate::report::model::experiment::MetricReport;
use crate::spec::metric::Better;

pub use entry::HistoryEntry;
pub use file::{add, read};
pub use since::Since;
pub use table::table;

/// The version of the data.
pub const SCHEMA: &str = "drover.changes/1";

/// Sessions in the order of time, and what has changed.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The level of confidence of the intervals.
    pub level: f64,
    /// The probability that noise alone makes any of all series change.
    pub false_alarms: f64,
    /// The sessions, the oldest first: those with the preset of the newest.
    pub sessions: Vec<HistorySession>,
    /// How many sessions of the file have another preset, and are left out.
    pub other_presets: usize,
    /// Every metric of every cell that any of the sessions has.
    pub series: Vec<Series>,
}

/// A session, and what is new in it.
#[derive(Clone, Debug, Serialize)]
pub struct HistorySession {
    /// The name of its folder.
    pub name: String,
    /// When it began (UTC, RFC 3339).
    pub began: String,
    /// Its preset.
    pub preset: String,
    /// What differs from the session before it: the environment, the version, the experiments.
    pub news: Vec<String>,
}

/// A metric of a cell over the sessions that have it.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The experiment's id.
    pub experiment: String,
    /// The cell.
    pub cell: Cell,
    /// The cell in words.
    pub name: String,
    /// The metric.
    pub metric: String,
    /// The metric's unit; empty if it has none.
    pub unit: String,
    /// Which values are the better ones.
    pub better: Better,
    /// The sessions that have it, by their place in the list of all, each with the median of its rounds.
    pub medians: Vec<(usize, f64)>,
    /// The two-sided p-value of one level; `None` of fewer sessions than two levels need.
    pub p: Option<f64>,
    /// The p-value times the number of series that it stands for (Holm).
    pub adjusted_p: Option<f64>,
    /// The levels after the first, in the order of time.
    pub changes: Vec<LevelChange>,
}

/// A level that differs from the one before it.
#[derive(Clone, Debug, Serialize)]
pub struct LevelChange {
    /// Its first session, by its place in the list of all.
    pub session: usize,
    /// The level before, a geometric mean of medians.
    pub before: f64,
    /// The level from this session on, a geometric mean of medians.
    pub after: f64,
    /// The level ÷ the level before.
    pub ratio: Interval,
    /// Whether the level is better or worse than the one before.
    pub standing: SessionStanding,
}

impl History {
    /// Looks for changes in these metrics, in all metrics if none is named.
    #[must_use]
    pub fn of(mut entries: Vec<HistoryEntry>, metrics: &[String]) -> History {
        entries.sort_by(|a, b| a.began.total_cmp(&b.began).then_with(|| a.id.cmp(&b.id)));
        let preset = entries.last().map(|newest| newest.preset.clone()).unwrap_or_default();
        let all = entries.len();
        entries.retain(|entry| entry.preset == preset);
        let mut history = History {
            schema: SCHEMA,
            level: LEVEL,
            false_alarms: FALSE_ALARMS,
            other_presets: all - entries.len(),
            sessions: sessions(&entries),
            series: series(&entries, metrics),
        };
        history.judge();
        history
    }

    /// Decides which series have changed, and where.
    fn judge(&mut self) {
        let mut tested: Vec<(&mut Series, Vec<f64>)> =
            self.series.iter_mut().filter_map(|one| one.logs().map(|logs| (one, logs))).collect();
        let p: Vec<f64> =
            tested.iter().map(|(_, logs)| change_points::p_of_one_level(logs)).collect();
        for ((one, logs), (p, held)) in
            tested.iter_mut().zip(p.iter().zip(holm(&p, self.false_alarms)))
        {
            (one.p, one.adjusted_p) = (Some(*p), Some(held.adjusted));
            if held.decided {
                one.changes = one.changes_at(logs, held.size);
            }
        }
    }

    /// The metrics of all series.
    #[must_use]
    pub fn metrics(&self) -> BTreeSet<&str> {
        self.series.iter().map(|one| one.metric.as_str()).collect()
    }

    /// The series of which the newest level began at this time or later, and meets the condition beside the level
    /// before it, each in words, with its ratio.
    #[must_use]
    pub fn met(&self, condition: &Condition, since: Since) -> Vec<String> {
        let of_metric = self.series.iter().filter(|one| one.metric == condition.metric());
        let met = of_metric.filter_map(|one| {
            let newest = one.changes.last().filter(|it| condition.is_met(&it.ratio))?;
            let session = &self.sessions[newest.session];
            let ratio = ratio_words(&newest.ratio);
            let words = format!("{}: {}: {ratio} since {}", one.experiment, one.name, session.name);
            since.includes(&session.began).then_some(words)
        });
        met.collect()
    }
}

impl Series {
    /// Logarithms of the medians, if they are enough for two levels.
    fn logs(&self) -> Option<Vec<f64>> {
        let medians: Vec<f64> = self.medians.iter().map(|(_, median)| *median).collect();
        logs(&medians).filter(|logs| logs.len() >= FEWEST_VALUES)
    }

    /// The changes that tests of this size find.
    fn changes_at(&self, logs: &[f64], size: f64) -> Vec<LevelChange> {
        let found = change_points::change_points(logs, size);
        let medians: Vec<f64> = self.medians.iter().map(|(_, median)| *median).collect();
        let levels: Vec<f64> = change_points::levels(&medians, &found)
            .into_iter()
            .map(|level| geometric_mean(level).unwrap_or(f64::NAN))
            .collect();
        let ratios = change_points::factors(logs, &found, LEVEL);
        let change = |((at, ratio), levels): ((&usize, Interval), &[f64])| LevelChange {
            session: self.medians[*at].0,
            before: levels[0],
            after: levels[1],
            standing: match (ratio.value > 1.0) == (self.better == Better::Higher) {
                true => SessionStanding::Better,
                false => SessionStanding::Worse,
            },
            ratio,
        };
        found.iter().zip(ratios).zip(levels.windows(2)).map(change).collect()
    }
}

/// The metrics of all sessions of a history.
#[must_use]
pub fn metrics(entries: &[HistoryEntry]) -> BTreeSet<String> {
    let medians = entries.iter().flat_map(HistoryEntry::medians);
    medians.map(|(_, metric, ..)| metric.name.clone()).collect()
}

/// The sessions, each with what is new in it.
fn sessions(entries: &[HistoryEntry]) -> Vec<HistorySession> {
    let before = std::iter::once(None).chain(entries.iter().map(Some));
    let session = |(entry, before): (&HistoryEntry, Option<&HistoryEntry>)| HistorySession {
        name: entry.name.clone(),
        began: entry.time(),
        preset: entry.preset.clone(),
        news: before.map_or_else(Vec::new, |before| before.news_in(entry)),
    };
    entries.iter().zip(before).map(session).collect()
}

/// Every series, in the order of experiments, metrics and cells of the newest session that has it.
fn series(entries: &[HistoryEntry], chosen: &[String]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for (session, entry) in entries.iter().enumerate().rev() {
        for (experiment, metric, cell, median) in entry.medians() {
            if !chosen.is_empty() && !chosen.contains(&metric.name) {
                continue;
            }
            // As text, because levels may be fractions, which have no order of their own.
            let key = (experiment.to_owned(), metric.name.clone(), format!("{:?}", cell.cell));
            let place = *places.entry(key).or_insert_with(|| {
                all.push(begun(experiment, metric, cell));
                all.len() - 1
            });
            all[place].medians.insert(0, (session, median));
        }
    }
    all
}

/// A series without sessions.
fn begun(experiment: &str, metric: &MetricReport, cell: &entry::EntryCell) -> Series {
    Series {
        experiment: experiment.to_owned(),
        cell: cell.cell.clone(),
        name: cell.name.clone(),
        metric: metric.name.clone(),
        unit: metric.unit.clone(),
        better: metric.better,
        medians: Vec::new(),
        p: None,
        adjusted_p: None,
        changes: Vec::new(),
    }
}
