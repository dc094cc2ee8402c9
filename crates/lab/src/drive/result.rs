//! Turns the result of `drover load` into metrics and marks.

use std::collections::BTreeSet;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::Value;

use super::Driven;
use crate::model::Mark;

/// Reads a result (`drover.load/1`). A request that timed out counts with `timeout_us` microseconds.
///
/// An unexpected status counts as an error here, and not for the rate: a server that refuses quickly is not fast.
pub(super) fn read(result: &Value, timeout_us: f64) -> Driven {
    let number = |pointer: &str| result.pointer(pointer).and_then(Value::as_f64);
    let seconds = number("/duration_s").unwrap_or(0.0);
    let replies = number("/replies").unwrap_or(0.0);
    let unexpected = sum(&result["unexpected_status"]);
    let expected_share = if replies > 0.0 { 1.0 - unexpected / replies } else { 0.0 };
    let in_window = number("/achieved_rate").unwrap_or(0.0) * seconds;
    let bytes = number("/bytes/body").unwrap_or(0.0);
    let mut driven = Driven {
        seconds,
        events: in_window * expected_share,
        events_with_tail: replies * expected_share,
        // The load's count of bytes includes the tail: it is scaled to the window.
        bytes: if replies > 0.0 { bytes / replies * in_window } else { 0.0 },
        marks: marks(result),
        result: result.clone(),
        ..Driven::default()
    };
    if let Some(histogram) = result["histogram"].as_str().and_then(decode) {
        set_latencies(&mut driven, histogram, timeouts(result), timeout_us);
    }
    set_rates(&mut driven);
    set_errors(&mut driven, result);
    let mut set = |name: &str, pointer: &str| {
        if let Some(us) = number(pointer) {
            driven.values.insert(name.to_string(), us / 1e3);
        }
    };
    set("first-byte-mean", "/first_byte_us/mean");
    set("first-byte-max", "/first_byte_us/max");
    set("connection-mean", "/connect_us/mean");
    driven
}

/// Sets the metrics that follow from the window's length and its events.
fn set_rates(driven: &mut Driven) {
    if driven.seconds > 0.0 {
        let (events, bytes) = (driven.events / driven.seconds, driven.bytes / driven.seconds);
        driven.values.insert("reply-rate".to_string(), events);
        driven.values.insert("throughput".to_string(), bytes / 1e6);
    }
}

/// How many requests have timed out.
fn timeouts(result: &Value) -> u64 {
    result.pointer("/errors/client_timeout").and_then(Value::as_u64).unwrap_or(0)
}

fn set_errors(driven: &mut Driven, result: &Value) {
    let number = |pointer| number(result, pointer);
    let requests = number("/requests");
    let errors = sum(&result["errors"]) + sum(&result["unexpected_status"]);
    let tried = requests + number("/connections/failed");
    if tried > 0.0 {
        driven.values.insert("error-percent".to_string(), 100.0 * (errors / tried).min(1.0));
    }
    if requests > 0.0 {
        let hung = 100.0 * (timeouts(result) as f64 / requests).min(1.0);
        driven.values.insert("hung-percent".to_string(), hung);
    }
}

/// Sets the latencies, in milliseconds, from a histogram of nanoseconds. A request that timed out counts with the
/// time-out, because it took at least that long.
fn set_latencies(
    driven: &mut Driven,
    mut histogram: Histogram<u64>,
    timeouts: u64,
    timeout_us: f64,
) {
    if timeouts > 0 {
        histogram.saturating_record_n((timeout_us * 1e3) as u64, timeouts);
    }
    if histogram.is_empty() {
        return;
    }
    let mut set = |name: &str, nanoseconds: f64| {
        driven.values.insert(name.to_string(), nanoseconds / 1e6);
    };
    let quantile = |q: f64| histogram.value_at_quantile(q) as f64;
    set("latency-mean", histogram.mean());
    set("latency-median", quantile(0.5));
    set("latency-p90", quantile(0.9));
    set("latency-p99", quantile(0.99));
    set("latency-p99.9", quantile(0.999));
    set("latency-max", histogram.max() as f64);
}

fn decode(text: &str) -> Option<Histogram<u64>> {
    let engine = &base64::engine::general_purpose::STANDARD;
    let bytes = base64::Engine::decode(engine, text).ok()?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// The sum of an object's numbers.
fn sum(object: &Value) -> f64 {
    object.as_object().map_or(0.0, |it| it.values().filter_map(Value::as_f64).sum())
}

/// The marks that the load generator's warnings mean.
fn marks(result: &Value) -> BTreeSet<Mark> {
    let mut marks = BTreeSet::new();
    if result.pointer("/client/saturated") == Some(&Value::Bool(true)) {
        marks.insert(Mark::GeneratorLimited);
    }
    if sum(&result["errors"]) + sum(&result["unexpected_status"]) > 0.0 {
        marks.insert(Mark::Errors);
    }
    let warnings = result["warnings"].as_array();
    for warning in warnings.into_iter().flatten().filter_map(Value::as_str) {
        let mark = mark_of(warning);
        let matters = match mark {
            Mark::Late | Mark::GeneratorLimited => {
                count_of(warning) > OFTEN * number(result, "/requests")
            }
            Mark::Stalled => {
                number(result, "/client/paused_us") > OFTEN * 1e6 * number(result, "/duration_s")
            }
            _ => true,
        };
        marks.insert(if matters { mark } else { Mark::Warned });
    }
    marks
}

/// Below this share, requests that are late or not sent, and time in which the generator stands still, are only a
/// warning.
const OFTEN: f64 = 0.01;

/// The number of requests at the beginning of a warning. A warning without a number is about all requests.
fn count_of(warning: &str) -> f64 {
    warning.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::INFINITY)
}

/// A number of the load's result; 0 if the result lacks it.
fn number(result: &Value, pointer: &str) -> f64 {
    result.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

/// The mark that a warning means. `drover load`'s words of the warning decide.
fn mark_of(warning: &str) -> Mark {
    let known = [
        ("the generator was the bottleneck", Mark::GeneratorLimited),
        ("the generator fell behind", Mark::GeneratorLimited),
        ("stood still for", Mark::Stalled),
        ("started more than 1 ms late", Mark::Late),
        ("were read more than 1 ms late", Mark::Late),
        ("requests failed", Mark::Errors),
        ("have a status other than", Mark::Errors),
        ("a response that nobody had asked for", Mark::Errors),
        ("attempts to connect failed", Mark::Errors),
    ];
    let found = known.iter().find(|(words, _)| warning.contains(words));
    found.map_or(Mark::Warned, |(_, mark)| *mark)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> Value {
        json!({
            "duration_s": 2.0, "achieved_rate": 500.0, "requests": 1210, "replies": 1100,
            "unexpected_status": { "404": 110 }, "errors": { "client_timeout": 10, "bad_body": null },
            "bytes": { "body": 1_100_000 }, "connections": { "failed": 0 },
            "connect_us": { "mean": 250.0 }, "client": { "saturated": false }, "warnings": [],
        })
    }

    #[test]
    fn an_unexpected_status_is_an_error_and_no_reply() {
        let driven = read(&result(), 1e6);
        assert_eq!(driven.values["reply-rate"], 450.0);
        assert_eq!(driven.events, 900.0);
        assert_eq!(driven.values["throughput"], 0.5);
        assert_eq!(driven.values["error-percent"], 100.0 * 120.0 / 1210.0);
        assert_eq!(driven.values["connection-mean"], 0.25);
        assert_eq!(driven.marks, BTreeSet::from([Mark::Errors]));
    }

    #[test]
    fn a_run_without_replies_has_a_rate_of_zero() {
        let mut nothing = result();
        nothing["achieved_rate"] = json!(0.0);
        nothing["replies"] = json!(0);
        nothing["unexpected_status"] = json!({});
        let driven = read(&nothing, 1e6);
        assert_eq!(driven.values["reply-rate"], 0.0);
        assert_eq!(driven.values.get("latency-mean"), None);
    }

    #[test]
    fn time_outs_are_latencies_of_at_least_the_time_out() {
        let mut driven = Driven::default();
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        histogram.record_n(1_000_000, 90).unwrap();
        set_latencies(&mut driven, histogram, 10, 5e6);
        assert!((driven.values["latency-median"] - 1.0).abs() < 0.01);
        assert!((driven.values["latency-p99"] - 5000.0).abs() < 10.0, "{driven:?}");
        assert!((driven.values["latency-mean"] - 500.9).abs() < 1.0, "{driven:?}");
    }

    /// Every warning of `drover load` has a mark. A warning about the generator, or about errors, has a mark of its
    /// own.
    #[test]
    fn every_warning_is_a_mark() {
        let marks = [
            (
                "the generator was the bottleneck: a thread had work for 99 %",
                Mark::GeneratorLimited,
            ),
            ("the generator itself stood still for 0.50 s (stopped)", Mark::Stalled),
            ("7 requests started more than 1 ms late by the generator's own fault", Mark::Late),
            ("3 responses were read more than 1 ms late, by up to 2.0 ms", Mark::Late),
            (
                "3 of 9 scheduled requests were not sent: no connection was free for them",
                Mark::Warned,
            ),
            ("3 of 9 requests failed; they are not in the latencies", Mark::Errors),
            ("9 of 9 responses came after the window and are not in the rate", Mark::Warned),
        ];
        for (warning, mark) in marks {
            assert_eq!(mark_of(warning), mark, "{warning}");
        }
        let mut warned = result();
        warned["warnings"] = json!(["something new"]);
        assert!(read(&warned, 1e6).marks.contains(&Mark::Warned));
    }

    /// One request in a thousand does not change a rate or a mean, and hardly a percentile.
    #[test]
    fn what_is_rare_is_a_warning_and_no_more() {
        let late = "7 requests started more than 1 ms late by the generator's own fault";
        let still = "the generator itself stood still for 0.01 s (stopped, or without a CPU)";
        let not_sent = "8 of 7008 scheduled requests were not sent: the generator fell behind";
        let marks = |requests: u32, paused_us: f64| {
            let mut measured = result();
            measured["requests"] = json!(requests);
            measured["unexpected_status"] = json!({});
            measured["errors"] = json!({});
            measured["client"]["paused_us"] = json!(paused_us);
            measured["warnings"] = json!([late, still, not_sent]);
            super::marks(&measured)
        };
        assert_eq!(marks(7000, 1e4), BTreeSet::from([Mark::Warned]));
        assert_eq!(
            marks(600, 3e4),
            BTreeSet::from([Mark::GeneratorLimited, Mark::Late, Mark::Stalled])
        );
    }
}
