//! `/metrics`: everything that the workers count, in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), named as its conventions have it
//! (<https://prometheus.io/docs/practices/naming/>).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use drover_http1::Status;
use drover_sys::process;

use super::process::WorkerProcessFacts;
use super::{ServerFacts, WatchedServer};
use crate::status::response_times::bound_of;
use crate::status::statistics::{Counter, CounterRow};

/// The value of `Content-Type`.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters of a worker that have a metric each, with its name and help.
const COUNTERS: &[(Counter, &str, &str)] = &[
    (Counter::Connections, "drover_connections_accepted_total", "Connections accepted."),
    (Counter::Closed, "drover_connections_closed_total", "Accepted connections that have ended."),
    (Counter::Requests, "drover_requests_total", "Request heads read without fault."),
    (
        Counter::BytesSent,
        "drover_sent_bytes_total",
        "Bytes of responses that the kernel took, heads included; over TLS with its records, without handshakes.",
    ),
    (
        Counter::Errors,
        "drover_connection_errors_total",
        "Connections that an error ended: reset by the peer, a file cut short, or refused by --proxy-protocol.",
    ),
    (
        Counter::TimeOuts,
        "drover_connection_timeouts_total",
        "Connections that a time-out ended, or that were closed for others.",
    ),
    (
        Counter::IdleClosed,
        "drover_idle_connections_closed_total",
        "Idle connections that were closed to make room for others.",
    ),
    (
        Counter::RefusedByAddress,
        "drover_connections_refused_by_address_total",
        "Connections that were closed at once because their client had as many as it may have.",
    ),
    (
        Counter::TlsFull,
        "drover_tls_full_handshakes_total",
        "TLS handshakes in which the server showed a certificate.",
    ),
    (
        Counter::TlsResumed,
        "drover_tls_resumed_handshakes_total",
        "TLS handshakes that resumed a session.",
    ),
    (Counter::Http2Connections, "drover_http2_connections_total", "Connections that speak HTTP/2."),
    (
        Counter::Http2Requests,
        "drover_http2_requests_total",
        "Requests over HTTP/2, which drover_requests_total counts too.",
    ),
    (
        Counter::Http2Resets,
        "drover_http2_streams_reset_total",
        "Streams that ended without all of their response: clients reset them, or a file was cut short.",
    ),
    (
        Counter::Http2Failures,
        "drover_http2_protocol_errors_total",
        "Connections that the server ended because the client broke HTTP/2 or a limit of it.",
    ),
    (
        Counter::OutOfMemory,
        "drover_connections_out_of_memory_total",
        "Connections that were closed because the kernel gave the process no more memory.",
    ),
    (
        Counter::Cut,
        "drover_connections_cut_total",
        "Connections with a request or a response under way that the end of the grace cut.",
    ),
    (Counter::AcceptErrors, "drover_accept_errors_total", "Attempts to accept that failed."),
    (
        Counter::AcceptsLost,
        "drover_accepts_lost_total",
        "Wake-ups for a connection that another worker had taken already.",
    ),
    (
        Counter::AcceptBatches,
        "drover_accept_batches_total",
        "Waits of a listener after which there was a connection. Accepted connections by these are accepts per wake.",
    ),
    (
        Counter::DispatchWaits,
        "drover_dispatch_waits_total",
        "Waits for events of the dispatch mechanism.",
    ),
    (
        Counter::Events,
        "drover_dispatch_events_total",
        "Events (under a completion mechanism completions) that the waits reported. By the waits: events per wait.",
    ),
    (
        Counter::WouldBlock,
        "drover_would_block_total",
        "Calls on sockets that found nothing to take or no room (EAGAIN).",
    ),
    (
        Counter::ShortSends,
        "drover_short_sends_total",
        "Sends from memory of which the socket took only a part.",
    ),
    (
        Counter::Overflows,
        "drover_event_queue_overflows_total",
        "Overflows of the kernel's queue of events, each of which has lost at least one event.",
    ),
    (
        Counter::OpenedElsewhere,
        "drover_files_opened_elsewhere_total",
        "Files that other threads were asked to open, because a disk might be needed (cold).",
    ),
    (
        Counter::DirectoriesListed,
        "drover_directories_listed_total",
        "Directories that were read to make a list of them (--listing); a list may answer many requests.",
    ),
    (
        Counter::CacheHits,
        "drover_cache_hits_total",
        "Requests for files whose entry was kept, and right.",
    ),
    (
        Counter::CacheMisses,
        "drover_cache_misses_total",
        "Requests for files that had to be looked up: by the worker, or by other threads.",
    ),
    (Counter::FileReads, "drover_file_reads_total", "Reads of files that are not part of a send."),
    (
        Counter::ReadsAtOnce,
        "drover_file_reads_at_once_total",
        "Reads of files by the workers themselves, because the bytes were in the page cache.",
    ),
    (
        Counter::ReadsNotDirect,
        "drover_file_reads_not_direct_total",
        "Reads of files that should have bypassed the page cache (O_DIRECT), and could not.",
    ),
    (
        Counter::StepsAdvised,
        "drover_file_steps_advised_total",
        "Parts of files that were announced to the kernel before they were read.",
    ),
    (
        Counter::NoatimeRefused,
        "drover_noatime_refused_total",
        "Files whose access time is updated because the kernel refuses O_NOATIME.",
    ),
];

/// Metrics as text.
struct Exposition(String);

impl Exposition {
    /// Begins a metric. All samples of a metric follow its head.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample. `labels` is empty or `{…}`: labels have no character that must be escaped.
    fn sample(&mut self, name: &str, labels: impl Display, value: impl Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// A metric with one sample, if there is a value.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.metric(name, kind, help);
            self.sample(name, "", value);
        }
    }

    /// A metric with a sample of each worker that has a value.
    fn by_worker<V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        rows: &[CounterRow],
        value: impl Fn(&CounterRow) -> Option<V>,
    ) {
        self.metric(name, kind, help);
        for (worker, row) in rows.iter().enumerate() {
            if let Some(value) = value(row) {
                self.sample(name, format_args!("{{worker=\"{worker}\"}}"), value);
            }
        }
    }
}

/// The whole response's body.
pub(super) fn write(server: &WatchedServer) -> String {
    // First: what the supervisor has told before it answers is heard by then.
    let processes = server.processes.ask();
    let rows = server.counters.rows();
    let mut out = Exposition(String::with_capacity(16 * 1024));
    let facts = server.facts();
    of_server(&mut out, server, &facts, &rows);
    for &(counter, name, help) in COUNTERS {
        out.by_worker((name, "counter", help), &rows, |row| Some(row.get(counter)));
    }
    of_file_bytes(&mut out, &rows);
    of_tls(&mut out, &facts, &rows);
    of_response_times(&mut out, &rows);
    of_threads(&mut out, if facts.processes { &processes } else { &[] }, &rows);
    of_processes(&mut out, &processes, facts.started_at_s);
    out.0
}

fn of_server(
    out: &mut Exposition,
    server: &WatchedServer,
    facts: &ServerFacts,
    rows: &[CounterRow],
) {
    let name = "drover_build_info";
    out.metric(name, "gauge", "1; the labels say what the server is and uses.");
    let labels = format_args!(
        "{{version=\"{}\",dispatch=\"{}\",accept=\"{}\",files=\"{}\"}}",
        facts.version, facts.dispatch, facts.accept, facts.files
    );
    out.sample(name, labels, 1);
    let stopping = u8::from(server.is_stopping());
    out.single("drover_stopping", "gauge", "1 once the server has begun to stop.", Some(stopping));
    out.single("drover_workers", "gauge", "Workers that serve.", Some(server.counters.serving()));
    let name = "drover_reloads_total";
    out.single(name, "counter", "Reloads of the configuration.", Some(facts.reloads));
    let name = "drover_last_reload_successful";
    let help = "0 if the configuration was to be reloaded, and was refused.";
    out.single(name, "gauge", help, Some(u8::from(facts.last_reload_refused.is_none())));
    let open = ("drover_connections", "gauge", "Connections that are open.");
    out.by_worker(open, rows, |row| Some(row.open()));
    let name = "drover_responses_total";
    out.metric(name, "counter", "Responses by their status.");
    for (worker, row) in rows.iter().enumerate() {
        // An interim response is none.
        for status in Status::ALL.iter().filter(|status| status.code() >= 200) {
            let labels = format_args!("{{status=\"{}\",worker=\"{worker}\"}}", status.code());
            out.sample(name, labels, row.responses(*status));
        }
    }
}

/// How many bytes of files each backend has sent.
fn of_file_bytes(out: &mut Exposition, rows: &[CounterRow]) {
    let name = "drover_file_sent_bytes_total";
    let help = "Bytes of files that sockets took, by the backend that has sent them; files that are kept in memory are not counted.";
    out.metric(name, "counter", help);
    for (worker, row) in rows.iter().enumerate() {
        for (backend, bytes) in row.file_bytes() {
            let labels = format_args!("{{backend=\"{backend}\",worker=\"{worker}\"}}");
            out.sample(name, labels, bytes);
        }
    }
}

/// Failed handshakes, and how long certificates are valid; nothing of a server without TLS.
fn of_tls(out: &mut Exposition, facts: &ServerFacts, rows: &[CounterRow]) {
    if facts.certificates.is_empty() {
        return;
    }
    let name = "drover_tls_failed_handshakes_total";
    out.metric(name, "counter", "TLS handshakes that failed, by reason.");
    for (worker, row) in rows.iter().enumerate() {
        for (reason, count) in row.tls_failures() {
            out.sample(name, format_args!("{{reason=\"{reason}\",worker=\"{worker}\"}}"), count);
        }
    }
    let name = "drover_tls_certificate_expiry_seconds";
    out.metric(name, "gauge", "When a certificate expires, in seconds since 1970.");
    for (number, certificate) in facts.certificates.iter().enumerate() {
        // Names of hosts have no character that must be escaped.
        let host = certificate.names.first().map_or("", String::as_str);
        let labels = format_args!("{{certificate=\"{number}\",host=\"{host}\"}}");
        out.sample(name, labels, certificate.expires_at_s);
    }
    of_acme(out, facts);
}

/// How far the server is with certificates that it gets from a CA; nothing without `--acme`.
fn of_acme(out: &mut Exposition, facts: &ServerFacts) {
    if facts.acme.is_empty() {
        return;
    }
    let label = |name: &str| format!("{{host=\"{name}\"}}");
    let name = "drover_acme_next_attempt_seconds";
    let help = "When the CA is asked for the host's next certificate, in seconds since 1970.";
    out.metric(name, "gauge", help);
    facts.acme.iter().for_each(|it| out.sample(name, label(&it.name), it.next_attempt_at_s));
    let name = "drover_acme_failures";
    let help =
        "How many attempts to get the host's certificate have failed since the last success.";
    out.metric(name, "gauge", help);
    facts.acme.iter().for_each(|it| out.sample(name, label(&it.name), it.failures));
}

/// How long responses took: a histogram of each worker.
fn of_response_times(out: &mut Exposition, rows: &[CounterRow]) {
    let name = "drover_response_seconds";
    let help = "How long responses took, from the wait that brought the request's last byte until the kernel had taken the response's.";
    out.metric(name, "histogram", help);
    for (worker, row) in rows.iter().enumerate() {
        let mut so_far = 0;
        for (bucket, count) in row.response_times().iter().enumerate() {
            so_far += count;
            let le = bound_of(bucket).map_or_else(|| "+Inf".to_owned(), |le| le.to_string());
            let labels = format_args!("_bucket{{worker=\"{worker}\",le=\"{le}\"}}");
            out.sample(name, labels, so_far);
        }
        let sum = row.get(Counter::ResponseNanos) as f64 / 1e9;
        out.sample(name, format_args!("_sum{{worker=\"{worker}\"}}"), sum);
        out.sample(name, format_args!("_count{{worker=\"{worker}\"}}"), so_far);
    }
}

/// What the kernel counts for the workers' threads, and for their `processes` if each is one.
fn of_threads(out: &mut Exposition, processes: &[WorkerProcessFacts], rows: &[CounterRow]) {
    let name = "drover_worker_cpu_seconds_total";
    let help = "CPU time that the worker's thread has used, user and system.";
    out.by_worker((name, "counter", help), rows, |row| {
        Some(process::thread_cpu_time_of(row.thread()?)?.as_secs_f64())
    });
    let name = "drover_worker_context_switches_total";
    let help = "How often the worker's thread gave the processor up to wait (voluntary switches).";
    out.by_worker((name, "counter", help), rows, |row| Some(row.waits()));
    if processes.is_empty() {
        return;
    }
    let name = "drover_worker_resident_memory_bytes";
    let help = "Memory of the worker's process that is in the machine's memory.";
    out.by_worker((name, "gauge", help), rows, |row| process::resident_memory(row.thread()?));
    let name = "drover_worker_open_fds";
    out.metric(name, "gauge", "Descriptors that the worker's process has open.");
    // Workers from before a reload have numbers that newer ones have too.
    let newest: BTreeMap<usize, Option<u64>> =
        processes.iter().map(|it| (it.first, it.open_descriptors)).collect();
    for (worker, open) in newest {
        if let Some(open) = open {
            out.sample(name, format_args!("{{worker=\"{worker}\"}}"), open);
        }
    }
}

/// The metrics that clients of Prometheus have of a process: here of all that have workers, together.
fn of_processes(out: &mut Exposition, processes: &[WorkerProcessFacts], started_at_s: f64) {
    let cpu = processes.iter().filter_map(|it| process::cpu_time(it.pid).ok());
    out.single(
        "process_cpu_seconds_total",
        "counter",
        "CPU time that the processes with workers have used, user and system.",
        Some(cpu.map(|time| time.as_secs_f64()).sum::<f64>()),
    );
    let memory = processes.iter().filter_map(|it| process::resident_memory(it.pid));
    out.single(
        "process_resident_memory_bytes",
        "gauge",
        "Memory of the processes with workers that is in the machine's memory.",
        Some(memory.sum::<u64>()),
    );
    let open = processes.iter().map(|it| it.open_descriptors);
    out.single(
        "process_open_fds",
        "gauge",
        "Descriptors that the processes with workers have open.",
        open.sum::<Option<u64>>(),
    );
    out.single(
        "process_max_fds",
        "gauge",
        "How many descriptors each of these processes may have.",
        process::open_files_limit().soft,
    );
    out.single(
        "process_start_time_seconds",
        "gauge",
        "When the server was started, in seconds since 1970.",
        Some(started_at_s),
    );
}
