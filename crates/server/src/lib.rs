//! A web server for static files, or for one fixed body, over any dispatch mechanism.
//!
//! It is a server for experiments: every mechanism, accept strategy and file backend is an option of
//! [`Config`]. It has no TLS, no HTTP/2, no virtual hosts, and runs no programs for a request.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use server::{Config, Server, ContentSource};
//!
//! let mechanism = mech::mechanisms::auto_of_readiness().expect("Linux has poll(2)");
//! let server = Server::start(Config::new(ContentSource::Fixed(5), mechanism))?;
//! let mut client = TcpStream::connect(server.addresses()[0])?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
//! let mut response = Vec::new();
//! client.read_to_end(&mut response)?;
//! assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
//! server.stopper().stop();
//! server.wait()?;
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! `examples/serve_directory.rs` serves files until a signal stops it.
//!
//! # Where things are
//!
//! A [`Server`] has a few workers. A worker is a thread with a mechanism, listening sockets and a cache
//! of its own (`worker/thread.rs`), or a process with one such thread, which a [`Supervisor`] keeps
//! (`supervisor/`). `listen/` binds the addresses of the [`Config`].
//!
//! A worker runs one coroutine per connection (`worker/connection.rs`). The coroutine passes what it has
//! received to the worker's site (`respond/site.rs`), which looks files up (`lookup/`) and writes
//! responses (`respond/response.rs`). Other threads open the files that may need a disk
//! (`lookup/pending.rs`). An open file is a `FileEntry` (`lookup/entry.rs`) in the worker's cache
//! (`lookup/cache.rs`); with `--revalidate inotify` it is watched (`lookup/watch.rs`).
//!
//! Between the binding and the first worker the process gives up what serving does not need (`sandbox/`).
//! What the user adds to responses, and where paths have moved, is in `rules/`. Workers count in a table that all share (`status/`); `admin/` tells it to those who watch the server.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use mech::accept::{Among, ListenerHandle};
use mech::net::Remote;
use sys::process::{on_own_thread, start_thread};
use tracing::{error, info};

mod access_log;
mod admin;
mod config;
mod line_writer;
mod listen;
pub mod log;
pub mod lookup;
mod respond;
mod rules;
mod sandbox;
mod signals;
mod status;
mod supervisor;
pub mod trace;
mod worker;

use access_log::AccessLogWriter;
pub use access_log::{AccessLog, Form as AccessLogForm};
use admin::{AdminListener, BoundAdmin};
pub use config::{Config, ContentSource, Listen, Revalidate, STAT_THREADS};
use line_writer::LineWriter;
use listen::bind::{BoundAddresses, bind};
use listen::deferred::{Deferred, LOOK_AGAIN};
pub use respond::listing::escape_html;
pub use rules::{HeaderRule, Redirect};
use signals::STOPPING;
pub use signals::{Role, StopSignals};
use status::statistics::CounterTable;
pub use status::statistics::{Statistics, WorkerStatistics, coefficient_of_variation};
pub use supervisor::keep::Supervisor;
pub use supervisor::process::{FLAG as WORKER_FLAG, Inheritance, MechanismAndStrategy, be_worker};
use supervisor::service_manager::ServiceManager;

/// A running server. Dropping it asks it to stop.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    counter_table: CounterTable,
    workers: usize,
    stopper: Stopper,
    reports: Receiver<Report>,
    trace: Option<LineWriter<Vec<trace::TraceLine>>>,
    log: Option<Arc<AccessLogWriter>>,
    /// The file that the counters are written to.
    counters: Option<PathBuf>,
    admin: Option<AdminListener>,
    /// What is in force of the sandbox.
    sandbox: String,
}

/// The workers of one process.
struct Crew {
    /// The number of this process's first worker, among all workers of the server.
    first: usize,
    /// Each one's, by address.
    handles: Vec<Vec<ListenerHandle>>,
    /// Counters for all workers of the server.
    counter_table: CounterTable,
    /// The open file of the access log, if there is one.
    log: Option<File>,
}

/// What a worker tells its server.
enum Report {
    /// It accepts connections.
    Ready(Remote),
    /// It has ended, on request or because it could not go on.
    Ended(anyhow::Result<()>),
}

/// Asks a server to stop, from any thread.
#[derive(Clone, Default)]
pub struct Stopper {
    workers: Vec<Remote>,
    deferred: Arc<Deferred>,
    /// The service manager, if one has started the server.
    manager: Option<Arc<ServiceManager>>,
    /// Locked while the workers are told to stop, until the log has said so: the line about the end comes after it.
    announcing: Arc<Mutex<()>>,
    /// Whether the server has been asked to stop.
    asked: Arc<AtomicBool>,
}

impl Stopper {
    /// Ends accepting and closes idle connections; requests under way may finish within the grace.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.deferred.end();
        for worker in &self.workers {
            // Waking fails if the worker has ended already.
            let _ = worker.stop();
        }
    }

    /// Waits until the kernel has handed over the connections without any bytes yet, up to one and a half
    /// seconds. Then stops like [`Stopper::stop`].
    fn stop_in_good_order(&self) {
        self.asked.store(true, Ordering::Relaxed);
        let until = self.deferred.end();
        while self.deferred.keeps_some() && Instant::now() < until {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.stop();
    }

    /// Stops the workers by `stop`, and says so in the log. The line is written when the workers have been told:
    /// whoever asks after the line was written is told of the end.
    fn announce(&self, stop: impl FnOnce(&Stopper)) {
        let _announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner);
        self.manager.iter().for_each(|manager| manager.is_stopping());
        stop(self);
        info!("{STOPPING}");
    }

    /// Blocks until every worker has looked for events.
    fn until_all_turn(&self) {
        for worker in &self.workers {
            // Waking fails if the worker has ended already.
            let _ = worker.until_it_turns();
        }
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds every address, starts the workers, and returns when all of them accept.
    ///
    /// # Errors
    /// An address that cannot be bound, a mechanism that cannot be set up, too few descriptors: one
    /// chain with the remedy. Nothing keeps running then.
    pub fn start(config: Config) -> anyhow::Result<Server> {
        if config.pin {
            processors(config.workers)?;
        }
        let BoundAddresses { addresses, handles, .. } = bind(&config, Among::Threads)?;
        let admin = BoundAdmin::bind(&config, false, &addresses)?;
        let counter_table = CounterTable::new(handles.len()).context("cannot make the counters")?;
        let deferred = Deferred::of(&config, &handles, &addresses)?;
        let log = config.access_log.as_ref().map(access_log::open).transpose()?;
        let manager = ServiceManager::of_environment()?.map(Arc::new);
        let sandbox = sandbox::give_up(&config, Role::Server)?;
        let mut server = Server::of_crew(
            Arc::new(config),
            addresses,
            Crew { first: 0, handles, counter_table, log },
        )?;
        server.stopper.deferred = Arc::new(deferred);
        server.stopper.manager = manager;
        if let Some(admin) = admin {
            server.admin = Some(admin.start(&server.counter_table, &server.stopper.asked)?);
        }
        server.sandbox = sandbox;
        Ok(server)
    }

    /// Starts the workers of `crew`, and returns when all of them accept.
    fn of_crew(
        config: Arc<Config>,
        addresses: Vec<SocketAddr>,
        mut crew: Crew,
    ) -> anyhow::Result<Server> {
        let trace = open_trace(&config, &crew)?;
        let log = config.access_log.as_ref().zip(crew.log.take());
        let log = log.map(|(log, file)| AccessLogWriter::start(log, file)).transpose()?;
        let log = log.map(Arc::new);
        if let Some(pool) = &config.openers {
            pool.start().context("too many --stat-threads")?;
        }
        let connections = worker::limits::ConnectionLimit::new(&config, crew.handles.len())?;
        let per_address = config.max_per_address.map(worker::addresses::AddressLimit::new);
        let Crew { first, handles, counter_table, .. } = crew;
        let cpus = if config.pin { processors(config.workers)? } else { Vec::new() };
        let (sender, reports) = channel();
        let workers = handles.len();
        for (index, handles) in handles.into_iter().enumerate() {
            let plan = worker::thread::WorkerPlan {
                config: Arc::clone(&config),
                handles,
                cpu: cpus.get(first + index).copied(),
                counters: counter_table.of(first + index),
                sharers: workers,
                connections: connections.of_worker(first + index),
                addresses: per_address.clone(),
                trace: trace.as_ref().map(|trace| (trace.sink(), first + index)),
                log: log.as_ref().map(|log| (log.sink(), first + index)),
            };
            let to_server = sender.clone();
            let work = move || {
                let ready = |remote| drop(to_server.send(Report::Ready(remote)));
                let ended = catch_unwind(AssertUnwindSafe(|| worker::thread::run(plan, ready)))
                    .unwrap_or_else(|_| Err(anyhow!("it panicked: a defect")))
                    .with_context(|| format!("worker {}", first + index));
                // The send fails if starting was given up: nobody needs the report then.
                let _ = to_server.send(Report::Ended(ended));
            };
            if let Err(error) = start_thread(format!("worker {}", first + index), work) {
                let failure = Err(error).context("too many --workers");
                // The receiver is here.
                let _ = sender.send(Report::Ended(failure));
                break;
            }
        }
        drop(sender);
        let counters = config.counters.clone();
        let stopper = Stopper::default();
        let mut server = Server {
            addresses,
            counter_table,
            workers,
            stopper,
            reports,
            trace,
            log,
            counters,
            admin: None,
            sandbox: String::new(),
        };
        while server.stopper.workers.len() < server.workers {
            match server.reports.recv() {
                Ok(Report::Ready(remote)) => server.stopper.workers.push(remote),
                Ok(Report::Ended(Err(reason))) => {
                    server.stopper.stop();
                    // Further errors are logged. The first error is returned.
                    let _ = server.wait();
                    return Err(reason);
                }
                // This worker has no listening socket, because another worker failed.
                Ok(Report::Ended(Ok(()))) => {}
                Err(_) => bail!("a worker ended before it began"),
            }
        }
        Ok(server)
    }

    /// What is in force of the sandbox of a server of `config`, in words. Restricts nobody.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn try_sandbox(config: &Config, role: Role) -> io::Result<String> {
        on_own_thread(|| sandbox::enter(config, role))
    }

    /// Finds what [`Server::start`] would find wrong with `config`, and starts nothing.
    ///
    /// # Errors
    /// An address that cannot be bound, too few descriptors, or another fault that is known without a
    /// worker.
    pub fn check(config: &Config) -> anyhow::Result<()> {
        if config.pin {
            processors(config.workers)?;
        }
        if let Some(path) = &config.trace {
            trace::check(path).map_err(|error| cannot_trace(path, error))?;
        }
        if let Some(path) = config.access_log.as_ref().and_then(|log| log.path.as_ref()) {
            trace::check(path).with_context(|| format!("--access-log {}", path.display()))?;
        }
        let bound = bind(config, Among::Threads)?;
        BoundAdmin::bind(config, false, &bound.addresses).map(drop)
    }

    /// The addresses as they are bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses of [`Config::admin`] as they are bound.
    #[must_use]
    pub fn admin_addresses(&self) -> &[SocketAddr] {
        self.admin.as_ref().map_or(&[], AdminListener::addresses)
    }

    /// What is in force of the sandbox ([`Config::sandbox`]), in words.
    #[must_use]
    pub fn sandbox(&self) -> &str {
        &self.sandbox
    }

    /// Tells the service manager that has started the process, if there is one, that the server accepts connections, with
    /// `status` for those who ask it; and from now on that every worker looks for events, if the manager wants to know.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn tell_ready(&self, status: &str) -> io::Result<()> {
        let Some(manager) = self.stopper.manager.clone() else { return Ok(()) };
        manager.is_ready(status);
        let Some(beat) = manager.beat() else { return Ok(()) };
        let stopper = self.stopper();
        let tell = move || {
            while !stopper.asked.load(Ordering::Relaxed) {
                std::thread::sleep(beat);
                stopper.until_all_turn();
                manager.is_alive();
            }
        };
        start_thread("watchdog", tell).map(drop)
    }

    /// The handle by which other threads stop this server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What the workers have done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counter_table.sum()
    }

    /// What each worker has done so far.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatistics> {
        self.counter_table.workers()
    }

    /// Waits until the server has stopped.
    ///
    /// # Errors
    /// The failure of a worker that could not go on. It is logged at once, and the other workers
    /// are asked to stop: no server goes on with some of its workers missing.
    pub fn wait(&self) -> anyhow::Result<()> {
        let mut failure = None;
        while let Ok(report) = self.reports.recv() {
            match report {
                Report::Ended(Ok(())) => {}
                Report::Ended(Err(reason)) => {
                    error!("{reason:#}; stopping the server");
                    self.stopper.stop();
                    failure.get_or_insert(reason);
                }
                // The senders are gone only while starting, after another worker has failed.
                Report::Ready(remote) => drop(remote.stop()),
            }
        }
        drop(self.stopper.announcing.lock());
        if let Some(trace) = &self.trace {
            trace.finish();
        }
        if let Some(log) = &self.log {
            log.finish();
        }
        status::counters::finish(self.counters.as_deref(), &self.counter_table);
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// A processor for each worker, from the processors that this process may use.
fn processors(workers: NonZeroUsize) -> anyhow::Result<Vec<usize>> {
    let mut cpus = sys::process::usable_cpus().context("cannot learn the processors (--pin)")?;
    if cpus.len() < workers.get() {
        bail!(usage::UsageError::new(format!(
            "--pin: {workers} workers need as many processors, and there are {}; use --workers {}",
            cpus.len(),
            cpus.len(),
        )));
    }
    cpus.truncate(workers.get());
    Ok(cpus)
}

/// Begins the trace, if there is to be one. Workers that are processes have a file each.
fn open_trace(
    config: &Config,
    crew: &Crew,
) -> anyhow::Result<Option<LineWriter<Vec<trace::TraceLine>>>> {
    let Some(path) = &config.trace else { return Ok(None) };
    let mut path = path.clone();
    if crew.handles.len() < config.workers.get() {
        path.as_mut_os_string().push(format!(".{}", crew.first));
    }
    let Config { mechanism, workers, files, file_options, openers, .. } = config;
    let about = format!(
        "dispatch={} workers={workers} files={} stat-threads={} read-threads={} read-ahead={}",
        mechanism.name,
        files.map_or("auto", |files| files.name),
        openers.as_ref().map_or(0, |openers| openers.threads()),
        file_options.read_threads,
        file_options.read_ahead,
    );
    let trace = trace::create(&path, &about).map_err(|error| cannot_trace(&path, error))?;
    Ok(Some(trace))
}

fn cannot_trace(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::from(error).context(format!("cannot begin --trace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use mech::Key;
    use mech::mechanisms::{self, Features, Mechanism, MechanismKind};
    use mech::readiness::{Batch, Event, Interest, Readiness};

    use super::*;

    /// A mechanism that reports nothing and breaks at its last wait, or panics if there is none.
    struct Breaks {
        left: u32,
    }

    impl Readiness for Breaks {
        fn attach(&mut self, _: BorrowedFd<'_>, _: Key, _: Interest) -> io::Result<()> {
            Ok(())
        }

        fn want(&mut self, _: BorrowedFd<'_>, _: Key, _: Interest) -> io::Result<()> {
            Ok(())
        }

        fn detach(&mut self, _: BorrowedFd<'_>, _: Key) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<Batch> {
            self.left = self.left.checked_sub(1).expect("one wait too many");
            if self.left == 0 {
                return Err(io::Error::other("the mechanism broke"));
            }
            Ok(Batch::default())
        }
    }

    fn mechanism(
        open: fn(&mechanisms::MechanismOptions) -> io::Result<Box<dyn Readiness>>,
    ) -> Mechanism {
        let features = Features::empty();
        let kind = MechanismKind::Readiness { open };
        Mechanism { name: "breaks", summary: "for this test", features, waits_with: &[], kind }
    }

    fn two_workers(mechanism: Mechanism) -> anyhow::Result<Server> {
        let workers = NonZeroUsize::new(2).unwrap();
        let mechanism = Box::leak(Box::new(mechanism));
        Server::start(Config { workers, ..Config::new(ContentSource::Fixed(1), mechanism) })
    }

    #[test]
    fn a_worker_that_cannot_start_keeps_the_server_from_starting() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let second_fails = mechanism(|options| match OPENED.fetch_add(1, Ordering::Relaxed) {
            0 => mechanisms::ALL
                .iter()
                .find_map(|any| any.open(options).ok())
                .ok_or_else(|| io::Error::other("nothing works")),
            _ => Err(io::Error::other("no more of these")),
        });
        let error = two_workers(second_fails).unwrap_err();
        let chain = format!("{error:#}");
        assert!(chain.contains("no more of these") && chain.contains("--dispatch"), "{chain}");
    }

    #[test]
    fn a_worker_that_breaks_ends_the_server_with_its_reason() {
        let breaks = mechanism(|_| Ok(Box::new(Breaks { left: 1000 })));
        let error = two_workers(breaks).and_then(|server| server.wait()).unwrap_err();
        let chain = format!("{error:#}");
        assert!(chain.contains("worker") && chain.contains("the mechanism broke"), "{chain}");
    }

    #[test]
    fn a_worker_that_panics_ends_the_server() {
        let panics = mechanism(|_| Ok(Box::new(Breaks { left: 0 })));
        let error = two_workers(panics).and_then(|server| server.wait()).unwrap_err();
        assert!(format!("{error:#}").contains("panicked"), "{error:#}");
    }
}
