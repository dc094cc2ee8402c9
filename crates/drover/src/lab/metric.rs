//! What is read off a run: every number that a figure plots or a claim is about.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::results::Sample;
use super::trace::Stage;

/// A number that each successful run yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Complete, correct replies per second of the measured window.
    ReplyRate,
    /// The server's CPU time, user and system, per second of the measured window.
    CpuPercent,
    /// The server's CPU time per reply.
    CpuPerReply,
    /// Mean response time, counted from the scheduled start of a request.
    LatencyMean,
    /// Median response time, counted likewise.
    LatencyMedian,
    /// 99th percentile of the response time, counted likewise.
    LatencyP99,
    /// Bytes of the bodies of complete replies per second of the measured window.
    Throughput,
    /// The server's CPU time per megabyte of such bodies.
    CpuPerMegabyte,
    /// Bytes of such bodies per second of the server's CPU time.
    PerCpuSecond,
    /// How long a read waited for a reader, the mean over all reads of a trace.
    QueueTime,
    /// How long a read was under way, likewise.
    ReadTime,
    /// 99th percentile over requests of their longest single read, waiting included.
    LongestRead,
    /// The share of requests that have a read which took too long.
    LateRequests,
    /// How busy the modelled disk was in the measured window, the mean over its spindles.
    DiskPercent,
}

impl Metric {
    /// Every metric, in the order of the table of points.
    pub const ALL: [Metric; 14] = [
        Metric::ReplyRate,
        Metric::CpuPercent,
        Metric::CpuPerReply,
        Metric::LatencyMean,
        Metric::LatencyMedian,
        Metric::LatencyP99,
        Metric::Throughput,
        Metric::CpuPerMegabyte,
        Metric::PerCpuSecond,
        Metric::QueueTime,
        Metric::ReadTime,
        Metric::LongestRead,
        Metric::LateRequests,
        Metric::DiskPercent,
    ];

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Metric::ReplyRate => "Reply rate",
            Metric::CpuPercent => "CPU use",
            Metric::CpuPerReply => "CPU per reply",
            Metric::LatencyMean => "Mean response time",
            Metric::LatencyMedian => "Median response time",
            Metric::LatencyP99 => "99 % response time",
            Metric::Throughput => "Throughput",
            Metric::CpuPerMegabyte => "CPU per megabyte",
            Metric::PerCpuSecond => "Bytes per CPU time",
            Metric::QueueTime => "Wait of a read for a reader",
            Metric::ReadTime => "Duration of a read",
            Metric::LongestRead => "99 % longest read",
            Metric::LateRequests => "Late requests",
            Metric::DiskPercent => "Disk use",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::ReplyRate => "replies/s",
            Metric::CpuPercent | Metric::DiskPercent | Metric::LateRequests => "%",
            Metric::QueueTime | Metric::ReadTime | Metric::LongestRead => "ms",
            Metric::CpuPerReply => "µs",
            Metric::Throughput => "MB/s",
            Metric::PerCpuSecond => "MB per CPU second",
            Metric::CpuPerMegabyte => "ms",
            Metric::LatencyMean | Metric::LatencyMedian | Metric::LatencyP99 => "ms",
        }
    }

    /// Its value in one run; `None` if the run does not know it.
    pub fn of(self, sample: &Sample) -> Option<f64> {
        let load = |pointer: &str| sample.load.pointer(pointer).and_then(Value::as_f64);
        let latency = |key: &str| Some(load(&format!("/latency_us/{key}"))? / 1000.0);
        match self {
            Metric::ReplyRate => load("/achieved_rate"),
            Metric::CpuPercent => Some(100.0 * sample.server_cpu_s / sample.window_s),
            Metric::CpuPerReply => {
                let replies = load("/replies").filter(|replies| *replies > 0.0)?;
                Some(1e6 * sample.server_cpu_s / replies)
            }
            Metric::LatencyMean => latency("mean"),
            Metric::LatencyMedian => latency("p50"),
            Metric::LatencyP99 => latency("p99"),
            Metric::Throughput => megabytes_per_second(sample),
            Metric::CpuPerMegabyte => {
                let rate = megabytes_per_second(sample).filter(|rate| *rate > 0.0)?;
                Some(1e3 * sample.server_cpu_s / sample.window_s / rate)
            }
            Metric::PerCpuSecond => {
                let megabytes = megabytes_per_second(sample)? * sample.window_s;
                (sample.server_cpu_s > 0.0).then(|| megabytes / sample.server_cpu_s)
            }
            Metric::QueueTime => sample.stages.as_ref()?.mean_per_read(Stage::Queue),
            Metric::ReadTime => sample.stages.as_ref()?.mean_per_read(Stage::Read),
            Metric::LongestRead => sample.stages.as_ref()?.p99(Stage::Longest),
            Metric::LateRequests => sample.stages.as_ref()?.late_percent(),
            Metric::DiskPercent => sample.disk.as_ref()?.get("utilisation_percent")?.as_f64(),
        }
    }
}

/// The rate of replies in the window times the mean length of all bodies: the load generator counts
/// the bytes that come after the window, too.
fn megabytes_per_second(sample: &Sample) -> Option<f64> {
    let load = |pointer: &str| sample.load.pointer(pointer).and_then(Value::as_f64);
    let replies = load("/replies").filter(|replies| *replies > 0.0)?;
    Some(load("/achieved_rate")? * load("/bytes/body")? / replies / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metrics_are_read_off_a_sample() {
        let sample = Sample {
            server_cpu_s: 0.1,
            window_s: 2.0,
            disk: Some(json!({"utilisation_percent": 99.0})),
            load: json!({"achieved_rate": 500.0, "replies": 1000, "bytes": {"body": 4_000_000},
                         "latency_us": {"mean": 250.0, "p50": 500, "p99": null}}),
            ..Sample::default()
        };
        let values = Metric::ALL.map(|metric| metric.of(&sample));
        let mut expected = [Some(500.0), Some(5.0), Some(100.0), Some(0.25), Some(0.5)].to_vec();
        expected.extend([None, Some(2.0), Some(25.0), Some(40.0)]);
        expected.extend([None, None, None, None, Some(99.0)]);
        assert_eq!(values.as_slice(), expected);
    }

    #[test]
    fn a_run_without_replies_has_no_cpu_per_reply() {
        let sample = Sample { window_s: 1.0, load: json!({"replies": 0}), ..Sample::default() };
        assert_eq!(Metric::CpuPerReply.of(&sample), None);
    }
}
