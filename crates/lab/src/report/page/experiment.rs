//! The section of one experiment.

use maud::{Markup, html};

use super::{effects, folded, heading, medians, section_id, tones};
use crate::journal::RUNS;
use crate::report::model::experiment::{ExperimentReport, ExperimentState};
use crate::report::model::figure::FigureReport;
use crate::report::model::words::counted;
use crate::report::{CLAIMS, SAMPLES};

/// The section. `at` is the experiment's index in the embedded data, `folder` the relative path to the session's
/// folder.
pub(super) fn render(at: usize, one: &ExperimentReport, folder: &str) -> Markup {
    let anchor = |part: &str| format!("{}--{part}", one.id);
    let beside = html! {
        (tones(one))
        @if let Some(question) = &one.question { p.lead { (question) } }
    };
    let rest = html! {
            @if let Some(source) = &one.source { p.source { (source) } }
            (state(one))
            @if !one.claims.is_empty() {
                (heading(3, &anchor("claims"), "Claims"))
                @for (number, claim) in one.claims.iter().enumerate() {
                    (effects::render(at, number, claim))
                }
            }
            @if one.has_begun() && !one.figures.is_empty() {
                (heading(3, &anchor("figures"), "Figures"))
                (hint(one))
                @for (number, it) in one.figures.iter().enumerate() { (figure(at, number, it)) }
            }
            @if one.runs > 0 {
                (heading(3, &anchor("medians"), "Medians"))
                (medians::table(one))
                (heading(3, &anchor("order"), "Run order"))
                p.small {
                    "Every run at its time, as a multiple of its cell's median: a machine that drifts, or is "
                    "disturbed for a while, shows as a slope or a step."
                }
                div.order data-experiment=(at) {}
            }
            (medians::failures(one, &anchor("failures")))
            @let has_setup = one.subjects.iter().any(|subject| !subject.setup.is_empty());
            @if one.method.is_some() || !one.differences.is_empty() || !one.notes.is_empty() || has_setup {
                (heading(3, &anchor("method"), "How it is done"))
                (method(one))
            }
            @if one.runs > 0 { (downloads(at, one, &anchor("data"), folder)) }
    };
    html! { section.experiment { (folded(&section_id(&one.id), &one.title, &beside, &rest)) } }
}

fn state(one: &ExperimentReport) -> Markup {
    html! {
        @match &one.state {
            ExperimentState::Complete => p.small {
                (counted(one.runs, "run")) ": " (counted(one.rounds as usize, "round")) " of "
                (counted(one.cells.len(), "cell")) "."
            },
            ExperimentState::Partial => p.banner {
                (one.runs) " of " (one.planned) " planned runs have ended (" (one.rounds) " rounds of "
                (one.cells.len()) " cells were planned): a time limit cut the others, the session ended, or \
                the lab could not measure them."
            },
            ExperimentState::NotBegun => p.banner { "Not begun." },
            ExperimentState::Refused { reason } => p.banner { "Not testable here: " (reason) },
        }
    }
}

fn hint(one: &ExperimentReport) -> Markup {
    let is_published = one.figures.iter().any(|figure| !figure.published.is_empty());
    html! {
        p.small {
            "Medians with intervals of at least 95 % as rules, every run as a small dot, and as a grey cross "
            "where it counts for nothing"
            @if is_published { "; the document's own values hollow and dashed" }
            ". Point at a figure, or reach it with the keyboard and use the arrow keys."
        }
        noscript { p.banner { "Figures need the page's script; the tables below have their values." } }
    }
}

fn figure(at: usize, number: usize, it: &FigureReport) -> Markup {
    html! {
        figure.plot data-experiment=(at) data-figure=(number) {
            (heading(4, &it.anchor, &format!("{} – {}", it.id, it.title)))
            div.tools {}
            div.canvas {}
            @if let Some(note) = &it.published_note {
                figcaption.small { "The document's values: " (note) }
            }
        }
    }
}

fn method(one: &ExperimentReport) -> Markup {
    html! {
        @if let Some(method) = &one.method { p { (method) } }
        @if !one.differences.is_empty() {
            p { "What differs from the published set-up:" }
            ul { @for difference in &one.differences { li { (difference) } } }
        }
        @for note in &one.notes { p.note { (note) } }
        @let titled = one.subjects.iter().filter(|it| it.title.is_some() || it.model);
        @let titled: Vec<_> = titled.collect();
        @if !titled.is_empty() {
            dl.marks {
                @for subject in titled {
                    dt { code { (subject.name) } }
                    dd {
                        (subject.title.as_deref().unwrap_or_default())
                        @if subject.model { " (a model)" }
                    }
                }
            }
        }
        (setups(one))
    }
}

/// How each server was started, folded.
fn setups(one: &ExperimentReport) -> Markup {
    let servers = || one.subjects.iter().filter(|subject| !subject.setup.is_empty());
    html! {
        @if servers().next().is_some() {
            details {
                summary { "How each server is started" }
                p.small { "A run fills in what stands in braces: its port, its folders and the levels." }
                @for subject in servers() {
                    p.small { code { (subject.name) } }
                    pre.small { (subject.setup) }
                }
            }
        }
    }
}

fn downloads(at: usize, one: &ExperimentReport, anchor: &str, folder: &str) -> Markup {
    let link = |name: &str| html! { a href={ (folder) (one.id) "/" (name) } { (name) } };
    html! {
        (heading(3, anchor, "Data"))
        p.downloads {
            button type="button" data-download=(at) hidden { "Download the samples as CSV" }
            " In the session's folder: "
            (link(SAMPLES)) ", " (link(CLAIMS)) ", and the journal " (link(RUNS))
            " with command lines and the load's own results."
        }
    }
}
