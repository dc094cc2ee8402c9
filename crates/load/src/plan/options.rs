//! What a run is asked to do, checked before it begins.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use drover_mech::mechanisms::Mechanism;
use drover_sys::process;
use drover_sys::socket::Address;

use crate::plan::http2::HttpProtocol;
use crate::plan::order::Order;
use crate::plan::origin::Origins;
use crate::plan::origin::body_hash;
use crate::plan::request::RequestTemplate;
use crate::plan::shape::{LoadShare, Schedule, SessionOptions, Unit};
use crate::plan::sources::{SourceList, Sources};
use crate::plan::status::StatusSet;
use crate::plan::tls::TargetTlsOptions;
use crate::warning::{Warning, WarningCode};
use drover_usage::UsageError;

/// What is wanted of a run, as flags say it.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// What is asked for: each connection goes to one of the servers.
    pub asked: Vec<RequestTemplate>,
    /// The order in which the URLs are requested.
    pub order: Order,
    /// What was noticed about the requests before the run: the first warnings of its result.
    pub warnings: Vec<Warning>,
    /// A unix socket to connect to in place of the URLs' hosts.
    pub unix: Option<PathBuf>,
    /// Which version of HTTP is spoken.
    pub protocol: HttpProtocol,
    /// How TLS is spoken with the servers of `https://` URLs.
    pub tls: TargetTlsOptions,
    /// Local addresses to connect from; empty: the kernel chooses, or they are spread over the
    /// loopback network where one has too few ports.
    pub sources: SourceList,
    /// How many connections send requests.
    pub connections: u32,
    /// How many idle connections are opened in addition, before the measured ones. They send nothing.
    pub idle: u32,
    /// When requests or connections start; `None` is a closed loop, in which each connection sends
    /// its next request when it has the response to the last one. The server sets the pace: a slow
    /// server gets fewer requests.
    pub schedule: Option<Schedule>,
    /// What each connection does between its calls. With a number of calls, connections are opened
    /// when a request needs them; otherwise before the window, and used as long as the server lets
    /// them be.
    pub session: SessionOptions,
    /// How many requests each connection makes before the window; they are not counted. Only of
    /// connections that are opened before it.
    pub warm_up: u32,
    /// The length of the measured window; `None`: until `requests` are done, or for ever.
    pub duration: Option<Duration>,
    /// In how many turns of `duration` each requests are sent. Between two turns nothing is under way, and the listener decides when
    /// the next begins. Only of a closed loop.
    pub turns: u32,
    /// How many requests are sent at most.
    pub requests: Option<u64>,
    /// Whether a connection that sends requests is opened again when the server has closed it.
    pub reopen: bool,
    /// Whether an idle connection is opened again when the server has closed it.
    pub reopen_idle: bool,
    /// How long a response, or the opening of a connection, may take.
    pub timeout: Duration,
    /// How long each body must be.
    pub expect_size: Option<u64>,
    /// The statuses that responses may have.
    pub expect_status: StatusSet,
    /// Whether the bodies of all successful responses to a request must be equal.
    pub verify: bool,
    /// The body that all successful responses must have, if it is known before the run.
    pub expect_body: Option<Vec<u8>>,
    /// How many bytes of a response each connection reads per second; `None`: no limit.
    pub read_rate: Option<u32>,
    /// How many threads send, each with its share of the connections.
    pub threads: u32,
    /// Whether each thread stays on a processor of its own.
    pub pin: bool,
    /// How long before each moment of the schedule the threads stay awake.
    pub spin: Duration,
    /// How many processes send, each with its share of the connections.
    pub processes: u32,
    /// The number of this process among the sending ones, from 0; `None`: this process starts the
    /// others, or is the only one.
    pub process: Option<u32>,
    /// The dispatch mechanism.
    pub mechanism: &'static Mechanism,
    /// Seeds what is random: arrivals, rests, and the order in which connections are used first.
    pub seed: u64,
}

impl LoadOptions {
    /// A closed loop of one connection, which asks for each of `asked` in turn until it is stopped.
    #[must_use]
    pub fn new(asked: Vec<RequestTemplate>, mechanism: &'static Mechanism) -> LoadOptions {
        LoadOptions {
            asked,
            order: Order::Sequential,
            warnings: Vec::new(),
            unix: None,
            protocol: HttpProtocol::default(),
            tls: TargetTlsOptions::default(),
            sources: SourceList::default(),
            connections: 1,
            idle: 0,
            schedule: None,
            session: SessionOptions::default(),
            warm_up: 0,
            duration: None,
            turns: 1,
            requests: None,
            reopen: true,
            reopen_idle: false,
            timeout: Duration::from_secs(10),
            expect_size: None,
            expect_status: StatusSet::default(),
            verify: false,
            expect_body: None,
            read_rate: None,
            threads: 1,
            pin: false,
            spin: Duration::ZERO,
            processes: 1,
            process: None,
            mechanism,
            seed: 1,
        }
    }

    /// Whether a run can be cut into turns: a pause would tear a schedule, and processes do not hear of each other's.
    fn can_take_turns(&self) -> bool {
        self.schedule.is_none() && self.duration.is_some() && self.processes == 1
    }
}

/// Options that can be carried out, with what follows from them.
pub(crate) struct LoadPlan {
    options: LoadOptions,
    pub(crate) origins: Origins,
    /// The processor of each thread, if threads are pinned.
    pub(crate) processors: Vec<usize>,
    /// Warnings about the run that are known before it begins.
    pub(crate) preflight_warnings: Vec<Warning>,
}

impl std::ops::Deref for LoadPlan {
    type Target = LoadOptions;

    fn deref(&self) -> &LoadOptions {
        &self.options
    }
}

/// Descriptors of a process beside its connections: standard streams, what it inherited and what
/// each worker needs for its mechanism and waker.
const OWN_DESCRIPTORS: u64 = 8;
const DESCRIPTORS_PER_WORKER: u64 = 4;

/// The least and the most bytes that a slow reader takes at a time; see socket(7), `SO_RCVBUF`.
const SMALLEST_READ: usize = 4096;
const LARGEST_READ: usize = 1 << 20;

impl LoadPlan {
    pub(crate) fn new(mut options: LoadOptions) -> anyhow::Result<LoadPlan> {
        if options.schedule.as_ref().is_some_and(|schedule| schedule.unit == Unit::Connection) {
            options.session.calls.get_or_insert(1);
        }
        if options.turns > 1 && !options.can_take_turns() {
            let why = "--turns: of a closed loop with a --duration and one process";
            return Err(UsageError::new(why).into());
        }
        check_streams(&options)?;
        let total = options.connections.saturating_add(options.idle);
        if options.process.is_some_and(|process| process >= options.processes) {
            return Err(UsageError::new("--process: count them from 0, below --processes").into());
        }
        let most = options.connections.max(options.idle);
        if options.processes > most {
            return Err(UsageError::new(format!(
                "--processes: {} have too few connections with --connections {}: each needs one",
                options.processes, options.connections
            ))
            .into());
        }
        let mut preflight_warnings = std::mem::take(&mut options.warnings);
        preflight_warnings.extend(fewer_threads(&mut options, most));
        let workers = options.threads * options.processes;
        let own = total.div_ceil(options.processes);
        preflight_warnings.extend(too_few_descriptors(own, options.threads)?);
        let (unix, protocol) = (options.unix.as_deref(), options.protocol);
        let mut origins = Origins::new(&options.asked, &options.order, unix, protocol)?;
        origins.set_up_tls(&options.tls, own.div_ceil(options.threads.max(1)), protocol)?;
        preflight_warnings.extend(options.tls.warning().filter(|_| origins.any_tls()));
        let churn = options.session.calls.is_some();
        let ports = options.sources.ports_each();
        let shortages = origins.deal(
            options.connections,
            options.idle,
            churn,
            |address, count| match address {
                Address::Ip(target) => {
                    Sources::find(target.ip(), count, churn, ports, &options.sources)
                }
                Address::Unix(_) => Ok((Sources::Default, None)),
            },
        )?;
        preflight_warnings.extend(shortages);
        if let Some(body) = &options.expect_body {
            origins.expect_body(body_hash(body));
        }
        let processors = if options.pin { processors(workers)? } else { Vec::new() };
        Ok(LoadPlan { options, origins, processors, preflight_warnings })
    }

    /// The share of one thread of this process in the load of all processes.
    pub(crate) fn share(&self, thread: u32) -> LoadShare {
        match self.process {
            None => LoadShare { worker: thread, workers: self.threads },
            Some(process) => LoadShare {
                worker: process * self.threads + thread,
                workers: self.processes * self.threads,
            },
        }
    }

    /// This process's part of `total` things.
    pub(crate) fn part(&self, total: u32) -> u64 {
        (0..self.threads).map(|thread| self.share(thread).of(total.into())).sum()
    }

    /// Whether all connections are opened before the window begins.
    pub(crate) fn opens_early(&self) -> bool {
        self.session.calls.is_none()
    }

    /// The calls of each connection that a schedule starts; `None`: it starts requests.
    pub(crate) fn session_calls(&self) -> Option<u32> {
        let schedule = self.schedule.as_ref()?;
        self.session.calls.filter(|_| schedule.unit == Unit::Connection)
    }

    /// How many requests a worker may send, or schedule; the shares of all workers add up. Only the
    /// last of all sessions may be short.
    pub(crate) fn quota(&self, share: LoadShare) -> u64 {
        let Some(requests) = self.requests else { return u64::MAX };
        let calls = u64::from(self.session_calls().unwrap_or(1));
        let last = if share.worker + 1 == share.workers { requests % calls } else { 0 };
        share.of(requests / calls) * calls + last
    }

    /// Requests per second that the schedule asks for in the first `window` seconds.
    pub(crate) fn offered_rate(&self, window: f64) -> Option<f64> {
        let mean = self.schedule.as_ref()?.rate.mean(self.duration, window);
        let part = match self.process {
            None => 1.0,
            Some(_) => 1.0 / f64::from(self.processes),
        };
        Some(mean * f64::from(self.session_calls().unwrap_or(1)) * part)
    }

    /// How many bytes a slow reader takes at a time; `None`: readers are not slow. Pieces are those
    /// of a tenth of a second, but none is smaller than what the kernel makes of a socket's buffer.
    pub(crate) fn read_at_once(&self) -> Option<usize> {
        Some((self.read_rate? as usize / 10).clamp(SMALLEST_READ, LARGEST_READ))
    }

    /// How many requests each connection may have under way at once, if their responses are not expected in order: the streams of
    /// HTTP/2.
    pub(crate) fn streams(&self) -> u32 {
        self.protocol.streams().unwrap_or(1)
    }

    /// How many starts a connection can have at once: one for each request that it may have under way, or one for all the calls of a
    /// session.
    pub(crate) fn starts_each(&self) -> u32 {
        if self.session_calls().is_some() { 1 } else { self.streams() }
    }

    /// Whether HTTP/2 is spoken.
    pub(crate) fn is_http2(&self) -> bool {
        self.protocol.streams().is_some()
    }

    /// How much a slow reader's socket holds, and how much is received at a time; `None`: as much as there is. Over HTTP/2 the windows
    /// of its streams hold a server back.
    pub(crate) fn socket_reads(&self) -> Option<usize> {
        self.read_at_once().filter(|_| !self.is_http2())
    }

    /// Whether server and generator share processors: all servers are on this machine, and the generator may run on
    /// each of its processors. `None`: it is kept from some of them, and nobody knows which ones the servers use.
    pub(crate) fn shares_cpus(&self) -> Option<bool> {
        if !self.origins.list.iter().all(|origin| origin.endpoints.is_on_this_machine()) {
            return Some(false);
        }
        let own = match self.pin {
            true => self.processors.len(),
            false => process::usable_cpus().ok()?.len(),
        };
        (process::online_cpus() == Some(own)).then_some(true)
    }

    /// Whether TLS is spoken with any of the servers.
    pub(crate) fn any_tls(&self) -> bool {
        self.origins.any_tls()
    }

    /// Whether nothing but the number of requests ends the run.
    pub(crate) fn ends_with_requests(&self) -> bool {
        self.duration.is_none() && self.requests.is_some()
    }
}

/// The most requests that all connections may have under way together: each has a place in a table.
const MOST_STREAMS: u64 = 50_000_000;

/// Refuses what means nothing over streams.
fn check_streams(options: &LoadOptions) -> Result<(), UsageError> {
    let Some(streams) = options.protocol.streams() else { return Ok(()) };
    if options.session.pipeline > 1 {
        return Err(UsageError::new(
            "--pipeline is for HTTP/1.1: connections of HTTP/2 carry several requests at once with --streams N",
        ));
    }
    let all = u64::from(options.connections) * u64::from(streams);
    if streams == 0 || all > MOST_STREAMS {
        return Err(UsageError::new(format!(
            "--streams {streams}: {} connections have {all} streams together, and there may be 1 to {MOST_STREAMS}: ask for \
             fewer --streams or --connections",
            options.connections
        )));
    }
    Ok(())
}

/// The number of threads: at most one per connection, because a thread without a connection has
/// nothing to do. Warns if the user asked for more.
fn fewer_threads(options: &mut LoadOptions, connections: u32) -> Option<Warning> {
    let useful = connections / options.processes;
    let asked = options.threads;
    options.threads = asked.min(useful);
    (asked > useful).then(|| {
        let each = if options.processes > 1 { " in each process" } else { "" };
        let text = format!(
            "{useful} of the {asked} --threads{each} are used: there are {connections} connections, \
             and each thread needs one"
        );
        Warning::of(WarningCode::ThreadsUnused, (asked - useful).into(), text)
    })
}

/// A processor for each thread, from the processors that this process may use.
fn processors(threads: u32) -> anyhow::Result<Vec<usize>> {
    let cpus = process::usable_cpus().context("cannot learn the processors (--pin)")?;
    if cpus.len() < threads as usize {
        return Err(UsageError::new(format!(
            "--pin: {threads} threads need as many processors, and there are {}: ask for fewer \
             --threads",
            cpus.len()
        ))
        .into());
    }
    Ok(cpus)
}

/// Raises the soft limit on descriptors as far as it goes, makes room for those that are needed, and
/// says what will be missing. The run goes on without: attempts to connect that find no descriptor are
/// counted.
///
/// # Errors
/// A [`UsageError`] if there is room for no connection at all.
fn too_few_descriptors(connections: u32, workers: u32) -> anyhow::Result<Option<Warning>> {
    let own = OWN_DESCRIPTORS + u64::from(workers) * DESCRIPTORS_PER_WORKER;
    let available = process::raise_open_files_limit()
        .unwrap_or_else(|_| process::open_files_limit())
        .soft
        .unwrap_or(u64::MAX);
    let remedy = "raise the hard limit (ulimit -Hn)";
    if own >= available {
        return Err(UsageError::new(format!(
            "--threads: {workers} threads need {own} descriptors beside their connections and \
             this process may have {available}: ask for fewer, or {remedy} first"
        ))
        .into());
    }
    let needed = own + u64::from(connections);
    // A table of descriptors that grows while connections are opened delays them.
    let _ = process::make_room_for_descriptors(needed);
    Ok((needed > available).then(|| {
        let text = format!(
            "{connections} connections need {needed} descriptors and a process may have \
             {available}: use several (drover load --processes), ask for fewer (--connections, --idle), or \
             {remedy}"
        );
        Warning::of(WarningCode::DescriptorsShort, needed - available, text)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan of 3 connections of 4 streams.
    fn over_streams(change: impl FnOnce(&mut LoadOptions)) -> anyhow::Result<LoadPlan> {
        let protocol = HttpProtocol::Http2 { streams: 4 };
        let mut options = LoadOptions { protocol, connections: 3, ..crate::testing::options() };
        change(&mut options);
        LoadPlan::new(options)
    }

    #[test]
    fn each_stream_gets_starts_unless_a_session_has_the_connection() {
        let plan = over_streams(|_| {}).unwrap();
        assert_eq!((plan.streams(), plan.starts_each(), plan.is_http2()), (4, 4, true));
        let plan = over_streams(|options| {
            let schedule = Schedule::every(Duration::from_secs(1), 3);
            options.schedule = Some(Schedule { unit: Unit::Connection, ..schedule });
        });
        let plan = plan.unwrap();
        assert_eq!((plan.streams(), plan.starts_each()), (4, 1));
        let plan = over_streams(|options| options.protocol = HttpProtocol::Http1).unwrap();
        assert_eq!((plan.streams(), plan.starts_each(), plan.is_http2()), (1, 1, false));
    }

    /// Windows hold a server back over streams, and the socket does in HTTP/1.1.
    #[test]
    fn a_slow_reader_has_a_small_socket_in_http_1_only() {
        let plan = over_streams(|options| options.read_rate = Some(100_000)).unwrap();
        assert_eq!((plan.read_at_once(), plan.socket_reads()), (Some(10_000), None));
        let plan = over_streams(|options| {
            (options.read_rate, options.protocol) = (Some(100_000), HttpProtocol::Http1);
        });
        assert_eq!(plan.unwrap().socket_reads(), Some(10_000));
    }

    #[test]
    fn what_means_nothing_over_streams_is_refused() {
        let error = |change: fn(&mut LoadOptions)| over_streams(change).err().unwrap().to_string();
        let pipeline = error(|options| options.session.pipeline = 2);
        assert!(pipeline.starts_with("--pipeline") && pipeline.contains("--streams"), "{pipeline}");
        let many = error(|options| {
            (options.connections, options.protocol) =
                (1000, HttpProtocol::Http2 { streams: 100_000 });
        });
        assert!(many.starts_with("--streams 100000") && many.contains("fewer"), "{many}");
    }

    #[test]
    fn there_is_room_for_all_descriptors_before_the_first_connection() {
        assert_eq!(too_few_descriptors(300, 2).unwrap(), None);
        assert!(process::room_for_descriptors(std::process::id()).unwrap() > 300);
    }
}
