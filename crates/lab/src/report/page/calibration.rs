//! What `drover lab calibrate` has found: how often equal servers seem to differ on this machine, and
//! which difference so many rounds find.

use maud::{Markup, html};
use serde_json::Value;

use crate::report::model::words::number;

/// The section's text; `found` is what `calibration.json` has.
pub(super) fn render(found: Option<&Value>) -> Markup {
    let metrics = found.map_or(&[][..], |found| list(&found["metrics"]));
    let slowed = found.map_or(&[][..], |found| list(&found["slowed"]));
    html! {
        @if found.is_none() {
            p {
                "This machine was not calibrated: how often equal subjects seem to differ here, and which "
                "difference a number of rounds can find, is not known. " code { "drover lab calibrate" }
                " measures it; its " code { "calibration.json" } " is read from the session's folder or the "
                "one above."
            }
        } @else if metrics.is_empty() {
            p { "This machine was calibrated, and nothing was found: " code { "calibration.json" } " has no metric." }
        } @else {
            p.small {
                "One server was measured under two names. False alarms are the random splits in which the two "
                "seemed to differ; the test promises " (percent(&found.unwrap_or(&Value::Null)["size"])) ". "
                "The last columns have the smallest difference that 80 % of experiments with so many rounds "
                "find. From " code { "calibration.json" } "."
            }
            div.scroll { (noise(metrics)) }
            @if !slowed.is_empty() {
                p.small {
                    "Servers that spin for a known share of their CPU time on each request, and how often they "
                    "were found (in brackets: as predicted):"
                }
                div.scroll { (slowed_servers(slowed)) }
            }
        }
    }
}

fn noise(metrics: &[Value]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th { "Load" } th { "Metric" } th.n { "Median" } th.n { "False alarms" }
                    th.n { "Varies within rounds" } th.n { "between rounds" }
                    @for it in list(&metrics[0]["smallest"]) { th.n { (words(&it["rounds"])) " rounds find" } }
                }
            }
            tbody {
                @for row in metrics {
                    tr {
                        td { (words(&row["workload"])) }
                        td { (words(&row["title"])) }
                        td.n {
                            @if row["limited"].as_u64().is_some_and(|runs| runs > 0) { "≥ " }
                            (words(&row["median"])) " " (words(&row["unit"]))
                        }
                        td.n { (percent(&row["false_alarms"])) }
                        td.n { (percent(&row["within_rounds"])) }
                        td.n { (percent(&row["between_rounds"])) }
                        @for it in list(&row["smallest"]) { td.n { (words(&it["percent"])) " %" } }
                    }
                }
            }
        }
    }
}

fn slowed_servers(slowed: &[Value]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th { "Load" } th { "Metric" } th.n { "Slower by" } th.n { "Measured (95 %)" }
                    @for it in list(&slowed[0]["found"]) { th.n { (words(&it["rounds"])) " rounds" } }
                }
            }
            tbody {
                @for row in slowed {
                    tr {
                        td { (words(&row["workload"])) }
                        td { (words(&row["metric"])) }
                        td.n { (words(&row["percent"])) " %" }
                        td.n {
                            (words(&row["measured_percent"])) " % ("
                            (words(&row["interval_percent"][0])) " … " (words(&row["interval_percent"][1])) ")"
                        }
                        @for it in list(&row["found"]) {
                            td.n { (percent(&it["found"])) " (" (percent(&it["predicted"])) ")" }
                        }
                    }
                }
            }
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text or a number; a dash for anything else.
fn words(value: &Value) -> String {
    match (value.as_str(), value.as_f64()) {
        (Some(text), _) => text.to_owned(),
        (_, Some(value)) => number(value),
        _ => "–".to_owned(),
    }
}

/// A share in percent.
fn percent(value: &Value) -> String {
    value.as_f64().map_or("–".to_owned(), |share| format!("{} %", number(100.0 * share)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_calibration_is_a_table_and_its_absence_is_said() {
        assert!(render(None).into_string().contains("was not calibrated"));
        assert!(render(Some(&json!({}))).into_string().contains("has no metric"));
        let found = json!({
            "size": 0.05,
            "metrics": [{
                "workload": "saturation", "metric": "cpu-per-reply", "title": "CPU per response", "unit": "µs",
                "median": 12.34, "limited": 0, "false_alarms": 0.0475, "within_rounds": 0.05,
                "between_rounds": 0.1, "smallest": [{ "rounds": 6, "percent": 12.0 }],
            }],
            "slowed": [{
                "workload": "saturation", "metric": "cpu-per-reply", "percent": 5.0,
                "measured_percent": 5.5, "interval_percent": [4.5, 6.5],
                "found": [{ "rounds": 6, "found": 0.7, "predicted": 0.6 }],
            }],
        });
        let text = render(Some(&found)).into_string();
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
        // Of another version: what is not there is a dash.
        assert!(render(Some(&json!({ "metrics": [{}] }))).into_string().contains("–"));
    }
}
