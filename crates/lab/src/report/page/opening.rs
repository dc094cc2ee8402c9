//! The first screen: the largest effects that were found, how many claims are decided, and what would decide the rest.

use maud::{Markup, html};

use super::{claims, heading};
use crate::report::contrast::{Contrast, contrasts};
use crate::report::model::Report;
use crate::report::model::words;
use crate::report::rest;

/// The section; empty if there is no claim.
pub(super) fn render(report: &Report) -> Markup {
    if !claims::are_there(report) {
        return html! {};
    }
    let contrasts = contrasts(report);
    html! {
        section.opening {
            (heading(2, "found", "What was found"))
            @if !contrasts.is_empty() { (chart(&contrasts)) }
            (claims::decided(report))
            @if let Some(rest) = rest::rest(report) { p.small { (rest) } }
        }
    }
}

/// Sentences with bars beneath them. The bars are parts of the page, so that they need no script, and say nothing that the sentences
/// do not.
fn chart(contrasts: &[Contrast]) -> Markup {
    let most = contrasts.iter().map(|it| it.factor.high).fold(1.0, f64::max);
    let part = |factor: f64| 100.0 * factor.ln() / most.ln();
    let width =
        |from: f64, to: f64| format!("left:{:.2}%;width:{:.2}%", part(from), part(to) - part(from));
    html! {
        ol.contrasts {
            @for Contrast { sentence, anchor, factor } in contrasts {
                li {
                    a href={ "#" (anchor) } { (sentence) }
                    " " span.dim { "(" (words::range(factor.low, factor.high)) ")" }
                    div.bar aria-hidden="true" {
                        span.length style=(width(1.0, factor.value)) {}
                        span.interval style=(width(factor.low, factor.high)) {}
                    }
                }
            }
        }
        p.small {
            "The largest decided effect of each experiment, on a logarithmic scale from 1 to " (words::number(most))
            "; the rule at a bar's end is its interval of 95 %."
        }
    }
}
