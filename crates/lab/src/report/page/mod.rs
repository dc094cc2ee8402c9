//! The page: one file that opens from disk and needs no network.
//!
//! Everything but the figures is readable without the script. HTML is written by `maud`, which escapes every text, so
//! that no name of an experiment becomes an HTML element.

mod answers;
#[cfg(test)]
mod browser;
mod calibration;
mod claims;
mod data;
mod effects;
mod experiment;
mod machine;
mod medians;
mod method;
mod opening;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::model::Report;
use super::model::claim::{Tone, VerdictReport};
use super::model::words;
use super::vendor::LIBRARIES;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPTS: [&str; 3] = [
    include_str!("assets/charts.js"),
    include_str!("assets/figures.js"),
    include_str!("assets/page.js"),
];

/// The page of a report, for the session's folder.
#[must_use]
pub fn render(report: &Report) -> String {
    render_at("", report, &data::embed(report))
}

/// The page with its embedded `data`. `folder` is the relative path to the session's folder: empty, or with a slash
/// at its end.
fn render_at(folder: &str, report: &Report, data: &str) -> String {
    let title = format!("Drover lab, {}", report.session.preset);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "To the content" }
                (contents(report))
                main id="main" {
                    (head(report))
                    (opening::render(report))
                    (answers::render(report))
                    (claims::render(report))
                    (machine::render(report))
                    (method::render(report))
                    @for (at, one) in report.experiments.iter().enumerate() {
                        (experiment::render(at, one, folder))
                    }
                    (method::colophon(report))
                }
                script type="application/json" id="report-data" { (PreEscaped(data)) }
                @for library in &LIBRARIES {
                    script { (PreEscaped(library.script)) }
                }
                @for script in SCRIPTS {
                    script { (PreEscaped(script)) }
                }
            }
        }
    };
    page.into_string()
}

/// Two versions of the page: one for the session's folder, and one for the folder above it. `folder` is the name of
/// the session's folder, as a part of a URL.
pub(super) fn render_both(report: &Report, folder: &str) -> [String; 2] {
    let data = data::embed(report);
    ["", &format!("{folder}/")].map(|way| render_at(way, report, &data))
}

/// The table of contents. It stays in view.
fn contents(report: &Report) -> Markup {
    html! {
        nav.contents aria-label="Contents" {
            details open {
                summary { "Contents" }
                ol {
                    @if claims::are_there(report) { li { a href="#found" { "What was found" } } }
                    @if report.has_answers() {
                        li { a href="#answers" { "What to use here" } }
                    }
                    @if claims::are_there(report) { li { a href="#claims" { "All claims" } } }
                    li { a href="#machine" { "The machine" } }
                    li { a href="#method" { "Method and calibration" } }
                    @for one in &report.experiments {
                        li { a href={ "#" (section_id(&one.id)) } { (one.title) } (tones(one)) }
                    }
                }
            }
        }
    }
}

/// How many claims of an experiment were found true, untrue, or left open.
fn tones(experiment: &super::model::experiment::ExperimentReport) -> Markup {
    let count = |tone| experiment.claims.iter().filter(|one| one.verdict.tone == tone).count();
    html! {
        span.tones {
            @for tone in [Tone::For, Tone::Against, Tone::Open] {
                @if count(tone) > 0 {
                    span class=(tone_class(tone)) { (tone.sign()) (count(tone)) }
                }
            }
        }
    }
}

fn head(report: &Report) -> Markup {
    let session = &report.session;
    html! {
        header {
            h1 { "Drover lab" }
            @if let Some(machine) = &report.machine {
                p.machine { (machine.line) }
            }
            p.small {
                "Preset " b { (session.preset) } ", " (session.runs) " of " (session.planned)
                " runs in " (words::duration(session.took_s)) ", begun " (session.began)
                ", Drover " (session.version) "."
            }
            p.banner id="progress" role="status" hidden {}
            @if !session.is_complete {
                p.banner {
                    "This session is not complete: verdicts rest on the runs that have ended."
                }
            }
        }
    }
}

/// The id of an experiment's section. No other part of the page has that id.
fn section_id(id: &str) -> String {
    let own = [
        "about",
        "answers",
        "calibration",
        "claim-filters",
        "claims",
        "found",
        "machine",
        "main",
        "method",
        "progress",
    ];
    let is_own = own.contains(&id)
        || ["answer-", "report-data", "verdicts"].iter().any(|it| id.starts_with(it));
    if is_own { format!("experiment-{id}") } else { id.to_owned() }
}

/// A heading with a link to itself.
fn heading(level: u8, anchor: &str, text: &str) -> Markup {
    let link = html! { a.anchor href={ "#" (anchor) } aria-label="Link to this heading" { "#" } };
    html! {
        @match level {
            2 => h2 id=(anchor) { (text) " " (link) },
            3 => h3 id=(anchor) { (text) " " (link) },
            _ => h4 id=(anchor) { (text) " " (link) },
        }
    }
}

/// A part that is folded until its reader wants it: its heading, what stands beside it, and the rest. The script unfolds it for
/// those who follow a link into it.
fn folded(anchor: &str, title: &str, beside: &Markup, rest: &Markup) -> Markup {
    html! {
        details.fold {
            summary { (heading(2, anchor, title)) (beside) }
            (rest)
        }
    }
}

/// A verdict as a badge: a sign, a word and a colour.
fn badge(verdict: &VerdictReport) -> Markup {
    html! {
        span class={ "badge " (tone_class(verdict.tone)) } {
            (verdict.tone.sign()) " " (verdict.word)
        }
    }
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::For => "for",
        Tone::Against => "against",
        Tone::Open => "open",
    }
}

#[cfg(test)]
mod tests;
