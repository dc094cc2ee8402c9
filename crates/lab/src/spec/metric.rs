//! Metrics: the numbers that a run yields, those that every experiment knows and those of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::TimeSetting;
use crate::old_names;

/// A metric that the experiment defines. Exactly one of `from` and `share` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["from"]}, {"required": ["share"]}]))]
pub struct Metric {
    /// Where the metric's value stands in the result of a run: `load:` or `subject:`, and a JSON pointer (RFC
    /// 6901) into the output of the load generator or of the subject: `load:/errors/client_timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "origin"))]
    pub from: Option<String>,
    /// The metric is the percentage of requests for which a stage takes longer than a limit, by the server's
    /// trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<SlowShare>,
    /// The unit of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Whether higher or lower values are better; `"lower"` if the key is missing. `best` and verdicts that
    /// name a direction use this key.
    #[serde(default)]
    pub better: Better,
    /// The metric's title in tables and figures; the metric's name if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The requests of a server's trace for which one stage takes longer than a limit, as a share of all requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowShare {
    /// The stage whose time is compared with the limit.
    pub stage: Stage,
    /// The limit: a request counts if the stage takes longer. With a modelled disk the limit is divided by the
    /// `speed` of the pool.
    pub above: TimeSetting,
}

/// A stage of a request in Drover's own server (`serve --trace`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Waiting for the file to be opened, away from the worker.
    Stat,
    /// Reads that wait for a thread.
    Queue,
    /// Reads under way.
    Read,
    /// Bytes that were read and wait for the worker.
    Return,
    /// Writing to the socket.
    Write,
    /// The whole request.
    Total,
    /// The longest single read, its wait for a thread included.
    Longest,
}

impl Stage {
    /// Every stage, in the order in which a request passes through.
    pub const ALL: [Stage; 7] = [
        Stage::Stat,
        Stage::Queue,
        Stage::Read,
        Stage::Return,
        Stage::Write,
        Stage::Total,
        Stage::Longest,
    ];

    /// Its column in the server's trace (docs/trace.md).
    #[must_use]
    pub fn column(self) -> &'static str {
        match self {
            Stage::Stat => "stat_us",
            Stage::Queue => "queue_us",
            Stage::Read => "read_us",
            Stage::Return => "return_us",
            Stage::Write => "write_us",
            Stage::Total => "total_us",
            Stage::Longest => "longest_us",
        }
    }

    /// Its name, for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Stage::Stat => "open and stat",
            Stage::Queue => "queue wait",
            Stage::Read => "read",
            Stage::Return => "return to the loop",
            Stage::Write => "write to the socket",
            Stage::Total => "total",
            Stage::Longest => "longest single read",
        }
    }
}

/// Which values of a metric are the better ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The higher ones.
    Higher,
    /// The lower ones.
    #[default]
    Lower,
}

/// Where a metric comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricOrigin<'a> {
    /// A JSON pointer into the load generator's result.
    Load(&'a str),
    /// A JSON pointer into what the subject writes.
    Subject(&'a str),
}

/// Reads `load:/pointer` and `subject:/pointer`.
pub(super) fn origin(text: &str) -> Result<MetricOrigin<'_>, String> {
    let origin = match text.split_once(':') {
        Some(("load", pointer)) => Some((MetricOrigin::Load(pointer), pointer)),
        Some(("subject", pointer)) => Some((MetricOrigin::Subject(pointer), pointer)),
        _ => None,
    };
    match origin {
        Some((origin, pointer)) if pointer.starts_with('/') => Ok(origin),
        _ => Err(format!(
            "'{text}' names no place; write load: or subject: and a JSON pointer, as in \
             \"load:/errors/client_timeout\""
        )),
    }
}

impl Metric {
    /// The place of its value in a run's result, if it has one.
    pub fn origin(&self) -> Option<MetricOrigin<'_>> {
        self.from.as_deref().and_then(|from| origin(from).ok())
    }
}

/// An instrument that some metrics need. An instrument is switched on if a metric of a claim or a figure needs
/// the instrument.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum InstrumentName {
    /// A thread of the lowest scheduling class runs on each processor of the subject and counts the cycles that
    /// are left over.
    IdleCounter,
    /// A thread of the lowest scheduling class runs on every processor, so that no processor goes idle and
    /// wakes late.
    IdleGuard,
    /// Drover's own server writes down where the time of each request went.
    Stages,
    /// Drover's own server writes its counters, such as overflows of the queue of events (`serve --counters`).
    Counters,
    /// The scheduler's tracepoints tell which waiters wake and sleep. Only root may read the tracepoints; other
    /// users get a count of context switches instead.
    Scheduler,
    /// The counters of the block device that the pools are stored on.
    Disk,
}

/// A metric that every experiment knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltInMetric {
    /// Its name in experiment files.
    pub name: &'static str,
    /// Its name in tables and figures.
    pub title: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// Which values are the better ones.
    pub better: Better,
    /// What it is.
    pub summary: &'static str,
    /// What it needs beside the load's own result and the subject's CPU clock.
    pub needs: Option<InstrumentName>,
}

/// The built-in metric of that name, or of an old one.
#[must_use]
pub fn built_in(name: &str) -> Option<&'static BuiltInMetric> {
    let name = old_names::metric(name);
    BUILT_IN.iter().find(|metric| metric.name == name)
}

const fn higher(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    summary: &'static str,
) -> BuiltInMetric {
    BuiltInMetric { name, title, unit, better: Better::Higher, summary, needs: None }
}

const fn lower(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    summary: &'static str,
) -> BuiltInMetric {
    BuiltInMetric { name, title, unit, better: Better::Lower, summary, needs: None }
}

const fn needing(metric: BuiltInMetric, instrument: InstrumentName) -> BuiltInMetric {
    BuiltInMetric { needs: Some(instrument), ..metric }
}

/// Every built-in metric: of HTTP loads first, then of the server, of its disk and its stages, of crowds
/// of waiters, of sets of pipes.
#[rustfmt::skip]
pub static BUILT_IN: &[BuiltInMetric] = &[
    higher("response-rate", "Response rate", "1/s", "Complete, expected responses per second of the window."),
    lower("rate-variation", "Spread of the rate within a run", "%", "The standard deviation of the response rates of a run's turns, or else of its seconds, in percent of their mean."),
    higher("throughput", "Throughput", "MB/s", "Bytes of the bodies of complete, expected responses per second of the window, in 10⁶ bytes."),
    lower("latency-mean", "Mean response time", "ms", "The mean time from a request's scheduled start (in a closed loop: its sending) to the last byte of its response. A request that times out counts with the time-out."),
    lower("latency-median", "Median response time", "ms", "The median of the response times; `latency-mean` says what a response time is."),
    lower("latency-p90", "90 % response time", "ms", "The 90th percentile of the response times."),
    lower("latency-p99", "99 % response time", "ms", "The 99th percentile of the response times."),
    lower("latency-p99.9", "99.9 % response time", "ms", "The 99.9th percentile of the response times."),
    lower("latency-max", "Longest response time", "ms", "The longest response time."),
    lower("service-median", "Median response time from sending", "ms", "The median time from a request's sending to the last byte of its response. Requests that are sent late do not change it."),
    lower("first-byte-mean", "Mean time to the first byte", "ms", "The mean time from a request's sending to the first byte of its response."),
    lower("first-byte-max", "Longest time to the first byte", "ms", "The longest time from a request's sending to the first byte of its response."),
    lower("connection-mean", "Mean time to connect", "ms", "The mean time that the opening of a connection took."),
    lower("handshake-median", "Median TLS handshake", "ms", "The median time of a TLS handshake, from an open connection to the client's last message, of all connections of the load."),
    lower("handshake-p99", "99 % TLS handshake", "ms", "The 99th percentile of the times of TLS handshakes."),
    lower("error-percent", "Errors", "%", "Requests and connections that ended in an error, a time-out or an unexpected status, in percent of all that were tried."),
    lower("hung-percent", "Hung requests", "%", "Requests without a complete response within the time-out, in percent of all requests that were sent."),
    needing(lower("overflows", "Queue overflows", "1/s", "Overflows of the kernel's queue of real-time signals that Drover's own server has noticed in the window, per second."), InstrumentName::Counters),
    needing(lower("events-per-response", "Events per response", "1", "Events that the dispatch mechanism has reported to Drover's own server, per request: signals, for real-time signals."), InstrumentName::Counters),
    needing(lower("wait-calls-per-response", "Waiting calls per response", "1", "How often Drover's own server has asked its dispatch mechanism for events, per request."), InstrumentName::Counters),
    needing(lower("sleeps-per-response", "Sleeps per response", "1", "How often threads of Drover's own server gave their processor up to wait (voluntary context switches), per request."), InstrumentName::Counters),
    needing(lower("lost-accepts-per-response", "Wake-ups in vain per response", "1", "How often a worker of Drover's own server was woken for a connection that another one had taken, per request."), InstrumentName::Counters),
    lower("queue-peak", "Longest queue", "events", "The longest queue of events in the window with an entry for each event: what the server has recorded (`serve --record-events {work}/events`), replayed."),
    lower("queue-peak-per-fd", "Longest queue, one entry per descriptor", "events", "The longest queue of events in the window with at most one entry for each descriptor: what the server has recorded, replayed."),
    lower("queue-peak-ratio", "Longest queue per descriptor ÷ per event", "ratio", "`queue-peak-per-fd` ÷ `queue-peak`, of one record of events."),

    lower("cpu-percent", "CPU use", "%", "CPU time of the subject and its children in the window, in percent of one processor."),
    lower("busy-percent", "Use of its processors", "%", "CPU time of the subject and its children in the window, in percent of what it could have: its processors, or the part of them that the key `slow` leaves."),
    needing(lower("machine-percent", "CPU use by the idle counter", "%", "The time of the subject's processors that was not left over for a thread of the lowest scheduling class. Interrupts and kernel threads are included."), InstrumentName::IdleCounter),
    lower("cpu-per-response", "CPU per response", "µs", "CPU time of the subject per response."),
    lower("cpu-per-megabyte", "CPU per megabyte", "ms", "CPU time of the subject per 10⁶ bytes of bodies."),
    higher("responses-per-cpu", "Responses per CPU second", "1/s", "Responses per second of the subject's CPU time."),
    higher("handshakes-per-cpu", "Handshakes per CPU second", "1/s", "TLS handshakes that ended in the window, per second of the subject's CPU time."),
    higher("megabytes-per-cpu", "Bytes per CPU second", "MB/s", "10⁶ bytes of bodies per second of the subject's CPU time."),
    lower("memory", "Resident memory", "MB", "Resident memory of the subject and its children at the end of the window, in 10⁶ bytes."),
    lower("memory-per-idle", "Memory per idle connection", "KB", "Resident memory of the subject and its children with all `idle` connections open, minus the resident memory before they were opened, per idle connection, in 10³ bytes. The kernel's memory for sockets is not included."),
    lower("imbalance", "Imbalance", "ratio", "Standard deviation ÷ mean of the connections that each worker, or each waiter, has taken."),

    needing(higher("disk-percent", "Disk use", "%", "How busy the disk of the pool was in the window, the mean over its spindles."), InstrumentName::Disk),
    needing(higher("disk-reads", "Read from the disk", "KiB/s", "What was read from the disk of the pool."), InstrumentName::Disk),
    needing(lower("disk-writes", "Written to the disk", "KiB/s", "What was written to the disk of the pool, from one sync(2) to another around the window; at least a sector."), InstrumentName::Disk),
    needing(lower("stat-time", "Wait for an open file", "ms", "How long a request waited until its file was open, the mean over requests."), InstrumentName::Stages),
    needing(lower("queue-time", "Wait of a read for a thread", "ms", "How long a read waited for a thread, the mean over reads."), InstrumentName::Stages),
    needing(lower("read-time", "Duration of a read", "ms", "How long a read took, the mean over reads."), InstrumentName::Stages),
    needing(lower("return-time", "Wait of a read for the worker", "ms", "How long a finished read waited for the worker, the mean over reads."), InstrumentName::Stages),
    needing(lower("write-time", "Writing to the socket", "ms", "How long the writing of a response to the socket took, the mean over requests."), InstrumentName::Stages),
    needing(lower("longest-read", "99 % longest read", "ms", "The 99th percentile, over requests, of a request's longest single read with its wait for a thread."), InstrumentName::Stages),

    lower("connect-min", "Shortest connect()", "µs", "The shortest time that a connect(2) that does not block took."),
    lower("connect-median", "Median connect()", "µs", "The median time that a connect(2) that does not block took."),
    lower("connect-p99", "99 % connect()", "µs", "The 99th percentile of the time that a connect(2) that does not block took."),
    needing(lower("settle-time", "Settle time", "µs", "The median time from a connect(2) until the last waiter that was woken sleeps again."), InstrumentName::Scheduler),
    needing(lower("wake-ups", "Wake-ups per connection", "1", "How often waiters were woken per connection."), InstrumentName::Scheduler),
    needing(lower("wake-up-share", "Wake-ups per connection and waiter", "1", "How often waiters were woken per connection and waiter: 1 means that every connection woke every waiter."), InstrumentName::Scheduler),
    needing(lower("onlooker-wake-ups", "Wake-ups per connection and onlooker", "1", "How often onlookers were woken per connection and onlooker. An onlooker is a waiter that selects and takes no connection."), InstrumentName::Scheduler),
    needing(lower("taker-wake-ups", "Wake-ups of takers per connection", "1", "How often waiters that take connections were woken per connection."), InstrumentName::Scheduler),
    lower("returns", "Returns per connection", "1", "How often a waiting call returned to user space per connection."),
    lower("cpu-per-connection", "CPU per connection", "µs", "CPU time of all waiters per connection."),
    lower("load-average", "Load average", "1", "The one-minute load average of the machine at the end of the window."),

    lower("event-time", "Time per event", "µs", "The time from one token to the next, waits included."),
    lower("cpu-per-event", "CPU per event", "µs", "CPU time of the thread per token."),
    higher("event-rate", "Event rate", "1/s", "Tokens per second."),
    lower("register-time", "Registering a descriptor", "µs", "CPU time that the registering of the pipes takes, per pipe."),
    lower("deregister-time", "Deregistering a descriptor", "µs", "CPU time that the deregistering of the pipes takes, per pipe."),
    lower("copied-per-event", "Bytes copied per event", "B", "Bytes that the mechanism's system calls copy between kernel and user space, per event. The number is computed from the calls."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_metrics_share_a_name() {
        let names: BTreeSet<&str> = BUILT_IN.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), BUILT_IN.len());
        assert_eq!(built_in("response-rate").unwrap().better, Better::Higher);
    }

    #[test]
    fn an_origin_is_a_result_and_a_pointer() {
        assert_eq!(origin("load:/errors/x"), Ok(MetricOrigin::Load("/errors/x")));
        assert_eq!(origin("subject:/a"), Ok(MetricOrigin::Subject("/a")));
        for wrong in ["load:errors", "lod:/x", "/x", ""] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }
}
