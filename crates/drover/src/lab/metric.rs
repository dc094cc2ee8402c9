//! What is read off a run: every number that a figure plots or a claim is about.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::herd::Record;
use super::results::Sample;
use super::stats;
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
    /// Bytes written to the disk below the files per second of the measured window.
    DiskWrites,
    /// How long a connect(2) took, the shortest.
    ConnectMin,
    /// How long a connect(2) took, the median.
    ConnectMedian,
    /// How long a connect(2) took, the 99th percentile.
    ConnectP99,
    /// From a connect(2) until the last waiter slept again, the median.
    SettleTime,
    /// How often waiters were woken for a connection, by their voluntary context switches.
    WakeUps,
    /// The same per waiter: 1 means that everybody was.
    WakeUpShare,
    /// The same per waiter that looks on and takes nothing.
    OnlookerWakeUps,
    /// How often those were woken for a connection that take it.
    TakerWakeUps,
    /// How often a call that waits came back to user space for a connection.
    Returns,
    /// The waiters' CPU time per connection.
    CpuPerConnection,
    /// The waiters' CPU use while nothing happens.
    IdlePercent,
    /// How unevenly connections were taken: the coefficient of variation over the waiters.
    Imbalance,
}

impl Metric {
    /// Every metric, in the order of the table of points.
    pub const ALL: [Metric; 27] = [
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
        Metric::DiskWrites,
        Metric::ConnectMin,
        Metric::ConnectMedian,
        Metric::ConnectP99,
        Metric::SettleTime,
        Metric::WakeUps,
        Metric::WakeUpShare,
        Metric::OnlookerWakeUps,
        Metric::TakerWakeUps,
        Metric::Returns,
        Metric::CpuPerConnection,
        Metric::IdlePercent,
        Metric::Imbalance,
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
            Metric::DiskWrites => "Written to the disk",
            Metric::ConnectMin => "Shortest connect()",
            Metric::ConnectMedian => "Median connect()",
            Metric::ConnectP99 => "99 % connect()",
            Metric::SettleTime => "Settle time",
            Metric::WakeUps => "Wake-ups per connection",
            Metric::WakeUpShare => "Wake-ups per connection and waiter",
            Metric::OnlookerWakeUps => "Wake-ups per connection and onlooker",
            Metric::TakerWakeUps => "Wake-ups of takers per connection",
            Metric::Returns => "Returns per connection",
            Metric::CpuPerConnection => "CPU per connection",
            Metric::IdlePercent => "Idle CPU use",
            Metric::Imbalance => "Imbalance",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::ReplyRate => "replies/s",
            Metric::CpuPercent | Metric::DiskPercent | Metric::LateRequests => "%",
            Metric::DiskWrites => "KiB/s",
            Metric::QueueTime | Metric::ReadTime | Metric::LongestRead => "ms",
            Metric::IdlePercent => "%",
            Metric::CpuPerReply | Metric::CpuPerConnection => "µs",
            Metric::ConnectMin | Metric::ConnectMedian | Metric::ConnectP99 => "µs",
            Metric::SettleTime => "µs",
            Metric::WakeUps | Metric::TakerWakeUps | Metric::Returns => "per connection",
            Metric::WakeUpShare | Metric::OnlookerWakeUps => "per connection",
            Metric::Imbalance => "standard deviation ÷ mean",
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
            // A sector at least, so that factors can be told.
            Metric::DiskWrites => {
                Some(sample.disk_written?.max(512) as f64 / 1024.0 / sample.window_s)
            }
            _ => self.of_crowd(sample.herd.as_ref()?),
        }
    }

    /// Its value in one run of a crowd.
    fn of_crowd(self, herd: &Record) -> Option<f64> {
        let connections = herd.connect_us.len() as f64;
        match self {
            Metric::ConnectMin => herd.connect_us.iter().copied().reduce(f64::min),
            Metric::ConnectMedian => stats::median(&herd.connect_us),
            Metric::ConnectP99 => stats::percentile(&herd.connect_us, 0.99),
            Metric::SettleTime => stats::median(&herd.settle_us),
            Metric::WakeUps => Some(herd.switches as f64 / connections),
            Metric::WakeUpShare => {
                Some(herd.switches as f64 / connections / f64::from(herd.waiters))
            }
            Metric::OnlookerWakeUps => {
                let onlookers = Some(f64::from(herd.onlookers)).filter(|count| *count > 0.0)?;
                Some(herd.onlooker_switches as f64 / connections / onlookers)
            }
            Metric::TakerWakeUps => {
                Some((herd.switches - herd.onlooker_switches) as f64 / connections)
            }
            Metric::Returns => Some(herd.returns as f64 / connections),
            Metric::CpuPerConnection => Some(1e6 * herd.cpu_s / connections),
            Metric::IdlePercent => Some(100.0 * herd.idle_cpu_s / herd.idle_s),
            Metric::Imbalance => Some(herd.imbalance),
            _ => None,
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
            disk_written: Some(8192),
            load: json!({"achieved_rate": 500.0, "replies": 1000, "bytes": {"body": 4_000_000},
                         "latency_us": {"mean": 250.0, "p50": 500, "p99": null}}),
            ..Sample::default()
        };
        let values = Metric::ALL.map(|metric| metric.of(&sample));
        let values = &values[..15];
        let mut expected = [Some(500.0), Some(5.0), Some(100.0), Some(0.25), Some(0.5)].to_vec();
        expected.extend([None, Some(2.0), Some(25.0), Some(40.0)]);
        expected.extend([None, None, None, None, Some(99.0), Some(4.0)]);
        assert_eq!(values, expected);
    }

    #[test]
    fn metrics_are_read_off_a_crowd() {
        let herd = Record {
            waiters: 10,
            connect_us: vec![40.0, 10.0, 20.0, 30.0],
            settle_us: vec![50.0, 60.0, 70.0, 80.0],
            switches: 24,
            onlookers: 5,
            onlooker_switches: 20,
            returns: 8,
            imbalance: 0.5,
            idle_cpu_s: 0.001,
            idle_s: 0.01,
            cpu_s: 0.002,
            ..Record::default()
        };
        let sample = Sample { window_s: 1.0, herd: Some(herd), ..Sample::default() };
        let values: Vec<f64> =
            Metric::ALL[15..].iter().map(|metric| metric.of(&sample).unwrap()).collect();
        let expected = [10.0, 25.0, 40.0, 65.0, 6.0, 0.6, 1.0, 1.0, 2.0, 500.0, 10.0, 0.5];
        assert_eq!(values, expected);
        assert_eq!(Metric::SettleTime.of(&Sample::default()), None);
    }

    #[test]
    fn a_run_without_replies_has_no_cpu_per_reply() {
        let sample = Sample { window_s: 1.0, load: json!({"replies": 0}), ..Sample::default() };
        assert_eq!(Metric::CpuPerReply.of(&sample), None);
    }
}
