//! The web server: static files, or always the same bytes, over any dispatch mechanism.
//!
//! A [`Server`] is a few workers, each a thread with everything of its own (`worker.rs`), or a
//! process with one such thread (`process.rs`), which a [`Supervisor`] keeps. A worker
//! runs one coroutine per connection (`connection.rs`), which asks the worker's site what to answer
//! (`site.rs`); that finds files (`files.rs`, opened by other threads in `pending.rs`, kept in `cache.rs` as `entry.rs`, watched by `watch.rs`) and writes replies (`reply.rs`).

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use mech::accept::{self, Among, Door, Keeper, Strategy};
use mech::dispatch::{self, Mechanism};
use mech::fileio::{self, Backend};
use mech::fs::Root;
use mech::net::{AcceptBatch, MinRate, Remote};
use mech::open_pool::OpenPool;
use mech::process::start_thread;
use mech::socket::ListenOptions;
use mech::wait_queue::Policy;
use tracing::{error, info};

pub mod cache;
mod clock;
mod connection;
mod entry;
mod files;
mod limits;
mod memo;
mod pending;
mod process;
mod reply;
mod signals;
mod site;
mod stats;
mod supervisor;
pub mod trace;
mod watch;
mod worker;

pub use process::{Chosen, FLAG as WORKER_FLAG, Inheritance, be_worker};
pub use signals::{Role, StopSignals};
use stats::Board;
pub use stats::{Statistics, WorkerStatistics, coefficient_of_variation};
pub use supervisor::Supervisor;
use trace::Trace;

/// Threads of the process that open files, unless we are told: one or two are enough for a disk.
pub const STAT_THREADS: usize = 2;

/// What is served.
#[derive(Clone, Debug)]
pub enum Source {
    /// The files beneath a directory.
    Directory(Arc<Root>),
    /// So many bytes to every request, without touching a file.
    Fixed(usize),
}

/// Everything that a server can be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is served.
    pub source: Source,
    /// Where.
    pub listen: Vec<Listen>,
    /// How each worker waits.
    pub mechanism: &'static Mechanism,
    /// What the mechanism is told.
    pub dispatch: dispatch::Options,
    /// Whether connections are taken over only when their first bytes are here
    /// ([`ListenOptions::defer`]).
    pub defer_accept: bool,
    /// Whether files and directories whose names begin with a dot are served, beside `.well-known`.
    pub hidden: bool,
    /// How connections come to the workers.
    pub accept: &'static Strategy,
    /// Whether the worker of the processor that a connection comes in on takes it
    /// ([`accept::Plan::by_cpu`]).
    pub by_cpu: bool,
    /// Whom a connection wakes, where that is a wait queue's matter.
    pub wake: Policy,
    /// How many connections are accepted per wait.
    pub accept_batch: AcceptBatch,
    /// What moves a file's bytes. `None`: small files are read and sent with their head, large ones
    /// go through the backend that measures best.
    pub files: Option<&'static Backend>,
    /// What the backend is told; all workers share its threads.
    pub file_options: fileio::Options,
    /// Who opens files that may need the disk for it; `None`: the workers, and wait.
    pub openers: Option<Arc<OpenPool>>,
    /// Whether files are opened so that reading leaves their access time as it is, where that is
    /// allowed.
    pub noatime: bool,
    /// Whether the kernel is told that files are read from beginning to end.
    pub advise_sequential: bool,
    /// What a worker may keep of files it has served, in bytes; 0: nothing.
    pub cache: usize,
    /// How kept files are known to be right.
    pub revalidate: Revalidate,
    /// Threads that serve; or processes, under a [`Supervisor`].
    pub workers: NonZeroUsize,
    /// Whether each worker stays on a processor of its own.
    pub pin: bool,
    /// How long a request's head may take from its first byte on; `None`: for ever.
    pub header_time_out: Option<Duration>,
    /// How long a connection may be silent between requests, or take nothing of a reply.
    pub idle_time_out: Option<Duration>,
    /// How long a request may wait until its file is open, before it is refused; `None`: for ever.
    pub open_time_out: Option<Duration>,
    /// How slowly a client may take a response; `None`: as slowly as it likes.
    pub min_rate: Option<MinRate>,
    /// How many connections there may be at a time, shared out among the workers; `None`: as many as
    /// the limit of descriptors allows when some are left for files. When there are as many, those that
    /// have been idle longest are closed for new ones; if none is idle, new ones wait.
    pub max_connections: Option<NonZeroUsize>,
    /// How long requests may go on after the server was asked to stop.
    pub grace: Duration,
    /// Where a line goes for each reply that tells how long its stages took (`trace`).
    pub trace: Option<PathBuf>,
}

/// Where to listen: at every address of a name.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The name as it was given.
    pub name: String,
    /// Its addresses, which differ. Port 0 takes a free one, the same for all if possible. Addresses
    /// that this machine does not have are left out, but not all of them.
    pub addresses: Vec<SocketAddr>,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen { name: address.to_string(), addresses: vec![address] }
    }
}

/// How long a kept file is served without a look whether its name still leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revalidate {
    /// A file of which we do not hear.
    pub after: Duration,
    /// A file of which we hear at once when it changes, by inotify(7); `None`: we hear of none.
    pub watched_after: Option<Duration>,
}

impl Default for Revalidate {
    fn default() -> Revalidate {
        Revalidate { after: Duration::from_secs(1), watched_after: None }
    }
}

impl Config {
    /// The defaults: one worker on a free port of this machine's loopback address.
    #[must_use]
    pub fn new(source: Source, mechanism: &'static Mechanism) -> Config {
        Config {
            source,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            mechanism,
            dispatch: dispatch::Options::default(),
            defer_accept: true,
            hidden: false,
            accept: accept::auto(NonZeroUsize::MIN, mechanism),
            by_cpu: false,
            wake: Policy::TaskExclusive,
            accept_batch: AcceptBatch::All,
            files: None,
            file_options: fileio::Options::default(),
            openers: Some(Arc::new(OpenPool::new(STAT_THREADS))),
            noatime: false,
            advise_sequential: false,
            cache: 64 << 20,
            revalidate: Revalidate::default(),
            workers: NonZeroUsize::MIN,
            pin: false,
            header_time_out: Some(Duration::from_secs(10)),
            idle_time_out: Some(Duration::from_secs(60)),
            open_time_out: Some(Duration::from_secs(10)),
            min_rate: None,
            max_connections: None,
            grace: Duration::from_secs(10),
            trace: None,
        }
    }
}

/// A running server. Dropping it asks it to stop.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    board: Board,
    workers: usize,
    stopper: Stopper,
    reports: Receiver<Report>,
    trace: Option<Trace>,
}

/// The workers of one process.
struct Crew {
    /// The number of the first, among all workers of the server.
    first: usize,
    /// Each one's, by address.
    doors: Vec<Vec<Door>>,
    /// Counters for all workers of the server.
    board: Board,
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
pub struct Stopper(Vec<Remote>);

impl Stopper {
    /// Ends accepting and closes idle connections; requests under way may finish within the grace.
    pub fn stop(&self) {
        for worker in &self.0 {
            // It fails when the worker has ended already.
            let _ = worker.stop();
        }
    }
}

impl Stopper {
    /// Blocks until every worker has looked for events.
    fn until_all_turn(&self) {
        for worker in &self.0 {
            // It fails when the worker has ended already.
            let _ = worker.until_it_turns();
        }
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stopper").field(&self.0.len()).finish()
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
        let Bound { addresses, doors, .. } = bind(&config, Among::Threads)?;
        let board = Board::new(doors.len()).context("cannot make the counters")?;
        Server::of_crew(Arc::new(config), addresses, Crew { first: 0, doors, board })
    }

    /// Starts the workers of `crew`, and returns when all of them accept.
    fn of_crew(
        config: Arc<Config>,
        addresses: Vec<SocketAddr>,
        crew: Crew,
    ) -> anyhow::Result<Server> {
        let trace = open_trace(&config, &crew)?;
        if let Some(pool) = &config.openers {
            pool.start().context("too many --stat-threads")?;
        }
        let connections = limits::Connections::new(&config, crew.doors.len())?;
        let Crew { first, doors, board } = crew;
        let cpus = if config.pin { processors(config.workers)? } else { Vec::new() };
        let (sender, reports) = channel();
        let workers = doors.len();
        for (index, doors) in doors.into_iter().enumerate() {
            let plan = worker::Plan {
                config: Arc::clone(&config),
                doors,
                cpu: cpus.get(first + index).copied(),
                counters: board.of(first + index),
                sharers: workers,
                connections: connections.of_worker(first + index),
                trace: trace.as_ref().map(|trace| (trace.sink(), first + index)),
            };
            let to_server = sender.clone();
            let work = move || {
                let ready = |remote| drop(to_server.send(Report::Ready(remote)));
                let ended = catch_unwind(AssertUnwindSafe(|| worker::run(plan, ready)))
                    .unwrap_or_else(|_| Err(anyhow!("it panicked: a defect")))
                    .with_context(|| format!("worker {}", first + index));
                // Nobody listens any more when the server was given up.
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
        let stopper = Stopper::default();
        let mut server = Server { addresses, board, workers, stopper, reports, trace };
        while server.stopper.0.len() < server.workers {
            match server.reports.recv() {
                Ok(Report::Ready(remote)) => server.stopper.0.push(remote),
                Ok(Report::Ended(Err(reason))) => {
                    server.stopper.stop();
                    // Logs what else goes wrong; what went wrong first is the answer.
                    let _ = server.wait();
                    return Err(reason);
                }
                // It has nothing to accept from, because of another worker's failure.
                Ok(Report::Ended(Ok(()))) => {}
                Err(_) => bail!("a worker ended before it began"),
            }
        }
        Ok(server)
    }

    /// Finds what [`Server::start`] would find wrong with `config`, and starts nothing.
    ///
    /// # Errors
    /// As [`Server::start`], as far as it can be known without a worker.
    pub fn check(config: &Config) -> anyhow::Result<()> {
        if config.pin {
            processors(config.workers)?;
        }
        if let Some(path) = &config.trace {
            Trace::check(path).map_err(|error| cannot_trace(path, error))?;
        }
        bind(config, Among::Threads).map(drop)
    }

    /// The addresses as they are bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The handle by which other threads stop this server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What the workers have done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.board.sum()
    }

    /// What each worker has done so far.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatistics> {
        self.board.workers()
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
                // Only while starting, when another worker has failed.
                Report::Ready(remote) => drop(remote.stop()),
            }
        }
        if let Some(trace) = &self.trace {
            trace.finish();
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// A processor for each worker, of those that this process may use.
fn processors(workers: NonZeroUsize) -> anyhow::Result<Vec<usize>> {
    let mut cpus = mech::process::usable_cpus().context("cannot learn the processors (--pin)")?;
    if cpus.len() < workers.get() {
        bail!(crate::error::UsageError::new(format!(
            "--pin: {workers} workers need as many processors, and there are {}; use --workers {}",
            cpus.len(),
            cpus.len(),
        )));
    }
    cpus.truncate(workers.get());
    Ok(cpus)
}

/// Begins the trace, if there is to be one. Workers that are processes have a file each.
fn open_trace(config: &Config, crew: &Crew) -> anyhow::Result<Option<Trace>> {
    let Some(path) = &config.trace else { return Ok(None) };
    let mut path = path.clone();
    if crew.doors.len() < config.workers.get() {
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
    let trace = Trace::create(&path, &about).map_err(|error| cannot_trace(&path, error))?;
    Ok(Some(trace))
}

fn cannot_trace(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::from(error).context(format!("cannot begin --trace {}", path.display()))
}

/// What all addresses together have come to.
struct Bound {
    addresses: Vec<SocketAddr>,
    /// Each worker's, by address.
    doors: Vec<Vec<Door>>,
    keepers: Vec<Keeper>,
}

/// Binds every address, before any worker accepts.
fn bind(config: &Config, among: Among) -> anyhow::Result<Bound> {
    let doors = (0..config.workers.get()).map(|_| Vec::new()).collect();
    let mut bound = Bound { addresses: Vec::new(), doors, keepers: Vec::new() };
    for listen in &config.listen {
        bind_name(config, among, listen, &mut bound)?;
    }
    Ok(bound)
}

/// Binds the addresses of a name: to the port that the first was given, if that is free.
fn bind_name(
    config: &Config,
    among: Among,
    listen: &Listen,
    bound: &mut Bound,
) -> anyhow::Result<()> {
    let open = |address| {
        let plan = accept::Plan {
            address,
            workers: config.workers,
            among,
            listen: ListenOptions { defer: config.defer_accept, ..ListenOptions::default() },
            by_cpu: config.by_cpu,
            policy: config.wake,
        };
        config.accept.open(&plan)
    };
    let (mut port, mut absent) = (0, Vec::new());
    for &address in &listen.addresses {
        let mut wanted = address;
        if address.port() == 0 {
            wanted.set_port(port);
        }
        let mut opened = open(wanted);
        if wanted != address
            && opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        {
            opened = open(address);
        }
        match opened {
            Ok(made) => {
                port = made.address.port();
                bound.addresses.push(made.address);
                bound.doors.iter_mut().zip(made.doors).for_each(|(worker, door)| worker.push(door));
                bound.keepers.extend(made.keeper);
            }
            Err(error) if mech::socket::is_absent(&error) => {
                absent.push((address, error));
            }
            Err(error) => return Err(cannot_listen(address, error)),
        }
    }
    for (address, error) in absent {
        // None was bound that has a port.
        if port == 0 {
            return Err(cannot_listen(address, error));
        }
        info!("--listen {}: this machine has no {}", listen.name, address.ip());
    }
    Ok(())
}

fn cannot_listen(address: SocketAddr, error: io::Error) -> anyhow::Error {
    let port = address.port();
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("port {port} is taken; choose another, or 0 for a free one")
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} is for the superuser; choose one above 1023")
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_string(),
        _ => format!("{error}; raise 'ulimit -n' if that is about open files"),
    };
    anyhow!("cannot listen on --listen {address}: {remedy}")
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    use mech::Key;
    use mech::dispatch::{Batch, Event, Features, Interest, Kind, Readiness};

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

    fn mechanism(open: fn(&dispatch::Options) -> io::Result<Box<dyn Readiness>>) -> Mechanism {
        let features = Features::empty();
        let kind = Kind::Readiness { open };
        Mechanism { name: "breaks", summary: "for this test", features, waits_with: &[], kind }
    }

    fn two_workers(mechanism: Mechanism) -> anyhow::Result<Server> {
        let workers = NonZeroUsize::new(2).unwrap();
        let mechanism = Box::leak(Box::new(mechanism));
        Server::start(Config { workers, ..Config::new(Source::Fixed(1), mechanism) })
    }

    /// The addresses that a server of fixed bytes has bound.
    fn bound(addresses: &[&str]) -> anyhow::Result<Vec<SocketAddr>> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let listen = vec![Listen { name: "name".to_owned(), addresses }];
        let mechanism = dispatch::auto_of_readiness().unwrap();
        let config = Config { listen, ..Config::new(Source::Fixed(1), mechanism) };
        Ok(bind(&config, Among::Threads)?.addresses)
    }

    #[test]
    fn every_address_of_a_name_is_bound_to_one_port() {
        let addresses = bound(&["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"]).unwrap();
        assert_eq!(addresses.len(), 3, "{addresses:?}");
        assert!(addresses.iter().all(|address| address.port() == addresses[0].port()));
    }

    /// TEST-NET-1 and the documentation's prefix of IPv6 are nobody's (RFC 5737, RFC 3849).
    #[test]
    fn an_address_of_a_name_that_this_machine_does_not_have_is_left_out_unless_it_is_the_last() {
        let addresses = bound(&["[2001:db8::1]:0", "127.0.0.1:0", "192.0.2.1:0"]).unwrap();
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        let error = format!("{:#}", bound(&["[2001:db8::1]:0", "192.0.2.1:0"]).unwrap_err());
        assert!(error.contains("[2001:db8::1]:0"), "{error}");
    }

    #[test]
    fn a_worker_that_cannot_start_keeps_the_server_from_starting() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let second_fails = mechanism(|options| match OPENED.fetch_add(1, Ordering::Relaxed) {
            0 => dispatch::ALL
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
