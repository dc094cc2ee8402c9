//! The table of medians, and the cells that failed or could not be measured.

use maud::{Markup, html};

use super::heading;
use crate::report::model::claim::marks_words;
use crate::report::model::estimate::Estimate;
use crate::report::model::experiment::{CellReport, ExperimentReport};
use crate::report::model::words;

/// A row for each cell, a column for each metric of claims and figures.
pub(super) fn table(one: &ExperimentReport) -> Markup {
    let is_measured = |name: &str| one.cells.iter().any(|cell| cell.estimates.contains_key(name));
    let metrics: Vec<_> = one.metrics.iter().filter(|it| is_measured(&it.name)).collect();
    html! {
        div.scroll {
            table.medians {
                thead {
                    tr {
                        th { "Subject" } th { "At" }
                        @for metric in &metrics {
                            th.n {
                                (metric.title)
                                @if !metric.unit.is_empty() { " [" (metric.unit) "]" }
                            }
                        }
                        th { "Marks" }
                    }
                }
                tbody {
                    @for cell in one.cells.iter().filter(|cell| cell.runs > 0) {
                        tr {
                            th { code { (cell.subject) } } td { (cell.place) }
                            @for metric in &metrics { td.n { (value(cell.estimates.get(&metric.name))) } }
                            td.small { (marks_words(&cell.marks, cell.failed, cell.runs)) }
                        }
                    }
                }
            }
        }
    }
}

fn value(estimate: Option<&Estimate>) -> Markup {
    html! {
        @match estimate {
            None => "–",
            Some(it) => {
                (words::sign(it.bound)) (words::number(it.value))
                @if let (Some(low), Some(high)) = (it.low, it.high) {
                    " " span.dim { "(" (words::range(low, high)) ")" }
                } @else {
                    " " span.dim { "(" (it.rounds) (if it.rounds == 1 { " round)" } else { " rounds)" }) }
                }
            }
        }
    }
}

/// Cells that failed, and cells that this machine cannot measure, with the reasons.
pub(super) fn failures(one: &ExperimentReport, anchor: &str) -> Markup {
    let failed: Vec<&CellReport> = one.cells.iter().filter(|cell| cell.failed > 0).collect();
    let untestable: Vec<&CellReport> =
        one.cells.iter().filter(|cell| cell.not_testable.is_some()).collect();
    let unmeasured: Vec<&CellReport> =
        one.cells.iter().filter(|cell| !cell.unmeasured.is_empty()).collect();
    html! {
        @if !failed.is_empty() || !untestable.is_empty() || !unmeasured.is_empty() {
            (heading(3, anchor, "Failed, not measured, or not testable here"))
            ul {
                @for cell in failed {
                    li {
                        (name(cell)) ": " (cell.failed) " of " (cell.runs) " runs failed: "
                        @for (at, reason) in cell.failures.iter().enumerate() {
                            @if at > 0 { "; " }
                            (reason)
                        }
                    }
                }
                @for cell in unmeasured {
                    li {
                        (name(cell)) ": runs that count nowhere, because the lab itself failed: "
                        @for (at, reason) in cell.unmeasured.iter().enumerate() {
                            @if at > 0 { "; " }
                            (reason)
                        }
                    }
                }
                @for cell in untestable {
                    li {
                        (name(cell)) ": not testable here: "
                        (cell.not_testable.as_deref().unwrap_or_default())
                    }
                }
            }
        }
    }
}

fn name(cell: &CellReport) -> Markup {
    html! { code { (cell.subject) } @if !cell.place.is_empty() { ", " (cell.place) } }
}
