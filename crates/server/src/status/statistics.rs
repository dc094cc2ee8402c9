//! Counters of what a server has done: written by one worker each, read by anyone.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use drover_http1::Status;
use drover_mech::fileio;
use drover_mech::net::DispatchCounts;
use drover_sys::process;
use drover_sys::shared_counters::{SharedTable, TableRow};
use drover_tls::server::HandshakeFailure;
use serde::Serialize;

use super::response_times::{BUCKETS, bucket_of};

/// The counters of a worker.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Counter {
    Connections,
    Closed,
    Requests,
    BytesSent,
    OpenedElsewhere,
    DirectoriesListed,
    /// Requests for files whose entry was kept, and right.
    CacheHits,
    /// Requests for files that had to be looked up.
    CacheMisses,
    NoatimeRefused,
    FileReads,
    ReadsAtOnce,
    ReadsNotDirect,
    StepsAdvised,
    Errors,
    TimeOuts,
    IdleClosed,
    RefusedByAddress,
    /// Handshakes of TLS in which certificates were shown, and those that have resumed a session.
    TlsFull,
    TlsResumed,
    /// Connections that speak HTTP/2, and those of them that have broken it; requests over them, and streams that were reset.
    Http2Connections,
    Http2Failures,
    Http2Requests,
    Http2Resets,
    /// Connections for which there was no memory.
    OutOfMemory,
    Cut,
    AcceptErrors,
    AcceptsLost,
    Overflows,
    /// The worker's thread, as long as it runs.
    Thread,
    /// How often the ended threads of this worker had waited.
    Waits,
    /// How often the worker has asked its mechanism for events, and the next three: [`DispatchCounts`]. While the
    /// worker runs, they and the counters of the file backend are only current where somebody watches it.
    DispatchWaits,
    Events,
    WouldBlock,
    ShortSends,
    /// Waits of a listener after which there was a connection, counted only where somebody watches.
    AcceptBatches,
    /// How long the responses took together that were sent to their end, in nanoseconds.
    ResponseNanos,
    /// Responses by status, from 200 to 599: the first of [`STATUSES`] counters in a row.
    Responses,
}

/// The statuses that are counted begin here.
const FIRST_STATUS: usize = 200;
const STATUSES: usize = 400;

/// Responses by how long they took: the first of [`BUCKETS`] counters in a row.
const FIRST_TIME: usize = Counter::Responses as usize + STATUSES;

/// Bytes of files that were sent, by backend: the first of [`fileio::BACKENDS`] counters in a row.
const FIRST_FILE_BYTES: usize = FIRST_TIME + BUCKETS;

/// Handshakes of TLS that have failed, by the reason: the first of as many counters as there are reasons.
const FIRST_TLS_FAILURE: usize = FIRST_FILE_BYTES + fileio::BACKENDS;

/// How many counters a worker has.
const COUNTS: usize = FIRST_TLS_FAILURE + HandshakeFailure::ALL.len();

/// Where the responses with a status are counted.
fn place_of(status: Status) -> usize {
    Counter::Responses as usize + usize::from(status.code()) - FIRST_STATUS
}

/// The counters of all workers: each writes its own, anyone may read. In memory that processes share.
#[derive(Clone, Debug)]
pub(crate) struct CounterTable(Arc<SharedTable<COUNTS>>);

impl CounterTable {
    /// A table for `workers` workers.
    pub(crate) fn new(workers: usize) -> io::Result<CounterTable> {
        SharedTable::new(workers).map(CounterTable)
    }

    /// The table that another process has made.
    pub(crate) fn attach(file: OwnedFd) -> io::Result<CounterTable> {
        SharedTable::attach(file).map(CounterTable)
    }

    /// A table that holds these numbers.
    pub(crate) fn holding(rows: &[CounterRow]) -> io::Result<CounterTable> {
        let table = CounterTable::new(rows.len())?;
        for (worker, row) in rows.iter().enumerate() {
            let counters = table.of(worker);
            for (place, count) in row.0.iter().enumerate() {
                counters.0[place].store(*count, Ordering::Relaxed);
            }
        }
        Ok(table)
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// The counters of one worker.
    pub(crate) fn of(&self, worker: usize) -> WorkerCounters {
        WorkerCounters(self.0.row(worker))
    }

    /// Counts the connections of a worker as closed, because its process is gone. Returns how many were
    /// open.
    pub(crate) fn close_all(&self, worker: usize) -> u64 {
        let worker = self.of(worker);
        let open = worker.get(Counter::Connections).saturating_sub(worker.get(Counter::Closed));
        worker.add(Counter::Closed, open);
        open
    }

    /// All counters of each worker.
    pub(crate) fn rows(&self) -> Vec<CounterRow> {
        (0..self.0.rows().len()).map(|worker| self.of(worker).read()).collect()
    }

    /// Whether both are one table.
    pub(super) fn is(&self, other: &CounterTable) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Counters as they were read, of one worker or of several together.
#[derive(Clone, Debug)]
pub(crate) struct CounterRow([u64; COUNTS]);

impl CounterRow {
    pub(crate) fn sum(rows: &[CounterRow]) -> CounterRow {
        CounterRow(std::array::from_fn(|place| rows.iter().map(|row| row.0[place]).sum()))
    }

    /// Both together.
    pub(super) fn plus(&self, other: &CounterRow) -> CounterRow {
        CounterRow(std::array::from_fn(|place| self.0[place] + other.0[place]))
    }

    pub(crate) fn get(&self, what: Counter) -> u64 {
        self.0[what as usize]
    }

    /// How many responses had the status.
    pub(crate) fn responses(&self, status: Status) -> u64 {
        self.0[place_of(status)]
    }

    /// How many responses had a status of this first digit, 2 to 5.
    pub(crate) fn responses_of_class(&self, class: usize) -> u64 {
        let first = Counter::Responses as usize + class * 100 - FIRST_STATUS;
        self.0[first..first + 100].iter().sum()
    }

    /// How many responses took so long, by buckets.
    pub(crate) fn response_times(&self) -> &[u64] {
        &self.0[FIRST_TIME..FIRST_FILE_BYTES]
    }

    /// How many bytes of files each backend has sent, by its name.
    pub(crate) fn file_bytes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = fileio::ALL.iter().map(|backend| backend.name);
        names.zip(self.0[FIRST_FILE_BYTES..].iter().copied())
    }

    /// How many handshakes of TLS have failed for each reason.
    pub(crate) fn tls_failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = HandshakeFailure::ALL.iter().map(|failure| failure.name());
        names.zip(self.0[FIRST_TLS_FAILURE..].iter().copied())
    }

    /// How many connections are open. Those of a process that was killed count as open until
    /// [`CounterTable::close_all`].
    pub(crate) fn open(&self) -> u64 {
        self.get(Counter::Connections).saturating_sub(self.get(Counter::Closed))
    }

    /// The number of the worker's thread, as long as it runs.
    pub(crate) fn thread(&self) -> Option<u32> {
        u32::try_from(self.get(Counter::Thread)).ok().filter(|thread| *thread > 0)
    }

    /// The counters with the names that others know.
    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            connections: self.get(Counter::Connections),
            closed: self.get(Counter::Closed),
            requests: self.get(Counter::Requests),
            responses_2xx: self.responses_of_class(2),
            responses_3xx: self.responses_of_class(3),
            responses_4xx: self.responses_of_class(4),
            responses_5xx: self.responses_of_class(5),
            bytes_sent: self.get(Counter::BytesSent),
            opened_elsewhere: self.get(Counter::OpenedElsewhere),
            directories_listed: self.get(Counter::DirectoriesListed),
            cache_hits: self.get(Counter::CacheHits),
            cache_misses: self.get(Counter::CacheMisses),
            noatime_refused: self.get(Counter::NoatimeRefused),
            file_reads: self.get(Counter::FileReads),
            reads_at_once: self.get(Counter::ReadsAtOnce),
            reads_not_direct: self.get(Counter::ReadsNotDirect),
            steps_advised: self.get(Counter::StepsAdvised),
            errors: self.get(Counter::Errors),
            time_outs: self.get(Counter::TimeOuts),
            idle_closed: self.get(Counter::IdleClosed),
            refused_by_address: self.get(Counter::RefusedByAddress),
            tls_handshakes: self.get(Counter::TlsFull) + self.get(Counter::TlsResumed),
            tls_resumed: self.get(Counter::TlsResumed),
            tls_failed: self.tls_failures().map(|(_, count)| count).sum(),
            out_of_memory: self.get(Counter::OutOfMemory),
            cut: self.get(Counter::Cut),
            accept_errors: self.get(Counter::AcceptErrors),
            accepts_lost: self.get(Counter::AcceptsLost),
            dispatch_waits: self.get(Counter::DispatchWaits),
            events: self.get(Counter::Events),
            would_block: self.get(Counter::WouldBlock),
            overflows: self.get(Counter::Overflows),
        }
    }

    /// What the worker of these counters has done.
    pub(super) fn worker_statistics(&self) -> WorkerStatistics {
        WorkerStatistics {
            connections: self.get(Counter::Connections),
            requests: self.get(Counter::Requests),
            accept_errors: self.get(Counter::AcceptErrors),
            accepts_lost: self.get(Counter::AcceptsLost),
            overflows: self.get(Counter::Overflows),
            waits: self.waits(),
        }
    }

    /// The same counters of a worker that another one has succeeded: without a thread, whose waits so far are counted as
    /// those of ended threads.
    pub(super) fn succeeded(mut self) -> CounterRow {
        self.0[Counter::Waits as usize] = self.waits();
        self.0[Counter::Thread as usize] = 0;
        self
    }

    /// How often the worker's threads have given the processor up to wait, those that have ended included.
    pub(crate) fn waits(&self) -> u64 {
        let now = self.thread().and_then(process::waits_of);
        self.get(Counter::Waits) + now.unwrap_or(0)
    }
}

/// One worker's counters, which only its thread writes, so that adding needs no locked instruction.
#[derive(Clone, Debug)]
pub(crate) struct WorkerCounters(TableRow<COUNTS>);

impl WorkerCounters {
    pub(crate) fn add(&self, what: Counter, count: u64) {
        self.add_at(what as usize, count);
    }

    #[inline]
    fn add_at(&self, place: usize, count: u64) {
        let sum = &self.0[place];
        sum.store(sum.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub(crate) fn response(&self, status: Status) {
        self.add_at(place_of(status), 1);
    }

    pub(crate) fn tls_failure(&self, failure: HandshakeFailure) {
        self.add_at(FIRST_TLS_FAILURE + failure as usize, 1);
    }

    /// So many responses took so long.
    #[inline]
    pub(crate) fn response_times(&self, nanos: u64, responses: u32) {
        self.add_at(FIRST_TIME + bucket_of(nanos), responses.into());
        self.add(Counter::ResponseNanos, nanos * u64::from(responses));
    }

    fn get(&self, what: Counter) -> u64 {
        self.0[what as usize].load(Ordering::Relaxed)
    }

    /// From now on, the calling thread is this worker's thread.
    pub(crate) fn begin(&self) {
        self.0[Counter::Thread as usize].store(process::thread_number().into(), Ordering::Relaxed);
    }

    fn read(&self) -> CounterRow {
        CounterRow(std::array::from_fn(|place| self.0[place].load(Ordering::Relaxed)))
    }

    /// Adds how often the calling thread and its helpers have waited, when the thread is about to end.
    pub(crate) fn end(&self, helpers: u64) {
        self.0[Counter::Thread as usize].store(0, Ordering::Relaxed);
        self.add(Counter::Waits, process::thread_waits().unwrap_or(0) + helpers);
    }
}

/// The counters of a worker that its mechanism and its file backend count by themselves.
const KEPT_APART: [Counter; 8] = [
    Counter::DispatchWaits,
    Counter::Events,
    Counter::WouldBlock,
    Counter::ShortSends,
    Counter::FileReads,
    Counter::ReadsAtOnce,
    Counter::ReadsNotDirect,
    Counter::StepsAdvised,
];

/// Adds what a worker's mechanism and file backend count to the worker's counters.
pub(crate) struct CountsCarrier {
    counters: WorkerCounters,
    files: Arc<fileio::FileIoCounts>,
    /// What was added before, in the order of [`KEPT_APART`], then the bytes of files by backend.
    added: [u64; KEPT_APART.len() + fileio::BACKENDS],
}

impl CountsCarrier {
    pub(crate) fn new(counters: &WorkerCounters, files: &Arc<fileio::FileIoCounts>) -> Self {
        let (counters, files) = (counters.clone(), Arc::clone(files));
        CountsCarrier { counters, files, added: [0; KEPT_APART.len() + fileio::BACKENDS] }
    }

    /// Adds what is new since the last call.
    pub(crate) fn add(&mut self, dispatch: DispatchCounts) {
        let DispatchCounts { waits, events, would_block, short_sends } = dispatch;
        let fileio::FileIoCounts { reads, at_once, not_direct, advised, sent } = &*self.files;
        let [reads, at_once, not_direct, advised] =
            [reads, at_once, not_direct, advised].map(|count| count.load(Ordering::Relaxed));
        let now = [waits, events, would_block, short_sends, reads, at_once, not_direct, advised];
        let now = now.into_iter().chain(sent.iter().map(|bytes| bytes.load(Ordering::Relaxed)));
        let places = KEPT_APART.into_iter().map(|it| it as usize).chain(FIRST_FILE_BYTES..);
        for ((place, added), now) in places.zip(&mut self.added).zip(now) {
            if now != *added {
                self.counters.add_at(place, now - std::mem::replace(added, now));
            }
        }
    }
}

/// The counters of one worker since the server started, including processes that were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerStatistics {
    /// Connections accepted.
    pub connections: u64,
    /// Request heads read without fault.
    pub requests: u64,
    /// Attempts to accept that failed.
    pub accept_errors: u64,
    /// Wake-ups for a connection that another worker had taken already.
    pub accepts_lost: u64,
    /// Overflows of the kernel's queue of events, each of which has lost at least one event.
    pub overflows: u64,
    /// How often its threads gave the processor up to wait (voluntary context switches). Those of a
    /// process that was killed are not known.
    pub waits: u64,
}

/// How unequal `shares` are: the standard deviation over the mean, 0 for equal ones.
#[must_use]
pub fn coefficient_of_variation(shares: &[u64]) -> f64 {
    let n = shares.len() as f64;
    let mean = shares.iter().sum::<u64>() as f64 / n;
    let variance = shares.iter().map(|&share| (share as f64 - mean).powi(2)).sum::<f64>() / n;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// What a server has done since it started, all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Connections accepted.
    pub connections: u64,
    /// Accepted connections that have ended.
    pub closed: u64,
    /// Request heads read without fault.
    pub requests: u64,
    /// Responses with a status of 200 to 299.
    pub responses_2xx: u64,
    /// Responses with a status of 300 to 399.
    pub responses_3xx: u64,
    /// Responses with a status of 400 to 499.
    pub responses_4xx: u64,
    /// Responses with a status of 500 to 599.
    pub responses_5xx: u64,
    /// Bytes of the responses that the kernel took, heads included.
    pub bytes_sent: u64,
    /// Files that other threads were asked to open, because a disk might be needed.
    pub opened_elsewhere: u64,
    /// Directories that were read to make a list of them (`--listing`); a list may answer many requests.
    pub directories_listed: u64,
    /// Requests for files whose entry was kept, and right.
    pub cache_hits: u64,
    /// Requests for files that had to be looked up: by the worker, or by other threads.
    pub cache_misses: u64,
    /// Files whose access time is updated although it should not be: the kernel refuses O_NOATIME for
    /// files of another user.
    pub noatime_refused: u64,
    /// Reads of files that are not part of a send. Counted when a worker ends.
    pub file_reads: u64,
    /// Reads by the workers' own threads, because the bytes were in the page cache. Counted when a worker
    /// ends.
    pub reads_at_once: u64,
    /// Reads that should have bypassed the page cache (O_DIRECT), and could not. Counted when a worker
    /// ends.
    pub reads_not_direct: u64,
    /// Parts of files that were announced to the kernel before they were read. Counted when a worker
    /// ends.
    pub steps_advised: u64,
    /// Connections that an error ended: reset by the peer, or a file cut short.
    pub errors: u64,
    /// Connections that a time-out ended, or that were closed for others.
    pub time_outs: u64,
    /// Idle connections that were closed to make room for others.
    pub idle_closed: u64,
    /// Connections that were closed at once because their client had as many as it may have.
    pub refused_by_address: u64,
    /// Handshakes of TLS that have come to their end.
    pub tls_handshakes: u64,
    /// Those of them that have resumed a session.
    pub tls_resumed: u64,
    /// Handshakes of TLS that have failed.
    pub tls_failed: u64,
    /// Connections closed because the kernel gave the process no more memory.
    pub out_of_memory: u64,
    /// Connections with a request or a response under way that the end of the grace cut.
    pub cut: u64,
    /// Attempts to accept that failed.
    pub accept_errors: u64,
    /// Wake-ups for a connection that another worker had taken already.
    pub accepts_lost: u64,
    /// How often the workers have asked their dispatch mechanism for events. This and the next two are counted when a worker
    /// ends, and at each wait with [`Config::admin`](crate::Config::admin) or `counts_events`.
    pub dispatch_waits: u64,
    /// Events that the dispatch mechanism has reported.
    pub events: u64,
    /// System calls on sockets that could do nothing yet.
    pub would_block: u64,
    /// Overflows of the kernel's queue of events, each of which has lost at least one event.
    pub overflows: u64,
}

/// The figures in words, separated by commas; figures that are 0 are left out.
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = [
            (self.connections, "connection", "connections"),
            (self.requests, "request", "requests"),
            (self.responses_2xx, "response 2xx", "responses 2xx"),
            (self.responses_3xx, "response 3xx", "responses 3xx"),
            (self.responses_4xx, "response 4xx", "responses 4xx"),
            (self.responses_5xx, "response 5xx", "responses 5xx"),
            (self.bytes_sent, "byte sent", "bytes sent"),
            (self.time_outs, "time-out", "time-outs"),
            (
                self.idle_closed,
                "of them idle ones closed for others",
                "of them idle ones closed for others",
            ),
            (
                self.refused_by_address,
                "connection too many of a client",
                "connections too many of a client",
            ),
            (self.tls_handshakes, "TLS handshake", "TLS handshakes"),
            (self.tls_resumed, "of them resumed", "of them resumed"),
            (self.tls_failed, "failed TLS handshake", "failed TLS handshakes"),
            (self.out_of_memory, "connection without memory", "connections without memory"),
            (self.cut, "connection cut", "connections cut"),
            (self.errors, "connection failed", "connections failed"),
            (self.accept_errors, "failure to accept", "failures to accept"),
            (self.accepts_lost, "accept lost", "accepts lost"),
            (self.overflows, "overflow of the queue of events", "overflows of the queue of events"),
            (
                self.opened_elsewhere,
                "file opened by other threads",
                "files opened by other threads",
            ),
            (self.directories_listed, "directory listed", "directories listed"),
            (self.noatime_refused, "file refused O_NOATIME", "files refused O_NOATIME"),
            (self.file_reads, "file read", "file reads"),
            (self.reads_at_once, "of them at once", "of them at once"),
            (self.reads_not_direct, "read not direct", "reads not direct"),
            (self.steps_advised, "step advised", "steps advised"),
        ];
        let mut separator = "";
        for (count, one, many) in figures.into_iter().filter(|&(count, ..)| count > 0) {
            write!(f, "{separator}{count} {}", if count == 1 { one } else { many })?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("no connection") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_over_all_workers_and_by_class_of_status() {
        let counter_table = CounterTable::new(2).unwrap();
        let workers = [counter_table.of(0), counter_table.of(1)];
        workers[0].add(Counter::Requests, 2);
        workers[1].add(Counter::Requests, 3);
        for status in [Status::Ok, Status::PartialContent, Status::NotFound] {
            workers[0].response(status);
        }
        workers[1].response(Status::ServiceUnavailable);
        let expected = Statistics {
            requests: 5,
            responses_2xx: 2,
            responses_4xx: 1,
            responses_5xx: 1,
            ..Statistics::default()
        };
        let rows = counter_table.rows();
        assert_eq!(CounterRow::sum(&rows).statistics(), expected);
        let requests: Vec<u64> = rows.iter().map(|row| row.get(Counter::Requests)).collect();
        assert_eq!(requests, [2, 3]);
    }

    #[test]
    fn what_was_done_is_told_in_words_without_zeros() {
        let done = Statistics { connections: 1, requests: 2, bytes_sent: 70, ..Default::default() };
        assert_eq!(done.to_string(), "1 connection, 2 requests, 70 bytes sent");
        assert_eq!(Statistics::default().to_string(), "no connection");
    }

    #[test]
    fn equal_shares_do_not_vary_and_one_for_all_does() {
        assert_eq!(coefficient_of_variation(&[5, 5, 5]), 0.0);
        assert_eq!(coefficient_of_variation(&[0, 0]), 0.0);
        assert!((coefficient_of_variation(&[12, 0, 0, 0]) - 3f64.sqrt()).abs() < 1e-9);
    }
}
