//! One table of all claims of all experiments.

use maud::{Markup, html};

use super::{badge, heading, section_id};
use crate::report::model::claim::ClaimReport;
use crate::report::model::experiment::ExperimentReport;
use crate::report::model::{Report, Tally};
use crate::spec::claim::By;

/// The tallies and the table.
pub(super) fn render(report: &Report) -> Markup {
    html! {
        section.all-claims {
            (heading(2, "claims", "All claims"))
            (tally("Claims of documents", &report.document))
            (tally("Claims of ours", &report.ours))
            div.filters id="claim-filters" hidden {}
            table.claims {
                thead {
                    tr {
                        th { "Claim" } th.n { "Published" } th.n { "Here (95 % interval)" }
                        th { "Verdict" } th { "Why" }
                    }
                }
                @for one in &report.experiments { (experiment(one)) }
            }
        }
    }
}

fn tally(title: &str, tally: &Tally) -> Markup {
    html! {
        @if tally.claims > 0 {
            p.tally {
                b { (title) ": " (tally.claims) } " – "
                @for (at, (word, count)) in tally.verdicts.iter().enumerate() {
                    @if at > 0 { ", " }
                    (count) " " (word)
                }
                "."
            }
        }
    }
}

fn experiment(experiment: &ExperimentReport) -> Markup {
    html! {
        tbody {
            @if !experiment.claims.is_empty() {
                tr.group {
                    th colspan="5" scope="rowgroup" {
                        a href={ "#" (section_id(&experiment.id)) } { (experiment.title) }
                        @if let Some(source) = &experiment.source { " " span.dim { (source) } }
                    }
                }
            }
            @for claim in &experiment.claims { (row(claim)) }
        }
    }
}

fn row(claim: &ClaimReport) -> Markup {
    let deciding = claim.deciding_row();
    let whose = if claim.by == By::Ours { "ours" } else { "document" };
    let marks = deciding.map(|row| row.mark_words()).filter(|words| !words.is_empty());
    html! {
        tr data-by=(whose) data-tone=(super::tone_class(claim.verdict.tone)) {
            td.text {
                a href={ "#" (claim.anchor) } { "(" (claim.id) ")" } " " (claim.text)
                @if claim.by == By::Ours { " " span.ours { "ours" } }
            }
            td.n data-label="Published" { (claim.published_words()) }
            td.n data-label="Here" {
                @if let Some(row) = deciding { (row.value_words()) } @else { "–" }
            }
            td data-label="Verdict" { a.verdict href={ "#" (claim.anchor) } { (badge(&claim.verdict)) } }
            td.why data-label="Why" {
                (claim.verdict.why)
                @if let Some(marks) = marks { span.dim { "; " (marks) } }
            }
        }
    }
}
