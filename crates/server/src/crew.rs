//! A crew: the workers of a process that are of one configuration, a thread each.
//!
//! After a reload a crew in another process succeeds it, and it goes on only with the connections that it has.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use drover_mech::accept::ListenerHandle;
use drover_mech::net::Remote;
use drover_sys::process::start_thread;

use crate::access_log::AccessLogWriter;
use crate::config::Config;
use crate::line_writer::LineWriter;
use crate::output_files::OutputFiles;
use crate::status::statistics::CounterTable;
use crate::trace;
use crate::worker;

/// What a crew is made of.
pub(crate) struct CrewPlan {
    pub(crate) config: Arc<Config>,
    /// The number of this process's first worker, among all workers of the server.
    pub(crate) first: usize,
    /// Each one's, by address.
    pub(crate) handles: Vec<Vec<ListenerHandle>>,
    /// Counters for all workers of the server.
    pub(crate) counter_table: CounterTable,
    /// The files that the workers write.
    pub(crate) files: OutputFiles,
}

/// What a worker tells its server.
pub(crate) enum ThreadReport {
    /// It accepts connections.
    Ready(Remote),
    /// One of its listeners has ended.
    Left,
    /// It has ended, on request or because it could not go on.
    Ended(anyhow::Result<()>),
}

/// Workers that run, with what they share.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) config: Arc<Config>,
    /// By which the workers are told something, once they accept connections.
    pub(crate) workers: Vec<Remote>,
    /// How many workers there are to be.
    size: usize,
    /// How many threads have not ended.
    running: usize,
    /// How many listeners have not ended.
    listeners: usize,
    trace: Option<LineWriter<Vec<trace::TraceLine>>>,
    log: Option<Arc<AccessLogWriter>>,
}

impl Crew {
    /// Starts the threads, which report to `report`. If one cannot be started, that is reported as its end. `descriptors`
    /// are open in this process besides those of connections.
    ///
    /// # Errors
    /// A file that cannot be written, too few threads.
    pub(crate) fn start(
        plan: CrewPlan,
        descriptors: u64,
        report: &(impl Fn(ThreadReport) + Clone + Send + 'static),
    ) -> anyhow::Result<Crew> {
        let CrewPlan { config, first, handles, counter_table, files } = plan;
        let OutputFiles { log, trace, mut events } = files;
        let trace = trace.map(|file| begin_trace(file, &config)).transpose()?;
        let log = config.access_log.as_ref().zip(log);
        let log = log.map(|(log, file)| AccessLogWriter::start(log, file)).transpose()?;
        let log = log.map(Arc::new);
        if let Some(pool) = &config.openers {
            pool.start().context("too many --stat-threads")?;
        }
        if config.openers.is_some() && config.sites().any(|site| site.listing) {
            config.listings.start().context("--listing: no thread can be started")?;
        }
        for auth in config.users() {
            auth.start().context("--auth: no thread can be started")?;
        }
        let connections = worker::limits::ConnectionLimit::new(&config, handles.len(), descriptors);
        let per_address = config.max_per_address.map(crate::protocol::addresses::AddressLimit::new);
        let cpus = if config.pin { crate::processors(config.workers)? } else { Vec::new() };
        let listeners = handles.iter().map(Vec::len).sum();
        let (workers, size, running) = (Vec::new(), handles.len(), 0);
        let mut crew = Crew { config, workers, size, running, listeners, trace, log };
        for (number, handles) in (first..).zip(handles) {
            let left = report.clone();
            let plan = worker::thread::WorkerPlan {
                config: Arc::clone(&crew.config),
                handles,
                cpu: cpus.get(number).copied(),
                counters: counter_table.of(number),
                sharers: size,
                connections: connections.of_worker(number),
                addresses: per_address.clone(),
                left: Box::new(move || left(ThreadReport::Left)),
                trace: crew.trace.as_ref().map(|trace| (trace.sink(), number)),
                log: crew.log.as_ref().map(|log| (log.sink(), number)),
                // There is one worker where events are recorded.
                events: events.take(),
            };
            let to_server = report.clone();
            let work = move || {
                let ready = |remote| to_server(ThreadReport::Ready(remote));
                let ended = catch_unwind(AssertUnwindSafe(|| worker::thread::run(plan, ready)))
                    .unwrap_or_else(|_| Err(anyhow!("it panicked: a defect")))
                    .with_context(|| format!("worker {number}"));
                to_server(ThreadReport::Ended(ended));
            };
            crew.running += 1;
            if let Err(error) = start_thread(format!("worker {number}"), work) {
                report(ThreadReport::Ended(Err(error).context("too many --workers")));
                break;
            }
        }
        Ok(crew)
    }

    /// Takes a report of one of the workers. What a worker that ended has failed with is handed back.
    pub(crate) fn hear(&mut self, report: ThreadReport) -> anyhow::Result<()> {
        match report {
            ThreadReport::Ready(remote) => self.workers.push(remote),
            ThreadReport::Left => self.listeners -= 1,
            ThreadReport::Ended(ended) => {
                self.running -= 1;
                return ended;
            }
        }
        Ok(())
    }

    /// Asks the workers to end.
    pub(crate) fn stop(&self) {
        // Waking fails if the worker has ended already.
        self.workers.iter().for_each(|worker| drop(worker.stop()));
    }

    /// Whether every worker accepts connections.
    pub(crate) fn is_ready(&self) -> bool {
        // A worker that has ended meanwhile counts: one that cannot start may have ended it.
        self.workers.len() == self.size
    }

    /// Whether no worker accepts connections any more.
    pub(crate) fn has_left(&self) -> bool {
        self.listeners == 0
    }

    /// Whether every worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.running == 0
    }

    /// How the access log, if there is one, is changed for another file.
    pub(crate) fn change_log(&self) -> impl Fn(File) + Send + use<> {
        let log = self.log.clone();
        move |file| {
            if let Some(log) = &log {
                log.change(file);
            }
        }
    }

    /// Waits until all lines are written. To be called when every worker has ended.
    pub(crate) fn finish(&self) {
        self.trace.iter().for_each(LineWriter::finish);
        self.log.iter().for_each(|log| log.finish());
    }
}

/// Begins the trace in `file`.
fn begin_trace(file: File, config: &Config) -> anyhow::Result<LineWriter<Vec<trace::TraceLine>>> {
    let Config { mechanism, workers, files, file_options, openers, .. } = config;
    let about = format!(
        "dispatch={} workers={workers} files={} stat-threads={} read-threads={} read-ahead={}",
        mechanism.name,
        files.map_or("auto", |files| files.name),
        openers.as_ref().map_or(0, |openers| openers.threads()),
        file_options.read_threads,
        file_options.read_ahead,
    );
    let path = config.trace.as_deref().unwrap_or(Path::new(""));
    trace::begin(file, path, &about).map_err(|error| crate::cannot_trace(path, error))
}
