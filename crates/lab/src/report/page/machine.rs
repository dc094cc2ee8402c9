//! The section about the machine on which the session ran.

use maud::{Markup, html};

use super::folded;
use crate::report::model::Report;

/// The environment, once for all experiments.
pub(super) fn render(report: &Report) -> Markup {
    let rest = html! {
            @if let Some(machine) = &report.machine {
                @for difference in &machine.differences {
                    p.banner { "Not all experiments ran on the same system: " (difference) "." }
                }
                dl {
                    dt { "kernel" } dd { (machine.kernel) }
                    @for (name, value) in &machine.facts { dt { (name) } dd { (value) } }
                    dt { "Drover" } dd { (report.session.version) ", binary " code { (machine.program) } }
                }
                p.small {
                    "Interrupt accounting off means that the kernel puts the time of interrupts, which do most "
                    "of the work of TCP, on the bill of whoever they interrupt. Steal accounting tells "
                    "whether time that the host took from this virtual machine is known."
                }
            } @else {
                p { "No experiment has begun: the machine was not looked at." }
            }
    };
    html! { section { (folded("machine", "The machine", &html! {}, &rest)) } }
}
