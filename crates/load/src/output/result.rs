//! The JSON result, `drover.load/3`. Its schema is `schemas/drover.load-3.schema.json`.
//!
//! What is not known or does not apply is null, never 0.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::account::counts::{Account, RequestFailure, TimeHistogram};
use crate::account::errors::ErrorCounts;
use crate::account::histograms::{self, Histograms};
use crate::output::http2::Http2Result;
use crate::output::redact;
use crate::output::tls::TlsResult;
use crate::output::warnings::{SATURATED, warnings};
use crate::plan::options::LoadPlan;
use crate::plan::shape::{Schedule, Unit};
use crate::run::coordinator::LoadRun;
use crate::warning::Warning;

/// The version of the result.
pub(crate) const SCHEMA: &str = "drover.load/3";

/// What a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadResult {
    /// `drover.load/3`.
    pub schema: String,
    /// The command line, without credentials.
    pub command: Vec<String>,
    /// The URLs, with a space between them; of many only the first ones.
    pub target: String,
    /// The address of each server that connections were opened to; of many servers only the first ones. A server with
    /// several addresses has the one that worked last.
    pub addresses: Vec<String>,
    /// When the run began, in seconds since 1970 (UTC).
    pub start: f64,
    /// When the measured window began, in seconds since 1970 (UTC); null if there was none.
    pub window_start: Option<f64>,
    /// The length of the measured window, from its beginning to its end.
    pub duration_s: f64,
    /// Requests per second that the schedule asked for; null in a closed loop.
    pub offered_rate: Option<f64>,
    /// Responses per second within the window; null if there was none.
    pub achieved_rate: Option<f64>,
    /// Requests sent; each is a response, an error after sending, or in flight.
    pub requests: u64,
    /// Complete responses, of any status.
    pub responses: u64,
    /// Requests still without a response when the run was interrupted. A run that ends by itself
    /// waits for its last responses, for as long as the time-out allows.
    pub in_flight: u64,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// Responses with an unexpected status, by status code.
    pub unexpected_status: BTreeMap<String, u64>,
    /// Errors by class. Their sum is `connections.failed`, plus
    /// `connections.unsolicited`, plus the requests that have no response and are not in flight.
    pub errors: ErrorCounts,
    /// Errors of the class `protocol` by kind: in which way the server violated HTTP. Only kinds that occurred.
    pub protocol_errors: BTreeMap<String, u64>,
    /// Requests that the generator itself brought to their connection (or into the queue for the
    /// next free one) more than 1 ms after their intended start; null in a closed loop.
    pub late_starts: Option<u64>,
    /// Requests whose intended start came and that were not sent, because no connection was free or
    /// could be opened for them until the window ended; null in a closed loop.
    pub unsent: Option<u64>,
    /// Bytes.
    pub bytes: Bytes,
    /// Connections, those held idle included.
    pub connections: ConnectionCounts,
    /// Where the first attempt to connect that failed went to, and why it failed; or what has broken TLS later. Null if neither
    /// happened.
    pub connect_error: Option<String>,
    /// TLS with the servers of `https://` URLs; null if there are none.
    pub tls: Option<TlsResult>,
    /// What happened in HTTP/2 only; null if HTTP/1.1 was spoken.
    pub http2: Option<Http2Result>,
    /// From a request's intended start to the last byte of its response; in a closed loop from its
    /// sending, because there is no other start. Null if there was no response.
    pub latency_us: Option<Distribution>,
    /// From a request's sending to the last byte of its response.
    pub service_us: Option<Distribution>,
    /// How long it took to open each connection that was opened, without its TLS handshake.
    pub connect_us: Option<Distribution>,
    /// How long the TLS handshake of each of these connections took.
    pub handshake_us: Option<Distribution>,
    /// From a request's sending to the first bytes of its response.
    pub first_byte_us: Option<Distribution>,
    /// From the first bytes of a response to its last.
    pub transfer_us: Option<Distribution>,
    /// Responses in each full second of the window; null if it was shorter than one.
    pub response_rate: Option<ResponseRate>,
    /// The generator itself.
    pub client: GeneratorState,
    /// What should be known before these numbers are trusted.
    pub warnings: Vec<Warning>,
    /// The latencies in nanoseconds: HdrHistogram V2, compressed, in base64.
    pub histogram: Option<String>,
    /// The other distributions: HdrHistogram V2, compressed, in base64.
    pub histograms: Histograms,
    #[serde(skip)]
    pub(crate) interrupted: bool,
    /// Processes that ended without a result, and how.
    #[serde(skip)]
    pub(crate) lost: Vec<String>,
    #[serde(skip)]
    pub(crate) setting: String,
}

/// Bytes sent and received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// Bytes of requests, without what TLS adds to them. In HTTP/2: of their packed header blocks and bodies, without the headers of
    /// frames.
    pub sent: u64,
    /// Bytes of the heads of responses, interim responses included. In HTTP/2: of their packed header blocks.
    pub head: u64,
    /// Bytes of bodies, also of incomplete responses. Chunk sizes and line ends, or the headers of frames, do not count.
    pub body: u64,
}

/// What happened to connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionCounts {
    /// Attempts to connect: opened, failed, or in progress at an interruption.
    pub attempted: u64,
    /// Attempts to connect that succeeded.
    pub opened: u64,
    /// Attempts to connect that failed.
    pub failed: u64,
    /// Requests sent on a connection that had carried one before.
    pub reused: u64,
    /// Idle connections open at the end of the window; null if none was asked for.
    pub idle_held: Option<u64>,
    /// Connections closed by the server between two responses, or by a response with
    /// `Connection: close`.
    pub closed_by_peer: u64,
    /// Connections closed because of an unsolicited response; each is an error of the class `protocol`.
    pub unsolicited: u64,
}

/// A distribution of times, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Median.
    pub p50: f64,
    /// 90 % are not above.
    pub p90: f64,
    /// 95 % are not above.
    pub p95: f64,
    /// 99 % are not above.
    pub p99: f64,
    /// 99.9 % are not above.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
}

/// Responses per second, second by second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseRate {
    /// In the slowest second.
    pub min: u64,
    /// On average.
    pub avg: f64,
    /// In the fastest second.
    pub max: u64,
    /// Sample standard deviation; null for a single second.
    pub stddev: Option<f64>,
    /// In each second. Joined results have every second in which any generator measured.
    pub series: Vec<u64>,
}

/// The generator's own state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratorState {
    /// CPU time of the generator's threads within the window, in seconds.
    pub cpu_s: f64,
    /// Threads that sent.
    pub threads: u32,
    /// A thread was on a processor, or waited for one, for more than 90 % of the window: the
    /// server may be faster than these numbers.
    pub saturated: bool,
    /// Whether server and generator share the processors of one machine; null if that is unknown because the
    /// generator is kept from some of them.
    pub shares_cpus: Option<bool>,
    /// 99 % of the requests reached their connection at most this long after their intended
    /// start; null in a closed loop.
    pub slip_p99_us: Option<f64>,
    /// How long the generator stood still as a whole from the beginning of the window on: stopped by
    /// a signal, or without a processor. Stops of less than 20 ms are not noticed, and longer ones
    /// are found up to 10 ms too short.
    pub paused_us: Option<f64>,
    /// The difference of two clock readings, one right after the other. No time is more exact.
    pub clock_error_us: Option<f64>,
    /// 99 % of the waits of a thread that does nothing else ended at most this late. The scheduler adds
    /// this to every time that ends with a wait.
    pub scheduler_error_us: Option<f64>,
}

impl Bytes {
    fn new(account: &Account) -> Bytes {
        Bytes { sent: account.sent_bytes, head: account.head_bytes, body: account.body_bytes }
    }
}

impl ConnectionCounts {
    fn new(account: &Account, plan: &LoadPlan) -> ConnectionCounts {
        let connections = &account.connections;
        ConnectionCounts {
            attempted: connections.attempted,
            opened: connections.opened,
            failed: connections.failed,
            reused: connections.reused,
            idle_held: (plan.idle > 0).then_some(connections.idle_held),
            closed_by_peer: connections.closed_by_peer,
            unsolicited: connections.unsolicited,
        }
    }
}

impl LoadResult {
    pub(crate) fn new(plan: &LoadPlan, start: SystemTime, run: LoadRun) -> LoadResult {
        let open_loop = plan.schedule.is_some();
        let LoadRun { account, window, cpu, busiest, interrupted, .. } = &run;
        let seconds = window.as_secs_f64();
        let shares_cpus = plan.shares_cpus();
        let latency = if open_loop { &account.latency } else { &account.service };
        LoadResult {
            schema: SCHEMA.to_string(),
            command: redact::command(),
            target: targets(plan),
            addresses: addresses(plan),
            start: since_1970(start),
            window_start: run.begun.map(since_1970),
            duration_s: seconds,
            offered_rate: plan.offered_rate(seconds),
            achieved_rate: (seconds > 0.0).then(|| account.responses_in_window as f64 / seconds),
            requests: account.requests,
            responses: account.responses,
            in_flight: account.in_flight,
            status: statuses(account, |_| true),
            unexpected_status: statuses(account, |status| !plan.expect_status.has(status)),
            errors: ErrorCounts::new(account, plan),
            protocol_errors: protocol_errors(account),
            late_starts: open_loop.then_some(account.late_starts),
            unsent: open_loop.then(|| account.unsent()),
            bytes: Bytes::new(account),
            connections: ConnectionCounts::new(account, plan),
            connect_error: account.connect_error.clone(),
            tls: plan.any_tls().then(|| TlsResult::of(&account.handshakes)),
            http2: plan.is_http2().then(|| Http2Result::of(&account.http2, plan.streams())),
            latency_us: Distribution::of(latency),
            service_us: Distribution::of(&account.service),
            connect_us: Distribution::of(&account.connect),
            handshake_us: Distribution::of(&account.handshake),
            first_byte_us: Distribution::of(&account.first_byte),
            transfer_us: Distribution::of(&account.transfer),
            response_rate: ResponseRate::of_run(plan, account, *window),
            client: GeneratorState {
                cpu_s: cpu.as_secs_f64(),
                threads: plan.threads,
                saturated: *busiest > SATURATED,
                shares_cpus,
                slip_p99_us: Distribution::of(&account.slip).map(|slip| slip.p99),
                paused_us: Some(microseconds(run.watched.paused)),
                clock_error_us: Some(microseconds(run.watched.clock)),
                scheduler_error_us: run.watched.woken_late.map(microseconds),
            },
            warnings: warnings(plan, &run, shares_cpus == Some(true)),
            histogram: histograms::encode(latency),
            histograms: Histograms {
                service: histograms::encode(&account.service),
                connect: histograms::encode(&account.connect),
                handshake: histograms::encode(&account.handshake),
                first_byte: histograms::encode(&account.first_byte),
                transfer: histograms::encode(&account.transfer),
                slip: histograms::encode(&account.slip),
            },
            interrupted: *interrupted,
            lost: Vec::new(),
            setting: setting(plan),
        }
    }

    /// What is to be said of statuses that were not expected, if there were some.
    #[must_use]
    pub fn unexpected(&self) -> Option<String> {
        let count: u64 = self.unexpected_status.values().sum();
        (count > 0).then(|| {
            format!(
                "{count} of {} responses have a status that was not expected ({}): the server's log may \
                 say why; --expect-status allows others than 2xx and 3xx",
                self.responses,
                self.unexpected_status
                    .iter()
                    .map(|(status, count)| format!("{count} with status {status}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        })
    }

    /// Why the run counts as failed, if it does: it was interrupted, lost a process, got no response at
    /// all, or got unsolicited responses.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if self.interrupted {
            return Some("interrupted: the results are those until then".to_string());
        }
        if !self.lost.is_empty() {
            return Some(format!("{}: the results are those of the others", self.lost.join("; ")));
        }
        if self.responses > 0 {
            let count = self.connections.unsolicited;
            if let Some(http2) = self.http2.as_ref().filter(|_| count > 0) {
                let why = http2.first_violation.unwrap_or("it sent what nobody had asked for");
                return Some(format!(
                    "{} violated HTTP/2 on {count} connections without a request: {why}",
                    self.target
                ));
            }
            return (count > 0).then(|| {
                format!(
                    "{} sent {count} responses that nobody had asked for: the others may belong to \
                     other requests than they were counted for",
                    self.target
                )
            });
        }
        let mut seen = match self.errors_in_words() {
            errors if errors.is_empty() => "nothing was sent".to_string(),
            errors => errors,
        };
        if let Some(error) = &self.connect_error {
            seen += &format!("; {error}");
        }
        let remedy = self.remedy().map_or(String::new(), |remedy| format!(": {remedy}"));
        Some(format!("no response from {} ({seen}){remedy}", self.target))
    }

    /// The errors by class, and those of the class `protocol` by kind; empty without errors.
    pub(crate) fn errors_in_words(&self) -> String {
        let mut text = self.errors.to_string();
        let mut separator = ": ";
        // `protocol` is the last class.
        for (kind, count) in &self.protocol_errors {
            text += &format!("{separator}{kind} {count}");
            separator = ", ";
        }
        text
    }

    /// What to look at when there are only errors; `None`: the text of the first one says that.
    fn remedy(&self) -> Option<&'static str> {
        let classes = self.errors.classes().into_iter().rev().filter(|(_, count)| *count > 0);
        let most = classes.max_by_key(|(_, count)| *count);
        Some(match most.map_or("", |(name, _)| name) {
            "tls_failed" => return None,
            "client_timeout" | "connect_timeout" => {
                "give it a longer --timeout, if it is that slow"
            }
            "reset" | "truncated" => "it takes connections and closes them: its log may say why",
            "bad_length" => "is --expect-size right?",
            "bad_body" => "is the file of --verify right?",
            "protocol" => self.protocol_remedy(),
            "fd_unavailable" | "address_unavailable" => "see the warnings",
            _ => "is the server running there?",
        })
    }

    /// What to look at when the server violates HTTP.
    fn protocol_remedy(&self) -> &'static str {
        let most = self.protocol_errors.iter().rev().max_by_key(|(_, count)| **count);
        let violation = self.http2.as_ref().and_then(|http2| http2.first_violation);
        match most.map_or("", |(kind, _)| &kind[..]) {
            "http_version" if self.http2.is_some() => "leave --h2c out",
            "http2" => violation.unwrap_or("it violates HTTP/2"),
            "http_version" => "it answers in another version of HTTP; Drover speaks HTTP/1.1",
            "status_line" => "its status line is invalid; 'curl -v' shows it",
            "switching_protocols" => "it changes to another protocol (101); send no Upgrade field",
            "field_line" => "a header field is invalid; 'curl -v' shows it",
            "head_too_long" => {
                "its response head is longer than 64 KiB, or than what --read-rate reads at once"
            }
            "framing" => "its Content-Length and Transfer-Encoding fields contradict each other",
            "chunk" => "it sends an invalid chunk; does it set Transfer-Encoding itself?",
            "excess" => "it sends more than its Content-Length says",
            "unsolicited" => "it sends responses that nobody has asked for",
            _ => "does it speak HTTP/1? Check the port; for TLS, use an https:// URL",
        }
    }
}

pub(crate) fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// How many URLs a result names.
const NAMED: usize = 10;

fn targets(plan: &LoadPlan) -> String {
    let urls = plan.asked.iter().map(|request| &request.url);
    let mut named: Vec<String> = urls.take(NAMED).map(ToString::to_string).collect();
    let more = plan.asked.len() - named.len();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    if let Some(path) = &plan.unix {
        named.push(format!("by {}", path.display()));
    }
    named.join(" ")
}

fn addresses(plan: &LoadPlan) -> Vec<String> {
    let connected = plan.origins.list.iter().filter_map(|origin| origin.endpoints.connected());
    connected.map(ToString::to_string).take(NAMED).collect()
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The run in a line, for people.
pub(crate) fn setting(plan: &LoadPlan) -> String {
    let plural = |count: u32| if count == 1 { "" } else { "s" };
    let pace = match &plan.schedule {
        None => "closed loop".to_string(),
        Some(Schedule { rate, unit: Unit::Request, .. }) => format!("{rate} requests/s scheduled"),
        Some(Schedule { rate, unit: Unit::Connection, .. }) => {
            format!("{rate} connections/s scheduled")
        }
    };
    let streams = match plan.protocol.streams() {
        None => String::new(),
        Some(streams) => format!(" of {streams} stream{} (HTTP/2)", plural(streams)),
    };
    let idle = if plan.idle > 0 { format!(" and {} idle", plan.idle) } else { String::new() };
    format!(
        "{} connection{}{streams}{idle}, {} thread{}, {pace}, dispatch {}",
        plan.connections,
        plural(plan.connections),
        plan.threads,
        plural(plan.threads),
        plan.mechanism.name,
    )
}

fn protocol_errors(account: &Account) -> BTreeMap<String, u64> {
    let kinds = RequestFailure::PROTOCOL.into_iter();
    kinds
        .map(|(failure, kind)| (kind.to_string(), account.errors.of(failure)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The responses by status; only statuses for which `counts` is true.
fn statuses(account: &Account, counts: impl Fn(u16) -> bool) -> BTreeMap<String, u64> {
    let seen = (0..).zip(account.statuses.iter()).filter(|(_, count)| **count > 0);
    seen.filter(|(status, _)| counts(*status))
        .map(|(status, count)| (status.to_string(), *count))
        .collect()
}

impl Distribution {
    pub(crate) fn of(times: &TimeHistogram) -> Option<Distribution> {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let quantile = |q: f64| microseconds(times.value_at_quantile(q));
        (!times.is_empty()).then(|| Distribution {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: microseconds(times.max()),
            mean: times.mean() / 1000.0,
            stddev: times.stdev() / 1000.0,
        })
    }
}

impl ResponseRate {
    /// Turns have no seconds of their own.
    fn of_run(plan: &LoadPlan, account: &Account, window: Duration) -> Option<ResponseRate> {
        let whole = ResponseRate::in_window(&account.per_second, window);
        whole.filter(|_| plan.turns == 1)
    }

    fn in_window(per_second: &[u64], window: Duration) -> Option<ResponseRate> {
        let mut series = per_second.to_vec();
        series.resize(window.as_secs() as usize, 0);
        ResponseRate::of(series)
    }

    pub(crate) fn of(series: Vec<u64>) -> Option<ResponseRate> {
        let (&min, &max) = (series.iter().min()?, series.iter().max()?);
        let count = series.len() as f64;
        let avg = series.iter().sum::<u64>() as f64 / count;
        let squares: f64 = series.iter().map(|&responses| (responses as f64 - avg).powi(2)).sum();
        let stddev = (series.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Some(ResponseRate { min, avg, max, stddev, series })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::counts::{record, times};

    #[test]
    fn no_samples_are_null() {
        assert!(Distribution::of(&times()).is_none());
        assert!(ResponseRate::in_window(&[7], Duration::from_millis(999)).is_none());
    }

    #[test]
    fn a_distribution_is_in_microseconds() {
        let mut times = times();
        for millisecond in 1..=100 {
            record(&mut times, Duration::from_millis(millisecond));
        }
        let distribution = Distribution::of(&times).unwrap();
        for (found, expected) in [
            (distribution.p50, 50_000.0),
            (distribution.p90, 90_000.0),
            (distribution.p95, 95_000.0),
            (distribution.p99, 99_000.0),
            (distribution.max, 100_000.0),
            (distribution.mean, 50_500.0),
            (distribution.stddev, 28_866.0),
        ] {
            assert!((found / expected - 1.0).abs() < 0.001, "{found} for {expected}");
        }
    }

    #[test]
    fn the_response_rate_counts_full_seconds_and_quiet_ones() {
        let rate = ResponseRate::in_window(&[4, 8, 0, 9], Duration::from_millis(3500)).unwrap();
        assert_eq!((rate.min, rate.max, rate.avg), (0, 8, 4.0));
        assert_eq!((rate.stddev, rate.series), (Some(4.0), vec![4, 8, 0]));
        let quiet = ResponseRate::in_window(&[], Duration::from_secs(1)).unwrap();
        assert_eq!((quiet.series, quiet.stddev), (vec![0], None));
    }
}
