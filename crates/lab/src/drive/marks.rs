//! The marks that the warnings of `drover load` mean.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::result::{number, sum};
use crate::model::Mark;

/// Below this share, requests that are late or not sent, and time in which the generator stands still, are only a
/// warning.
const OFTEN: f64 = 0.01;

impl Mark {
    /// The code of each warning of `drover load`, and the mark that it means. A test compares the codes with those of
    /// the generator.
    pub const OF_WARNINGS: &[(&str, Mark)] = &[
        ("generator-saturated", Mark::GeneratorLimited),
        ("generator-stalled", Mark::Stalled),
        ("late-starts", Mark::Late),
        ("late-reads", Mark::Late),
        ("unsent-generator-behind", Mark::GeneratorLimited),
        ("unsent-no-connection", Mark::Warned),
        ("responses-after-window", Mark::Warned),
        ("requests-failed", Mark::Errors),
        ("status-not-2xx", Mark::Errors),
        ("unsolicited-responses", Mark::Errors),
        ("connections-not-accepted", Mark::Warned),
        ("connects-failed", Mark::Errors),
        ("idle-lost", Mark::Warned),
        ("interrupted", Mark::Warned),
        ("threads-unused", Mark::Warned),
        ("descriptors-short", Mark::Warned),
        ("ports-short", Mark::Warned),
        ("entries-not-sent", Mark::Warned),
        ("entries-changed", Mark::Warned),
        ("tls-keys-written", Mark::Warned),
        ("processes-lost", Mark::Warned),
        ("streams-limited", Mark::Warned),
        ("windows-apart", Mark::Warned),
        ("schedules-mixed", Mark::Warned),
    ];

    /// The mark that a warning with this code means; `None` for a code that is not known.
    #[must_use]
    pub fn of(code: &str) -> Option<Mark> {
        let found = Mark::OF_WARNINGS.iter().find(|(known, _)| *known == code);
        found.map(|(_, mark)| *mark)
    }
}

/// From this share of the offered rate on, a subject has answered all.
const ALL: f64 = 0.99;

/// The marks of a result (`drover.load/3`).
pub(super) fn marks(result: &Value) -> BTreeSet<Mark> {
    let mut marks = BTreeSet::new();
    let offered = number(result, "/offered_rate");
    if offered > 0.0 && number(result, "/achieved_rate") >= ALL * offered {
        marks.insert(Mark::AnsweredAll);
    }
    if result.pointer("/client/saturated") == Some(&Value::Bool(true)) {
        marks.insert(Mark::GeneratorLimited);
    }
    if sum(&result["errors"]) + sum(&result["unexpected_status"]) > 0.0 {
        marks.insert(Mark::Errors);
    }
    for (code, count) in warnings(result) {
        let mark = Mark::of(code).unwrap_or(Mark::Warned);
        let matters = match mark {
            Mark::Late | Mark::GeneratorLimited => count > OFTEN * number(result, "/requests"),
            Mark::Stalled => {
                number(result, "/client/paused_us") > OFTEN * 1e6 * number(result, "/duration_s")
            }
            _ => true,
        };
        marks.insert(if matters { mark } else { Mark::Warned });
    }
    marks
}

/// The codes of a result's warnings with their counts. A warning without a count is about all requests.
fn warnings(result: &Value) -> BTreeMap<&str, f64> {
    let mut counts = BTreeMap::new();
    for warning in result["warnings"].as_array().into_iter().flatten() {
        let code = warning["code"].as_str().unwrap_or_default();
        *counts.entry(code).or_insert(0.0) += warning["count"].as_f64().unwrap_or(f64::INFINITY);
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(requests: u32, paused_us: f64, warnings: Value) -> Value {
        json!({
            "duration_s": 2.0, "requests": requests, "client": { "paused_us": paused_us },
            "warnings": warnings,
        })
    }

    fn warning(code: &str, count: Option<u64>) -> Value {
        json!({ "code": code, "count": count, "text": "99 of 100 requests failed" })
    }

    #[test]
    fn who_answers_what_is_offered_may_be_able_to_do_more() {
        let at = |offered: Value, achieved: f64| {
            marks(&json!({ "offered_rate": offered, "achieved_rate": achieved, "warnings": [] }))
        };
        assert_eq!(at(json!(1000.0), 995.0), [Mark::AnsweredAll].into());
        assert_eq!(at(json!(1000.0), 900.0), BTreeSet::new());
        assert_eq!(at(Value::Null, 900.0), BTreeSet::new());
    }

    /// The text decides nothing, and a code of another version is a warning.
    #[test]
    fn every_warning_is_a_mark() {
        for (code, mark) in Mark::OF_WARNINGS {
            let found = marks(&result(100, 1e6, json!([warning(code, Some(50))])));
            assert_eq!(found, BTreeSet::from([*mark]), "{code}");
        }
        let unknown = result(100, 0.0, json!([warning("new", None)]));
        assert_eq!(marks(&unknown), BTreeSet::from([Mark::Warned]));
    }

    #[test]
    fn errors_and_unexpected_statuses_are_a_mark_without_a_warning() {
        for name in ["errors", "unexpected_status"] {
            let mut found = result(100, 0.0, json!([]));
            assert_eq!(marks(&found), BTreeSet::new());
            found[name] = json!({ "404": 1, "reset": 0 });
            assert_eq!(marks(&found), BTreeSet::from([Mark::Errors]), "{name}");
        }
    }

    /// One request in a thousand does not change a rate or a mean, and hardly a percentile.
    #[test]
    fn what_is_rare_is_a_warning_and_no_more() {
        let warnings = json!([
            warning("late-starts", Some(7)),
            warning("generator-stalled", None),
            warning("unsent-generator-behind", Some(8)),
        ]);
        let rare = result(7000, 1e4, warnings.clone());
        assert_eq!(marks(&rare), BTreeSet::from([Mark::Warned]));
        let frequent = BTreeSet::from([Mark::GeneratorLimited, Mark::Late, Mark::Stalled]);
        assert_eq!(marks(&result(600, 3e4, warnings)), frequent);
    }

    /// The warnings of several processes, of which each has a part of the requests.
    #[test]
    fn the_counts_of_a_code_add_up() {
        let late = |count| warning("late-starts", Some(count));
        let rare = result(1000, 0.0, json!([late(4), late(5)]));
        assert_eq!(marks(&rare), BTreeSet::from([Mark::Warned]));
        let frequent = result(1000, 0.0, json!([late(6), late(5)]));
        assert_eq!(marks(&frequent), BTreeSet::from([Mark::Late]));
    }
}
