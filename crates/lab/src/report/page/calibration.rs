//! The result of `drover lab calibrate`: how often equal servers seem to differ on this machine, and which difference
//! a number of rounds finds.

use maud::{Markup, html};

use crate::calibrate::table::BOUNDS;
use crate::calibrate::{Calibration, FILE, MetricNoise, SlowedServer};
use crate::report::model::Report;
use crate::report::model::words::{list, number};

/// The section's text.
pub(super) fn render(report: &Report) -> Markup {
    html! {
        @if let Some(fault) = &report.calibration_fault {
            p { strong { "The calibration cannot be read. " } (fault) }
            p { code { "drover lab calibrate" } " writes it anew." }
        } @else if let Some(found) = &report.calibration {
            @if !report.calibration_differences.is_empty() {
                p.banner {
                    "The calibration was made under other circumstances: " (list(&report.calibration_differences)) "."
                }
            }
            (of(found))
        } @else {
            p {
                "This machine was not calibrated: how often equal subjects seem to differ here, and which "
                "difference a number of rounds can find, is not known. " code { "drover lab calibrate" }
                " measures it; its " code { (FILE) } " is read from the session's folder or the "
                "one above."
            }
        }
    }
}

fn of(found: &Calibration) -> Markup {
    html! {
        @if found.metrics.is_empty() {
            p { "This machine was calibrated, and nothing was found: " code { (FILE) } " has no metric." }
        } @else {
            p.small {
                "One server was measured under two names. False alarms are the random splits in which the two "
                "seemed to differ; the test promises " (percent(found.size)) ". "
                "The last columns have the smallest difference that " (percent(found.power))
                " of experiments with so many rounds find. From " code { (FILE) } "."
            }
            div.scroll { (noise(&found.metrics)) }
            @if found.metrics.iter().any(|it| it.limited > 0) { p.small { (BOUNDS) } }
        }
        @if !found.slowed.is_empty() {
            p.small {
                "Servers that spin for a known share of their CPU time on each request, and how often they "
                "were found (in brackets: as predicted):"
            }
            div.scroll { (slowed_servers(&found.slowed)) }
        }
    }
}

fn noise(metrics: &[MetricNoise]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th { "Load" } th { "Metric" } th.n { "Median" } th.n { "False alarms" }
                    th.n { "Varies within rounds" } th.n { "between rounds" }
                    @for it in &metrics[0].smallest { th.n { (it.rounds) " rounds find" } }
                }
            }
            tbody {
                @for row in metrics {
                    tr {
                        td { (row.workload) }
                        td { (row.title) }
                        td.n {
                            (number(row.median)) " " (row.unit)
                            @if row.limited > 0 { " *" }
                        }
                        td.n { (percent(row.false_alarms)) }
                        td.n { (percent(row.within_rounds)) }
                        td.n { (percent(row.between_rounds)) }
                        @for it in &row.smallest { td.n { (number(it.percent)) " %" } }
                    }
                }
            }
        }
    }
}

fn slowed_servers(slowed: &[SlowedServer]) -> Markup {
    let longest = slowed.iter().max_by_key(|it| it.found.len());
    html! {
        table {
            thead {
                tr {
                    th { "Load" } th { "Metric" } th.n { "Slower by" } th.n { "Measured (95 %)" }
                    @for it in longest.into_iter().flat_map(|it| &it.found) { th.n { (it.rounds) " rounds" } }
                }
            }
            tbody {
                @for row in slowed {
                    tr {
                        td { (row.workload) }
                        td { (row.metric) }
                        td.n { (number(row.percent)) " %" }
                        td.n {
                            (number(row.measured_percent)) " % ("
                            (number(row.interval_percent.0)) " … " (number(row.interval_percent.1)) ")"
                        }
                        @for it in &row.found {
                            td.n { (percent(it.found)) " (" (percent(it.predicted)) ")" }
                        }
                    }
                }
            }
        }
    }
}

/// A share in percent.
fn percent(share: f64) -> String {
    format!("{} %", number(100.0 * share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Builder, calibration};

    #[test]
    fn a_calibration_is_a_table() {
        let mut report = Report::of(&Builder::new().judged());
        report.calibration = Some(calibration());
        let text = render(&report).into_string();
        for part in [
            "promises 5 %",
            "4.75 %",
            "12.3 µs",
            "6 rounds find",
            "12 %",
            "(4.5 … 6.5)",
            "70 % (60 %)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut report = Report::of(&Builder::new().judged());
        assert!(render(&report).into_string().contains("was not calibrated"));
        let empty = Calibration { metrics: Vec::new(), slowed: Vec::new(), ..calibration() };
        report.calibration = Some(empty);
        assert!(render(&report).into_string().contains("has no metric"));
        report.calibration = None;
        report.calibration_fault = Some("x/calibration.json: no such version".to_owned());
        let text = render(&report).into_string();
        assert!(text.contains("cannot be read") && text.contains("no such version"), "{text}");
    }
}
