//! One table of all claims of all experiments.

use maud::{Markup, html};

use super::{badge, folded, section_id};
use crate::report::model::claim::{ClaimReport, Tone};
use crate::report::model::experiment::ExperimentReport;
use crate::report::model::{Report, VerdictCounts};
use crate::report::verdicts::{self, Conclusion, OpenReason};
use crate::spec::claim::By;

/// Whether the report has a claim.
pub(super) fn are_there(report: &Report) -> bool {
    report.experiments.iter().any(|one| !one.claims.is_empty())
}

/// The counts by verdict and the table; empty if there is no claim.
pub(super) fn render(report: &Report) -> Markup {
    if !are_there(report) {
        return html! {};
    }
    let rest = html! {
            (tally("Claims of documents", &report.document))
            (tally("Claims of ours", &report.ours))
            div.filters id="claim-filters" hidden {}
            table.claims {
                thead {
                    tr {
                        th { "Claim" } th.n { "Published" } th.n { "Here (95 % interval)" }
                        th { "Verdict here" } th { "Emulated machine" } th { "Why" }
                    }
                }
                @for one in &report.experiments { (experiment(one)) }
            }
    };
    html! { section.all-claims { (folded("claims", "All claims", &html! {}, &rest)) } }
}

/// How many claims are decided, and why other claims are not measured.
pub(super) fn decided(report: &Report) -> Markup {
    let claims = || report.experiments.iter().flat_map(|one| &one.claims);
    let decided = claims().filter(|claim| claim.verdict.tone != Tone::Open).count();
    let missing = claims().filter(|claim| claim.verdict.is_not_measured()).count();
    html! {
        p {
            b { (decided) " of " (claims().count() - missing) " claims that were put to the test are decided" } ". "
            (verdicts::together(report)) "."
            @if missing > 0 {
                " " (missing) " are not measured: the preset " b { (report.session.preset) }
                ", or flags, leave out what they are about."
            }
        }
    }
}

fn tally(title: &str, tally: &VerdictCounts) -> Markup {
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
                    th colspan="6" scope="rowgroup" {
                        a href={ "#" (section_id(&experiment.id)) } { (experiment.title) }
                        @if let Some(source) = &experiment.source { " " span.dim { (source) } }
                    }
                }
            }
            @for claim in &experiment.claims { (row(&experiment.id, claim)) }
        }
    }
}

fn row(experiment: &str, claim: &ClaimReport) -> Markup {
    let (emulated, conclusion) = verdicts::of_report(experiment, claim);
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
            td data-label="Emulated" {
                @if let Some(emulated) = emulated {
                    span class={ "badge " (super::tone_class(emulated.finding.tone)) } {
                        (emulated.finding.tone.sign()) " " (emulated.finding.verdict)
                    }
                    " " (emulated.finding.here)
                } @else { "–" }
            }
            td.why data-label="Why" {
                @if let Conclusion::Open { why: OpenReason::Disagree, .. } = conclusion {
                    "Open: the instruments disagree. "
                }
                (claim.verdict.why)
                @if let Some(marks) = marks { span.dim { "; " (marks) } }
            }
        }
    }
}
