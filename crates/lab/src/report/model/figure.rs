//! The figures of an experiment as data: which cells along which axes, and the document's own values.

use std::collections::BTreeSet;

use serde::Serialize;

use super::words;
use crate::claims::LevelByFactor;
use crate::model::{Cell, Level};
use crate::spec::experiment::Experiment;
use crate::spec::factor::{AxisScale, CASE};
use crate::spec::figure::Figure;

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub struct FigureReport {
    /// Its name, as the document has it.
    pub id: String,
    /// The part of links that names it on the page.
    pub anchor: String,
    /// What it shows.
    pub title: String,
    /// What is plotted.
    pub metric: String,
    /// The factor along the horizontal axis; without it there is a row for each subject.
    pub x: Option<String>,
    /// Whether the horizontal axis is logarithmic. It depends on the range of the levels.
    pub x_log: bool,
    /// The scale of the vertical axis, if the experiment sets it.
    pub scale: Option<AxisScale>,
    /// The numbers of the cells that are plotted.
    pub cells: Vec<usize>,
    /// The panel of each cell, in words; empty if there is only one panel.
    pub panels: Vec<String>,
    /// The document's own values.
    pub published: Vec<PublishedPoint>,
    /// A remark on where the document's values come from.
    pub published_note: Option<String>,
}

/// A value of a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedPoint {
    /// The subject.
    pub subject: String,
    /// The level along the horizontal axis.
    pub x: Option<Level>,
    /// The panel of the value, in words.
    pub panel: String,
    /// The value.
    pub value: f64,
}

impl FigureReport {
    /// The figure of the planned cells.
    pub(super) fn of(experiment: &Experiment, figure: &Figure, cells: &[Cell]) -> FigureReport {
        let is_shown = |cell: &Cell| {
            let subjects = figure.subjects.as_ref();
            subjects.is_none_or(|subjects| subjects.contains(&cell.subject))
                && figure.cells.iter().all(|(factor, levels)| {
                    cell.levels.get(factor).is_some_and(|level| levels.contains(level))
                })
        };
        let shown: Vec<usize> =
            (0..cells.len()).filter(|number| is_shown(&cells[*number])).collect();
        let panel_factors = panel_factors(experiment, figure, cells, &shown);
        let panel = |number: &usize| {
            let levels = cells[*number].levels.iter();
            let own = levels.filter(|(factor, _)| panel_factors.contains(factor));
            let own: LevelByFactor =
                own.map(|(name, level)| (name.clone(), level.clone())).collect();
            words::place(&own, experiment)
        };
        let mut panels: Vec<String> = shown.iter().map(panel).collect();
        let mut published = published(experiment, figure, cells, &shown, &panels);
        let all = || panels.iter().chain(published.iter().map(|point| &point.panel));
        if all().collect::<BTreeSet<_>>().len() < 2 {
            panels.iter_mut().for_each(String::clear);
            published.iter_mut().for_each(|point| point.panel.clear());
        }
        let title = experiment.metric(&figure.metric).map_or(figure.metric.as_str(), |it| it.title);
        FigureReport {
            id: figure.id.clone(),
            anchor: format!("{}--{}", experiment.id, words::slug(&figure.id)),
            title: figure.title.clone().unwrap_or_else(|| title.to_owned()),
            metric: figure.metric.clone(),
            x: figure.x.clone(),
            x_log: figure.x.as_ref().is_some_and(|x| is_log(experiment, x, cells, &shown)),
            scale: figure.scale,
            cells: shown,
            panels,
            published,
            published_note: figure.published.as_ref().and_then(|published| match published {
                crate::spec::claim::Published::Data(data) => data.note.clone(),
                crate::spec::claim::Published::Rows(_) => None,
            }),
        }
    }
}

/// The factors that divide the cells into panels: those that the figure names, or all factors that vary except the
/// horizontal axis.
fn panel_factors(
    experiment: &Experiment,
    figure: &Figure,
    cells: &[Cell],
    shown: &[usize],
) -> Vec<String> {
    if let Some(panels) = &figure.panels {
        return panels.clone();
    }
    let of_case = experiment.case_factors();
    let first = shown.first().map(|number| &cells[*number]);
    let Some(first) = first else { return Vec::new() };
    let rows = figure.published.as_ref().map_or(&[][..], |published| published.rows());
    // The document may have measured at one other level, which is another panel. A case varies with the factors that
    // it sets.
    let is_elsewhere = |factor: &str| {
        rows.iter().any(|row| {
            row.levels.get(factor).is_some_and(|level| first.levels.get(factor) != Some(level))
        })
    };
    let varies = |factor: &&String| {
        let is_of_case = first.levels.contains_key(CASE) && of_case.contains(&factor.as_str());
        figure.x.as_ref() != Some(*factor)
            && !is_of_case
            && (shown.iter().any(|at| cells[*at].levels.get(*factor) != first.levels.get(*factor))
                || is_elsewhere(factor)
                || (*factor == CASE && of_case.iter().any(|it| is_elsewhere(it))))
    };
    first.levels.keys().filter(varies).cloned().collect()
}

/// The document's values, each in the panel of the first cell with its levels. A value with levels that are not
/// measured here has a panel named by the levels.
fn published(
    experiment: &Experiment,
    figure: &Figure,
    cells: &[Cell],
    shown: &[usize],
    panels: &[String],
) -> Vec<PublishedPoint> {
    let rows = figure.published.as_ref().map_or(&[][..], |published| published.rows());
    let point = |row: &crate::spec::claim::PublishedValue| {
        let is_beside = |factor: &String| figure.x.as_ref() != Some(factor);
        let others: LevelByFactor =
            row.levels.clone().into_iter().filter(|(f, _)| is_beside(f)).collect();
        let agrees = |number: &usize| {
            let levels = &cells[*number].levels;
            others.iter().all(|(factor, level)| levels.get(factor) == Some(level))
        };
        let panel = match shown.iter().position(agrees) {
            Some(at) => panels[at].clone(),
            None => words::place(&others, experiment),
        };
        let x = figure.x.as_ref().and_then(|x| row.levels.get(x).cloned());
        PublishedPoint { subject: row.subject.clone(), x, panel, value: row.value }
    };
    rows.iter().map(point).collect()
}

fn is_log(experiment: &Experiment, factor: &str, cells: &[Cell], shown: &[usize]) -> bool {
    match experiment.factor.get(factor).and_then(|factor| factor.scale) {
        Some(scale) => scale == AxisScale::Log,
        None => {
            let levels = shown.iter().filter_map(|at| cells[*at].levels.get(factor)?.number());
            let levels: Vec<f64> = levels.collect();
            let low = levels.iter().copied().fold(f64::INFINITY, f64::min);
            let high = levels.iter().copied().fold(0.0, f64::max);
            low > 0.0 && high / low >= 10.0
        }
    }
}
