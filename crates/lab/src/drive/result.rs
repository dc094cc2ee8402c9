//! Turns the result of `drover load` into metrics.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use serde_json::Value;

use super::Driven;

/// Reads a result (`drover.load/3`). A request that timed out counts with `timeout_us` microseconds.
///
/// An unexpected status counts as an error here, and not for the rate: a server that refuses quickly is not fast.
pub(super) fn read(result: &Value, timeout_us: f64) -> Driven {
    let number = |pointer: &str| result.pointer(pointer).and_then(Value::as_f64);
    let seconds = number("/duration_s").unwrap_or(0.0);
    let responses = number("/responses").unwrap_or(0.0);
    let unexpected = sum(&result["unexpected_status"]);
    let expected_share = if responses > 0.0 { 1.0 - unexpected / responses } else { 0.0 };
    let in_window = number("/achieved_rate").unwrap_or(0.0) * seconds;
    let bytes = number("/bytes/body").unwrap_or(0.0);
    let mut driven = Driven {
        seconds,
        events: in_window * expected_share,
        events_with_tail: responses * expected_share,
        // The load's count of bytes includes the tail: it is scaled to the window.
        handshakes: number("/tls/handshakes_in_window").unwrap_or(0.0),
        bytes: if responses > 0.0 { bytes / responses * in_window } else { 0.0 },
        result: result.clone(),
        ..Driven::default()
    };
    if let Some(histogram) = result["histogram"].as_str().and_then(decode) {
        set_latencies(&mut driven, histogram, timeouts(result), timeout_us);
    }
    set_rates(&mut driven);
    if let (Some(deviation), Some(mean)) =
        (number("/response_rate/stddev"), number("/response_rate/avg").filter(|mean| *mean > 0.0))
    {
        driven.values.insert("rate-variation".to_string(), 100.0 * deviation / mean);
    }
    set_errors(&mut driven, result);
    let mut set = |name: &str, pointer: &str| {
        if let Some(us) = number(pointer) {
            driven.values.insert(name.to_string(), us / 1e3);
        }
    };
    set("service-median", "/service_us/p50");
    set("first-byte-mean", "/first_byte_us/mean");
    set("first-byte-max", "/first_byte_us/max");
    set("connection-mean", "/connect_us/mean");
    set("handshake-median", "/handshake_us/p50");
    set("handshake-p99", "/handshake_us/p99");
    driven
}

/// Sets the metrics that follow from the window's length and its events.
fn set_rates(driven: &mut Driven) {
    if driven.seconds > 0.0 {
        let (events, bytes) = (driven.events / driven.seconds, driven.bytes / driven.seconds);
        driven.values.insert("response-rate".to_string(), events);
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
pub(super) fn sum(object: &Value) -> f64 {
    object.as_object().map_or(0.0, |it| it.values().filter_map(Value::as_f64).sum())
}

/// A number of the load's result; 0 if the result lacks it.
pub(super) fn number(result: &Value, pointer: &str) -> f64 {
    result.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> Value {
        json!({
            "duration_s": 2.0, "achieved_rate": 500.0, "requests": 1210, "responses": 1100,
            "unexpected_status": { "404": 110 }, "errors": { "client_timeout": 10, "bad_body": null },
            "bytes": { "body": 1_100_000 }, "connections": { "failed": 0 },
            "connect_us": { "mean": 250.0 }, "client": { "saturated": false }, "warnings": [],
        })
    }

    #[test]
    fn an_unexpected_status_is_an_error_and_no_response() {
        let driven = read(&result(), 1e6);
        assert_eq!(driven.values["response-rate"], 450.0);
        assert_eq!(driven.events, 900.0);
        assert_eq!(driven.values["throughput"], 0.5);
        assert_eq!(driven.values["error-percent"], 100.0 * 120.0 / 1210.0);
        assert_eq!(driven.values["connection-mean"], 0.25);
    }

    #[test]
    fn handshakes_have_times_and_a_count_of_the_window() {
        let mut result = result();
        assert_eq!(read(&result, 1e6).handshakes, 0.0);
        result["tls"] = json!({ "handshakes": 90, "resumed": 0, "handshakes_in_window": 80 });
        result["handshake_us"] = json!({ "p50": 500.0, "p99": 2000.0 });
        let driven = read(&result, 1e6);
        assert_eq!(driven.handshakes, 80.0);
        assert_eq!(driven.values["handshake-median"], 0.5);
        assert_eq!(driven.values["handshake-p99"], 2.0);
    }

    #[test]
    fn a_run_without_responses_has_a_rate_of_zero() {
        let mut nothing = result();
        nothing["achieved_rate"] = json!(0.0);
        nothing["responses"] = json!(0);
        nothing["unexpected_status"] = json!({});
        let driven = read(&nothing, 1e6);
        assert_eq!(driven.values["response-rate"], 0.0);
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
}
