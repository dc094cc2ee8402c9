//! `drover serve`: flags of the web server.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use mech::accept::{self, Settings, Strategy};
use mech::dispatch::{self, Features, Mechanism};
use mech::fileio::{self, Backend, ReadMemory};
use mech::fs::Root;
use mech::net::{AcceptBatch, MinRate};
use mech::open_pool::OpenPool;
use mech::wait_queue::Policy;
use tracing::{info, warn};

use super::choice::{Choice, mechanism, mechanism_names, names, strategy, strategy_names};
use super::listen::with_host;
use super::stdout::stdout;
use super::{duration, size};
use crate::error::UsageError;
use crate::log;
use crate::server::{
    Chosen, Config, Inheritance, Listen, Revalidate, Role, STAT_THREADS, Server, Source,
    Statistics, StopSignals, Supervisor, WORKER_FLAG, WorkerStatistics, be_worker,
    coefficient_of_variation,
};

/// For how many descriptors there is room from the start, over all processes, if as many may be open.
const ROOM: u64 = 65_536;
/// And in each process at least.
const LEAST_ROOM: u64 = 1024;
/// When a kept file is looked at although no change was heard of, unless we are told.
const INOTIFY_AFTER: Duration = Duration::from_secs(10);

/// Over what time a client's rate is averaged where no time-out says what its patience is.
const RATE_WINDOW: Duration = Duration::from_secs(60);

/// The groups of flags in `drover serve --help`, in their order: those of operators first.
const SERVING: &str = "Serving";
const LIMITS: &str = "Limits";
const CACHE: &str = "Cache";
const WORKERS: &str = "Workers";
const EXPERIMENTS: &str = "Experiments";

/// Flags of `drover serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory whose files are served; nothing outside of it is
    #[arg(default_value = ".")]
    root: PathBuf,

    /// Where to listen: HOST:PORT, or PORT of 127.0.0.1, or :PORT of every IPv4 address
    ///
    /// A HOST is bound at all of its addresses. Port 0 takes a free one. May be given several times
    #[arg(help_heading = SERVING)]
    #[arg(short = 'p', long, visible_alias = "port", value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: Vec<Listen>,

    /// Serve files and directories whose names begin with a dot too
    ///
    /// Without it only those in /.well-known/ are
    #[arg(help_heading = SERVING)]
    #[arg(long)]
    hidden: bool,

    /// How long requests under way may go on after SIGTERM, SIGINT or SIGQUIT
    ///
    /// Those that are cut then, or by a second signal, make the exit status 1. For a twentieth of it idle
    /// connections are kept, so that a request on its way is still answered.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    grace: Duration,

    /// Check the flags, the directory and the addresses, and serve nothing
    #[arg(help_heading = SERVING)]
    #[arg(long)]
    check: bool,

    /// How long a request's head may take from its first byte on; 0: for ever
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    header_timeout: Duration,

    /// How long a connection may be silent between requests, or take nothing of a reply; 0: for ever
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "T", default_value = "60s", value_parser = duration::parse)]
    idle_timeout: Duration,

    /// How long a request may wait until its file is open, before it is refused (503); 0: for ever
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    open_timeout: Duration,

    /// How many bytes per second a client must take of a response at least; 0: it may be as slow as it
    /// likes
    ///
    /// On an average over the time of --idle-timeout (or a minute), in which only the time counts in
    /// which there were bytes for the client
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "BYTES", default_value = "240", value_parser = size::parse_or_none)]
    min_rate: usize,

    /// How many connections there may be at a time, over all workers
    ///
    /// When there are as many, those that have been idle longest are closed for new ones; if none is
    /// idle, new ones wait [default: what the limit of open files allows with some left for files]
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,

    /// How much a worker may keep of files it has served: a size, or 'off'
    #[arg(help_heading = CACHE)]
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse_or_off)]
    cache: usize,

    /// How long a kept file is served before its name is looked at again; or 'inotify'
    ///
    /// With 'inotify' a kept file is dropped at once when the kernel reports a change, and looked at
    /// after 10s all the same (or after T with 'inotify,T'), because stores into a mapped file, writes
    /// through a link from elsewhere, mounts and other hosts are not reported. Where a directory cannot
    /// be watched, after 1s.
    #[arg(help_heading = CACHE)]
    #[arg(long, value_name = "T", default_value = "1s", value_parser = revalidate)]
    revalidate: Revalidate,

    /// How many threads serve, each with its own dispatch, connections and --cache
    ///
    /// 'auto' is one for each processor that this process may use, as its affinity and its cgroup's
    /// quota say
    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "N", default_value = "auto", value_parser = workers)]
    workers: Workers,

    /// Serve by processes instead of threads: one that dies is replaced, and the others serve on
    #[arg(help_heading = WORKERS)]
    #[arg(long)]
    processes: bool,

    /// Keep each worker on a processor of its own
    #[arg(help_heading = WORKERS)]
    #[arg(long)]
    pin: bool,

    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "M", default_value = "auto", value_parser = mechanism,
          help = "How a worker waits; 'drover mechanisms' lists how it can",
          long_help = format!("How a worker waits: {}", mechanism_names()))]
    dispatch: Choice<Mechanism>,

    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "S", default_value = "auto", value_parser = strategy,
          help = "How new connections are shared among workers",
          long_help = format!("How new connections are shared among workers: {}", strategy_names()))]
    accept: Choice<Strategy>,

    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "B", default_value = "auto", value_parser = backend,
          help = "How a file's bytes reach the socket",
          long_help = backend_help())]
    files: Choice<Backend>,

    /// How many threads of the process read files that are not in the page cache
    ///
    /// For --files auto; with --files threads they read all files.
    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    read_threads: u16,

    /// How many threads of the process open files; 0: workers do, and wait
    ///
    /// They open the files whose names or attributes the kernel may have to ask the disk for, so that no
    /// worker waits for it.
    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "N", default_value_t = STAT_THREADS as u16)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=1024))]
    stat_threads: u16,

    /// Answer every request with that many bytes and touch no file: the papers' micro web server
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", conflicts_with = "root", value_parser = size::parse_or_none)]
    reply_size: Option<usize>,

    /// Write a line for each reply to FILE: how long it waited for its file's bytes, for a reader and
    /// for the client, and who read; 'drover lab trace FILE' draws it
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// How many connections are accepted per wait: a number, or 'all'
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value = "all", value_parser = accept_batch)]
    accept_batch: AcceptBatch,

    /// With --accept reuseport: the processor that a connection comes in on chooses the worker. For
    /// as many workers as processors, with --pin
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long)]
    accept_by_cpu: bool,

    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "P", value_parser = policy,
          help = format!("With --accept handoff: whom a connection wakes, as in Molloy & Lever's wait \
                          queues: {} [default: {}]", policies(), Policy::TaskExclusive.name()))]
    accept_wake: Option<Policy>,

    /// Whether a connection is taken over only once its first bytes are here, or after a second
    /// without any (TCP_DEFER_ACCEPT): spares a wait per connection
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "WHETHER", default_value = "on", value_parser = ["on", "off"])]
    defer_accept: String,

    /// What to do when the kernel's queue of events has overflowed: recover every lost event, or be
    /// the deliberately wrong server of the overflow experiment
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "O", default_value = "recover", value_parser = ["recover", "ignore"])]
    overflow: String,

    /// Whether workers read themselves, at once, what is in the page cache (RWF_NOWAIT), or leave it
    /// to the readers like the rest, for --files threads, posix-aio, linux-aio and uring
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "WHEN", default_value = "at-once", value_parser = ["at-once", "queued"])]
    cached_reads: String,

    /// How many bytes a backend that reads into memory of a connection's reads at a time
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size::parse)]
    read_ahead: usize,

    /// How much memory all connections of a process have for what such a backend reads, at least 256K;
    /// unless told, an eighth of what the process may have (the machine's memory, its cgroup's,
    /// RLIMIT_AS), 256M at most
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    read_memory: Option<usize>,

    /// Leave the access time of files as it is when they are read, if they are this user's
    /// (O_NOATIME)
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long)]
    noatime: bool,

    /// What the kernel is told of reads to come (posix_fadvise): that a file is read from its
    /// beginning to its end, or which step comes next, so that it is read while one is sent
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "A", default_value = "none")]
    #[arg(value_parser = ["none", "sequential", "willneed"])]
    advise: String,

    #[arg(long = WORKER_FLAG.trim_start_matches('-'), hide = true, value_parser = inheritance)]
    as_worker: Option<Inheritance>,
}

impl Args {
    fn workers(&self) -> NonZeroUsize {
        self.workers.number(self.max_connections)
    }
}

/// Runs `drover serve`.
pub(super) fn run(mut args: Args) -> anyhow::Result<()> {
    if let Some(inheritance) = args.as_worker.take() {
        let status = be_worker(set_up_worker(args, &inheritance), &inheritance);
        log::finish();
        std::process::exit(status);
    }
    if args.processes && args.trace.is_some() {
        bail!(UsageError::new(
            "--trace: it is written by one process; use it without --processes".to_string()
        ));
    }
    if args.check {
        return check(args);
    }
    log::start()?;
    // Before anything is opened that could wait for ever: a signal ends that.
    let role = if args.processes { Role::Supervisor } else { Role::Server };
    serve(args, &StopSignals::catch(role)?)
}

fn set_up_worker(args: Args, inheritance: &Inheritance) -> anyhow::Result<(Config, StopSignals)> {
    log::start()?;
    let signals = StopSignals::catch(Role::Worker)?;
    // Whatever can be had now, the supervisor has opened the doors of what it has chosen.
    allow_many_descriptors(&args)?;
    Ok((configuration(args, inheritance.chosen()?)?, signals))
}

/// Tells what would be wrong, or what would be served.
fn check(args: Args) -> anyhow::Result<()> {
    let processes = args.processes;
    let (chosen, why_no_rings) = choose(&args)?;
    let served = what_is_served(&args);
    let config = configuration(args, chosen)?;
    Server::check(&config)?;
    let described = describe(&config, processes, why_no_rings);
    let addresses: Vec<_> =
        config.listen.iter().flat_map(|listen| &listen.addresses).copied().collect();
    let urls = urls(&addresses);
    writeln!(stdout(), "no fault found; would serve {served} on {urls}: {described}")?;
    Ok(())
}

fn serve(args: Args, signals: &StopSignals) -> anyhow::Result<()> {
    let processes = args.processes;
    let (chosen, why_no_rings) = choose(&args)?;
    allow_many_descriptors(&args)?;
    let served = what_is_served(&args);
    let config = configuration(args, chosen)?;
    let described = describe(&config, processes, why_no_rings);
    let grace = config.grace;
    let (result, sum, workers) = if processes {
        let mut server = Supervisor::start(&config)?;
        server.stop_at(signals);
        announce(server.addresses())?;
        info!("serving {served} on {}: {described}", urls(server.addresses()));
        (server.run(), server.statistics(), server.workers())
    } else {
        let server = Server::start(config)?;
        server.stop_at(signals);
        announce(server.addresses())?;
        info!("serving {served} on {}: {described}", urls(server.addresses()));
        (server.wait(), server.statistics(), server.workers())
    };
    tell_end(sum, &workers);
    match sum.cut {
        0 => result,
        cut => result.and(Err(anyhow!(
            "connections cut at the end of the grace, {grace:?} after the signal: {cut}; --grace says \
             how long they may take"
        ))),
    }
}

/// As many descriptors as possible, with room for this process' share of them in the kernel's table.
fn allow_many_descriptors(args: &Args) -> anyhow::Result<()> {
    let sharers = if args.processes { args.workers().get() as u64 } else { 1 };
    mech::process::raise_open_files_limit().context("cannot raise the limit of open files")?;
    if let Err(error) = mech::process::make_room_for_descriptors((ROOM / sharers).max(LEAST_ROOM)) {
        warn!(
            "descriptors get their room as they come, which may stop a worker for 10 ms: {error}"
        );
    }
    Ok(())
}

/// What was done, and how evenly.
fn tell_end(sum: Statistics, workers: &[WorkerStatistics]) {
    info!("stopped: {sum}");
    if workers.len() > 1 {
        let column = |of: fn(&WorkerStatistics) -> u64| workers.iter().map(of).collect::<Vec<_>>();
        let connections = column(|worker| worker.connections);
        info!(
            "by worker: connections {connections:?} (coefficient of variation {:.2}), waits {:?}, \
             accepts lost {:?}",
            coefficient_of_variation(&connections),
            column(|worker| worker.waits),
            column(|worker| worker.accepts_lost),
        );
    }
}

fn configuration(args: Args, (mechanism, accept): Chosen) -> anyhow::Result<Config> {
    let source = match args.reply_size {
        Some(size) => Source::Fixed(size),
        None => Source::Directory(Arc::new(open_root(&args.root)?)),
    };
    let file_options = file_options(&args)?;
    if args.accept_by_cpu && !accept.settings.contains(Settings::BY_CPU) {
        bail!(UsageError::new(format!(
            "--accept-by-cpu: --accept {} has no sockets to choose from; use --accept {}",
            accept.name,
            names(with_setting(Settings::BY_CPU)),
        )));
    }
    if args.accept_wake.is_some() && !accept.settings.contains(Settings::WAKE_POLICY) {
        bail!(UsageError::new(format!(
            "--accept-wake: --accept {} has no wait queue of ours; use --accept {}",
            accept.name,
            names(with_setting(Settings::WAKE_POLICY)),
        )));
    }
    if let Some(most) = args.max_connections.filter(|most| *most < args.workers()) {
        bail!(UsageError::new(format!(
            "--max-connections {most}: each of {} workers needs one; use --max-connections {}",
            args.workers(),
            args.workers(),
        )));
    }
    let workers = args.workers();
    let some = |time: Duration| (!time.is_zero()).then_some(time);
    Ok(Config {
        listen: args.listen,
        dispatch: dispatch_options(mechanism, &args.overflow)?,
        accept,
        by_cpu: args.accept_by_cpu,
        wake: args.accept_wake.unwrap_or(Policy::TaskExclusive),
        accept_batch: args.accept_batch,
        defer_accept: args.defer_accept == "on",
        hidden: args.hidden,
        files: args.files.usable()?,
        file_options,
        openers: (args.stat_threads > 0).then(|| Arc::new(OpenPool::new(args.stat_threads.into()))),
        noatime: args.noatime,
        advise_sequential: args.advise == "sequential",
        cache: args.cache,
        revalidate: args.revalidate,
        workers,
        pin: args.pin,
        header_time_out: some(args.header_timeout),
        idle_time_out: some(args.idle_timeout),
        open_time_out: some(args.open_timeout),
        min_rate: NonZeroU64::new(args.min_rate as u64).map(|bytes_per_second| MinRate {
            bytes_per_second,
            window: some(args.idle_timeout).unwrap_or(RATE_WINDOW),
        }),
        max_connections: args.max_connections,
        grace: args.grace,
        trace: args.trace,
        ..Config::new(source, mechanism)
    })
}

/// What was asked for, or the best that all workers can have; and why that is not rings, if they would
/// be better.
fn choose(args: &Args) -> anyhow::Result<(Chosen, Option<String>)> {
    let mut why_no_rings = None;
    let auto = || match dispatch::rings(args.workers().get()) {
        Ok(mechanism) => Some(mechanism),
        Err(reason) => {
            why_no_rings = Some(reason);
            dispatch::auto_of_readiness()
        }
    };
    let mechanism = args.dispatch.clone().usable(auto)?;
    let accept = args.accept.clone().usable(args.workers(), mechanism)?;
    Ok(((mechanism, accept), why_no_rings))
}

fn dispatch_options(mechanism: &Mechanism, overflow: &str) -> anyhow::Result<dispatch::Options> {
    let ignore_overflow = overflow == "ignore";
    if ignore_overflow && !mechanism.features.contains(Features::CAN_OVERFLOW) {
        let can = dispatch::ALL.iter().filter(|m| m.features.contains(Features::CAN_OVERFLOW));
        bail!(UsageError::new(format!(
            "--overflow ignore: {} has no queue that could overflow; use it with --dispatch {}",
            mechanism.name,
            names(can.map(|mechanism| mechanism.name)),
        )));
    }
    Ok(dispatch::Options { ignore_overflow, ..dispatch::Options::default() })
}

fn file_options(args: &Args) -> anyhow::Result<fileio::Options> {
    let advise_next = args.advise == "willneed";
    if let Some(backend) = args.files.0.filter(|backend| advise_next && backend.past_cache) {
        bail!(UsageError::new(format!(
            "--advise willneed: {} reads past the page cache, where nothing can be there before; \
             use --advise none, or --files threads",
            backend.name,
        )));
    }
    let mut options = fileio::Options::new(args.read_ahead, args.read_threads.into());
    options.advise_next = advise_next;
    options.cached_at_once = args.cached_reads == "at-once";
    options.read_memory = match args.read_memory {
        Some(bytes) if (bytes as u64) < ReadMemory::LEAST => {
            let least = ReadMemory::LEAST / 1024;
            bail!(UsageError::new(format!(
                "--read-memory {bytes}: two reads need more; use {least}K or more"
            )));
        }
        Some(bytes) => ReadMemory::of(bytes as u64),
        None => ReadMemory::of_process(if args.processes { args.workers().get() } else { 1 }),
    };
    Ok(options)
}

fn open_root(directory: &Path) -> anyhow::Result<Root> {
    let refused = |reason: &dyn std::fmt::Display| {
        let directory = directory.display();
        UsageError::new(format!("cannot serve '{directory}': {reason}; ROOT must be a directory"))
    };
    let root = Root::open(directory).map_err(|error| refused(&error))?;
    // Whether the kernel has openat2 shows at the first file; better here than at each request.
    match root.open_file(b"") {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(error).context(
            "openat2(2) is missing: Drover needs Linux 5.11, and a container that allows it",
        ),
        _ => Ok(root),
    }
}

/// One line per address, the first thing on stdout: whoever started the server waits for it. Behind
/// them, for addresses that stand for all of the machine's, the URLs to type into a browser.
fn announce(addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let mut out = stdout();
    for address in addresses {
        writeln!(out, "listening on http://{address}")?;
    }
    for address in addresses.iter().flat_map(reachable) {
        writeln!(out, "reachable at http://{address}")?;
    }
    Ok(out.flush()?)
}

/// The addresses of the interfaces that a listener on `0.0.0.0` or `[::]` takes connections to; none for
/// one on any other address. An IPv6 listener takes no IPv4 connections.
fn reachable(listening: &SocketAddr) -> Vec<SocketAddr> {
    if !listening.ip().is_unspecified() {
        return Vec::new();
    }
    let interfaces = mech::socket::interface_addresses().unwrap_or_else(|error| {
        warn!("cannot list the addresses of the interfaces: {error}");
        Vec::new()
    });
    let same_family = interfaces.into_iter().filter(|ip| ip.is_ipv4() == listening.is_ipv4());
    same_family.map(|ip| SocketAddr::new(ip, listening.port())).collect()
}

/// Which directory, or what in place of one.
fn what_is_served(args: &Args) -> String {
    match args.reply_size {
        Some(size) => format!("replies of {size} bytes"),
        None => {
            args.root.canonicalize().unwrap_or_else(|_| args.root.clone()).display().to_string()
        }
    }
}

fn urls(addresses: &[SocketAddr]) -> String {
    let urls: Vec<String> = addresses.iter().map(|address| format!("http://{address}")).collect();
    urls.join(", ")
}

/// What was picked, on each axis.
fn describe(config: &Config, processes: bool, why_no_rings: Option<String>) -> String {
    let kind = if processes { "worker process" } else { "worker" };
    let workers = match config.workers.get() {
        1 => format!("1 {kind}"),
        workers => {
            let plural = if processes { "es" } else { "s" };
            format!("{workers} {kind}{plural}, accept {}", config.accept.name)
        }
    };
    let files = match (&config.source, config.files) {
        (Source::Fixed(_), _) => "no files".to_string(),
        (_, Some(backend)) => format!("files by {}", backend.name),
        (_, None) => format!(
            "small files from memory, large ones by {}",
            names(fileio::AUTO_TAKES.iter().map(|backend| backend.name))
        ),
    };
    let regret = why_no_rings.map(|reason| format!(" (uring would be better: {reason})"));
    let regret = regret.unwrap_or_default();
    format!("dispatch {}{regret}, {workers}, {files}", config.mechanism.name)
}

/// The strategies that can be told it.
fn with_setting(setting: Settings) -> impl Iterator<Item = &'static str> {
    let strategies = accept::ALL.iter().filter(move |it| it.settings.contains(setting));
    strategies.map(|strategy| strategy.name)
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::by_name(text).ok_or_else(|| format!("there are {}", policies()))
}

fn policies() -> String {
    names(Policy::ALL.iter().map(|policy| policy.name()))
}

fn inheritance(text: &str) -> Result<Inheritance, serde_json::Error> {
    serde_json::from_str(text)
}

fn address(text: &str) -> Result<Listen, String> {
    let found = with_host(text).to_socket_addrs().map_err(|error| {
        format!("{error}; write HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080, or a PORT")
    })?;
    let mut addresses = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(Listen { name: text.to_owned(), addresses })
}

fn backend(text: &str) -> Result<Choice<Backend>, String> {
    if text == "auto" {
        return Ok(Choice(None));
    }
    let found = fileio::by_name(text).ok_or_else(|| format!("there are {}", backends()))?;
    Ok(Choice(Some(found)))
}

fn backend_help() -> String {
    format!(
        "How a file's bytes reach the socket: {}. auto sends small files from memory, others by \
         sendfile (large parts: splice) if they are in the page cache, and has threads read them if \
         not; a backend by name moves every byte itself",
        backends()
    )
}

fn backends() -> String {
    format!("auto, {}", names(fileio::ALL.iter().map(|backend| backend.name)))
}

/// How many workers there are to be; `None`: one for each processor that this process may use.
#[derive(Clone, Copy, Debug)]
struct Workers(Option<NonZeroUsize>);

impl Workers {
    /// How many that is. Each needs a connection of the `most` that there may be.
    fn number(self, most: Option<NonZeroUsize>) -> NonZeroUsize {
        self.0.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
            most.map_or(processors, |most| most.min(processors))
        })
    }
}

fn workers(text: &str) -> Result<Workers, String> {
    match text {
        "auto" => Ok(Workers(None)),
        number => number
            .parse()
            .map(|number| Workers(Some(number)))
            .map_err(|_| "write a number above 0, or auto".to_string()),
    }
}

fn accept_batch(text: &str) -> Result<AcceptBatch, String> {
    match text {
        "all" => Ok(AcceptBatch::All),
        number => number
            .parse::<NonZeroU32>()
            .map(AcceptBatch::Most)
            .map_err(|_| "write a number above 0, or all".to_string()),
    }
}

fn revalidate(text: &str) -> Result<Revalidate, String> {
    let Some(watched) = text.strip_prefix("inotify") else {
        let after = duration::parse(text)
            .map_err(|reason| format!("{reason}; or inotify, or inotify,10s"))?;
        return Ok(Revalidate { after, watched_after: None });
    };
    let watched_after = match watched.strip_prefix(',') {
        None if watched.is_empty() => INOTIFY_AFTER,
        Some(after) => duration::parse(after)?,
        None => return Err("write inotify, or inotify,10s".to_string()),
    };
    let after = watched_after.min(Revalidate::default().after);
    Ok(Revalidate { after, watched_after: Some(watched_after) })
}
