//! A claim of an experiment: the verdict with the effect that decides, and all effects folded below it.

use maud::{Markup, html};

use super::badge;
use crate::report::model::claim::{ClaimReport, RowReport};
use crate::report::model::words::number;
use crate::spec::claim::By;

/// The claim. `experiment` and `at` are its indices in the embedded data.
pub(super) fn render(experiment: usize, at: usize, claim: &ClaimReport) -> Markup {
    html! {
        article.claim id=(claim.anchor) {
            p.statement {
                a.anchor href={ "#" (claim.anchor) } { "(" (claim.id) ")" } " " (claim.text)
                @if claim.by == By::Ours { " " span.ours { "ours" } }
            }
            p.outcome {
                (badge(&claim.verdict)) " "
                @if let Some(row) = claim.deciding_row() {
                    @if row.interval.is_some() { b { (row.value_words()) } " " }
                    (row.subject_words()) @if !row.place.is_empty() { ", " (row.place) } " – "
                }
                (claim.verdict.why) "."
                @if let Some(row) = claim.deciding_row() {
                    @let marks = row.mark_words();
                    @if !marks.is_empty() { span.dim { " Marks: " (marks) "." } }
                }
            }
            p.small {
                "Judged: " (claim.effect) "; it counts as true at " b { (claim.criterion) }
                @if claim.published.is_some() {
                    "; the document measured " b { (claim.published_words()) }
                    @if let Some(note) = &claim.published_note { " (" (note) ")" }
                }
                "."
                @if let Some(source) = &claim.source { " " span.dim { (source) "." } }
                @if let Some(alone) = claim.alone.as_ref().filter(|_| claim.verdict.word != "too noisy") {
                    " By itself, without the report's other claims, the verdict would be “" (alone.word) "”."
                }
                @if let Some(p) = claim.adjusted_p { " p " (p_words(p)) " (Holm)." }
            }
            @if let Some(note) = &claim.note { p.small.note { (note) } }
            @if !claim.rows.is_empty() || !claim.also.is_empty() {
                details.rows data-experiment=(experiment) data-claim=(at) {
                    summary { "All effects (" (claim.rows.len() + claim.also.len()) ")" }
                    div.forest {}
                    (table(claim))
                    div.runs {}
                }
            }
        }
    }
}

fn p_words(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("= {}", number(p)) }
}

fn table(claim: &ClaimReport) -> Markup {
    let is_measured = |row: &&RowReport| !row.verdict.is_not_measured();
    let (further, missing): (Vec<&RowReport>, Vec<&RowReport>) =
        claim.also.iter().partition(is_measured);
    let missing: std::collections::BTreeSet<String> =
        missing.into_iter().map(RowReport::subject_words).collect();
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "Of" } th { "At" } th.n { "Effect (95 %)" } th.n { "Published" }
                        th.n { "Rounds" } th { "Verdict" } th { "Why" }
                    }
                }
                tbody {
                    @for (at, it) in claim.rows.iter().enumerate() {
                        (row(claim, it, claim.deciding == Some(at), false))
                    }
                    @for it in further { (row(claim, it, false, true)) }
                }
            }
        }
        @if !missing.is_empty() {
            p.small { "Further subjects, not measured: " (Vec::from_iter(missing).join(", ")) "." }
        }
    }
}

fn row(claim: &ClaimReport, row: &RowReport, decides: bool, is_further: bool) -> Markup {
    let marks = row.mark_words();
    let is_same = row.verdict.why == claim.verdict.why;
    let why = (!is_same).then_some(row.verdict.why.clone());
    let why: Vec<String> = why.into_iter().chain((!marks.is_empty()).then_some(marks)).collect();
    html! {
        tr.decides[decides].further[is_further] {
            td {
                (row.subject_words())
                @if decides { " " span.ours { "decides" } }
                @if is_further { " " span.ours { "further" } }
            }
            td { (row.place) }
            td.n { (row.value_words()) }
            td.n { (row.published.map_or("–".to_owned(), number)) }
            td.n { (row.rounds) }
            td { (badge(&row.verdict)) }
            td.why { (why.join("; ")) }
        }
    }
}
