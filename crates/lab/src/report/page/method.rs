//! The section about method and calibration, once for all experiments.

use maud::{Markup, html};

use super::{calibration, folded, heading};
use crate::analysis::FEWEST_ROUNDS;
use crate::claims::family::FALSE_ALARMS;
use crate::report::model::Report;
use crate::report::model::words::{MARKS, mark, mark_meaning, number};
use crate::report::vendor::LIBRARIES;

/// The method and the calibration.
pub(super) fn render(report: &Report) -> Markup {
    let rest = html! {
            ul {
                li {
                    "Every cell, a subject under one level of every factor, runs once in each round, in random "
                    "order (seed " (report.session.seed) "). Each run starts a new subject."
                }
                li {
                    "Rounds are what is counted. Comparisons are paired by round, ratios are taken of "
                    "logarithms, and intervals of 95 % are Student's t over rounds; levels that are judged "
                    "together have simultaneous bounds. Fewer than " (FEWEST_ROUNDS) " rounds are not judged."
                }
                li {
                    "Medians in tables and figures have order-statistic intervals of at least 95 %."
                }
                li {
                    "The verdicts of an experiment are those of a family: the probability that any of them is wrong by noise alone is "
                    (number(100.0 * FALSE_ALARMS)) " % (Holm). The shown interval is each effect's own, of "
                    "95 %, so that a verdict may stay open although its interval does not reach the bound."
                }
                li {
                    "A run with a reason to doubt it is marked. What a mark makes of a value:"
                    dl.marks {
                        @for one in MARKS { dt { (mark(one)) } dd { (mark_meaning(one)) } }
                    }
                }
            }
            (heading(3, "verdicts", "Verdicts"))
            (verdicts())
            (heading(3, "calibration", "Calibration"))
            (calibration::render(report))
    };
    html! { section { (folded("method", "Method and calibration", &html! {}, &rest)) } }
}

fn verdicts() -> Markup {
    let words = [
        ("holds", "The whole interval lies in the region that the claim names."),
        (
            "same direction, smaller / larger",
            "There is an effect on the claim's side, outside the region.",
        ),
        ("smaller or none", "The effect is smaller than claimed; whether there is one is open."),
        ("no effect", "The effect is nothing, within a margin."),
        ("opposite", "The effect is on the other side of nothing."),
        (
            "differs: less / more",
            "The claim is that nothing differs, or names a value; the effect is beyond it.",
        ),
        ("fails", "The subject failed where the claim says that it serves."),
        ("too noisy", "The interval reaches across an end of the region; more rounds may decide."),
        ("not testable", "The samples do not allow a verdict, however many there are."),
        ("not measured", "Nothing was measured that the claim is about."),
    ];
    html! { dl.marks { @for (word, meaning) in words { dt { (word) } dd { (meaning) } } } }
}

/// A command in the form that a shell reads.
fn shell(command: &[String]) -> String {
    // A word with a NUL byte cannot be quoted; no command line has one.
    shlex::try_join(command.iter().map(String::as_str)).unwrap_or_default()
}

/// The versions and licences of the page, and the command that repeats the session.
pub(super) fn colophon(report: &Report) -> Markup {
    html! {
        footer {
            (heading(2, "about", "About this page"))
            p { "Repeat the session:" }
            pre { (shell(&report.session.command)) }
            p.small {
                "One file without a network. Figures are drawn by "
                @for (at, library) in LIBRARIES.iter().enumerate() {
                    @if at > 0 { " and " }
                    (library.name) " " (library.version)
                }
                "; their licences:"
            }
            @for library in &LIBRARIES {
                details { summary { (library.name) } pre.small { (library.licence) } }
            }
        }
    }
}
