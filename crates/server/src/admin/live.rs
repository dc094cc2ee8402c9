//! What a server does now, as `/status.json`, `/status/events` and the page tell it. Its schema is
//! `schemas/drover.status-2.schema.json`.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_http1::Status;
use drover_sys::process;
use serde::Serialize;

use super::{ServerFacts, WatchedServer};
use crate::Statistics;
use crate::status::response_times::ResponseTimes;
use crate::status::statistics::{Counter, CounterRow};

/// How often the counters are read, so that there are rates.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// How many rates of the past are kept: those of a minute, at both of its ends.
const HISTORY: usize = 61;

/// The state of a server at one moment.
#[derive(Debug, Serialize)]
pub(super) struct LiveStatus {
    schema: &'static str,
    /// `serving`, or `stopping`.
    state: &'static str,
    /// When the counters were read, in seconds since 1970.
    at_s: f64,
    #[serde(flatten)]
    facts: ServerFacts,
    /// How many connections are open.
    open: u64,
    rates: LiveRates,
    /// All workers together since the server started.
    all: Statistics,
    /// Responses by their status, without those that there were none of.
    responses: BTreeMap<u16, u64>,
    /// How long they took, since the server started.
    response_times: ResponseTimes,
    /// Bytes of files that each backend has sent, without those that have sent none.
    file_bytes: BTreeMap<&'static str, u64>,
    pub(super) workers: Vec<LiveWorker>,
}

/// What happened per second, over the last second or so.
#[derive(Debug, Serialize)]
struct LiveRates {
    /// The time between the two readings that the rates are of, in seconds; 0: there is only one, and no rate.
    over_s: f64,
    connections: f64,
    requests: f64,
    responses_2xx: f64,
    responses_3xx: f64,
    responses_4xx: f64,
    responses_5xx: f64,
    bytes_sent: f64,
    /// Requests per second in each of the last seconds, the newest last; [`HISTORY`] at most.
    history: VecDeque<f64>,
    /// The largest number of these.
    history_most: f64,
}

/// What one worker really does.
#[derive(Debug, Serialize)]
pub(super) struct LiveWorker {
    worker: usize,
    /// How many connections are open.
    open: u64,
    /// Requests per second.
    requests_rate: f64,
    connections: u64,
    requests: u64,
    /// Waits of the dispatch mechanism, and the events that they reported.
    waits: u64,
    events: u64,
    events_per_wait: Option<f64>,
    /// Waits of a listener after which there was a connection.
    accept_batches: u64,
    accepts_per_batch: Option<f64>,
    accepts_lost: u64,
    accept_errors: u64,
    would_block: u64,
    short_sends: u64,
    opened_elsewhere: u64,
    file_reads: u64,
    reads_at_once: u64,
    overflows: u64,
    /// Voluntary context switches of the worker's threads.
    context_switches: u64,
    /// CPU time of the worker's thread, in seconds, if the kernel tells it.
    cpu_s: Option<f64>,
}

/// The two latest readings of the counters, and what earlier ones have shown.
#[derive(Debug)]
pub(super) struct CounterSamples {
    before: (Instant, Vec<CounterRow>),
    last: (Instant, Vec<CounterRow>),
    /// Requests per second between readings, the newest last.
    history: VecDeque<f64>,
}

impl CounterSamples {
    pub(super) fn new(server: &WatchedServer, now: Instant) -> CounterSamples {
        let first = (now, server.counters.rows());
        CounterSamples { before: first.clone(), last: first, history: VecDeque::new() }
    }

    /// Reads the counters once more.
    pub(super) fn read(&mut self, server: &WatchedServer, now: Instant) {
        let rows = server.counters.rows();
        self.before = std::mem::replace(&mut self.last, (now, rows));
        self.history.push_back(self.rate(|row| row.get(Counter::Requests)));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    fn over_s(&self) -> f64 {
        (self.last.0 - self.before.0).as_secs_f64()
    }

    /// How much a number of a worker grew per second.
    /// 0 for a worker that is newer than the readings.
    fn worker_rate(&self, worker: usize, number: impl Fn(&CounterRow) -> u64) -> f64 {
        let [last, before] =
            [&self.last, &self.before].map(|(_, rows)| rows.get(worker).map(&number));
        let grown = last.unwrap_or(0).saturating_sub(before.unwrap_or(0));
        if grown == 0 { 0.0 } else { grown as f64 / self.over_s() }
    }

    fn rate(&self, number: impl Fn(&CounterRow) -> u64) -> f64 {
        (0..self.last.1.len()).map(|worker| self.worker_rate(worker, &number)).sum()
    }

    fn rates(&self) -> LiveRates {
        let class = |class| self.rate(|row| row.responses_of_class(class));
        LiveRates {
            over_s: self.over_s(),
            connections: self.rate(|row| row.get(Counter::Connections)),
            requests: self.rate(|row| row.get(Counter::Requests)),
            responses_2xx: class(2),
            responses_3xx: class(3),
            responses_4xx: class(4),
            responses_5xx: class(5),
            bytes_sent: self.rate(|row| row.get(Counter::BytesSent)),
            history: self.history.clone(),
            history_most: self.history.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl LiveStatus {
    /// Reads the counters; rates are those of `samples`.
    pub(super) fn now(server: &WatchedServer, samples: &CounterSamples) -> LiveStatus {
        let rows = server.counters.rows();
        let sum = CounterRow::sum(&rows);
        let counted = Status::ALL.iter().filter(|status| status.code() >= 200);
        let counted = counted.map(|status| (status.code(), sum.responses(*status)));
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let workers = rows.iter().enumerate();
        LiveStatus {
            schema: "drover.status/2",
            state: if server.is_stopping() { "stopping" } else { "serving" },
            at_s: at.as_secs_f64(),
            facts: server.facts(),
            open: rows.iter().map(CounterRow::open).sum(),
            rates: samples.rates(),
            all: sum.statistics(),
            responses: counted.filter(|(_, count)| *count > 0).collect(),
            file_bytes: sum.file_bytes().filter(|(_, bytes)| *bytes > 0).collect(),
            response_times: ResponseTimes::new(
                sum.response_times(),
                sum.get(Counter::ResponseNanos),
            ),
            workers: workers.map(|(worker, row)| LiveWorker::now(worker, row, samples)).collect(),
        }
    }
}

impl LiveWorker {
    fn now(worker: usize, row: &CounterRow, samples: &CounterSamples) -> LiveWorker {
        let per = |what: Counter, of: Counter| match row.get(of) {
            0 => None,
            of => Some(row.get(what) as f64 / of as f64),
        };
        LiveWorker {
            worker,
            open: row.open(),
            requests_rate: samples.worker_rate(worker, |row| row.get(Counter::Requests)),
            connections: row.get(Counter::Connections),
            requests: row.get(Counter::Requests),
            waits: row.get(Counter::DispatchWaits),
            events: row.get(Counter::Events),
            events_per_wait: per(Counter::Events, Counter::DispatchWaits),
            accept_batches: row.get(Counter::AcceptBatches),
            accepts_per_batch: per(Counter::Connections, Counter::AcceptBatches),
            accepts_lost: row.get(Counter::AcceptsLost),
            accept_errors: row.get(Counter::AcceptErrors),
            would_block: row.get(Counter::WouldBlock),
            short_sends: row.get(Counter::ShortSends),
            opened_elsewhere: row.get(Counter::OpenedElsewhere),
            file_reads: row.get(Counter::FileReads),
            reads_at_once: row.get(Counter::ReadsAtOnce),
            overflows: row.get(Counter::Overflows),
            context_switches: row.waits(),
            cpu_s: row.thread().and_then(process::thread_cpu_time_of).map(|it| it.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::process::ProcessQuestions;
    use std::sync::{Arc, Mutex};

    use crate::status::history::CounterHistory;
    use crate::status::statistics::CounterTable;
    use crate::{Config, ContentSource};

    #[test]
    fn rates_are_of_the_two_latest_readings() {
        let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
        let config = Config::new(ContentSource::Fixed(1), mechanism);
        let facts = ServerFacts::of(&config, false, &[]);
        let counter_table = CounterTable::new(2).unwrap();
        let workers = [counter_table.of(0), counter_table.of(1)];
        let counters = CounterHistory::new(counter_table);
        let facts = Arc::new(Mutex::new(facts));
        let (control, _supervisor) = drover_sys::message_socket::MessageSocket::pair().unwrap();
        let processes = std::sync::Arc::new(ProcessQuestions::to(std::sync::Arc::new(control)));
        let server = WatchedServer { counters, stopping: Default::default(), facts, processes };
        let begin = Instant::now();
        let mut samples = CounterSamples::new(&server, begin);
        let at = |samples: &CounterSamples| LiveStatus::now(&server, samples).rates;
        workers[0].add(Counter::Requests, 5);
        assert_eq!((at(&samples).requests, at(&samples).over_s), (0.0, 0.0));
        samples.read(&server, begin + Duration::from_secs(1));
        assert_eq!(at(&samples).requests, 5.0);
        workers[0].add(Counter::Requests, 2);
        workers[1].add(Counter::Requests, 1);
        workers[1].response(Status::NotFound);
        samples.read(&server, begin + Duration::from_secs(3));
        let rates = at(&samples);
        assert_eq!((rates.requests, rates.responses_4xx, rates.responses_2xx), (1.5, 0.5, 0.0));
        assert_eq!((rates.history, rates.history_most), ([5.0, 1.5].into(), 5.0));
        assert_eq!(LiveStatus::now(&server, &samples).workers[1].requests_rate, 0.5);
    }
}
