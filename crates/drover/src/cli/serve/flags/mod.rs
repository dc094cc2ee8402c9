//! The flags of `drover serve`, and the parsers of their values.

pub(in crate::cli::serve) mod acme;
pub(in crate::cli::serve) mod admin;
mod http2;
pub(in crate::cli::serve) mod memory;
pub(in crate::cli::serve) mod proxy;
pub(in crate::cli::serve) mod request;
pub(in crate::cli::serve) mod response;
pub(in crate::cli::serve) mod site;
mod state_folder;
pub(in crate::cli::serve) mod tls;

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_mech::accept::Strategy;
use drover_mech::accept::wait_queue::Policy;
use drover_mech::fileio::{self, Backend};
use drover_mech::mechanisms::{DevPollModel, Mechanism};
use drover_mech::net::AcceptBatch;

use crate::cli::auto_or::{
    AutoOr, OnOff, devpoll_model, mechanism, mechanism_names, names, strategy, strategy_names,
};
use crate::cli::serve::addresses::address_or_path;
use crate::cli::serve::hosts::HostFlag;
use crate::cli::serve::remembered::Remembered;
use acme::AcmeFlags;
use admin::AdminFlags;
use drover_server::{AccessLogForm, HostPattern, Listen, Revalidate, STAT_THREADS, WORKER_FLAG};
use drover_sys::process::OrdinaryUser;
use drover_usage::{duration, size};
use http2::Http2Flags;
use memory::{CACHE, MemoryFlags, ServerMemory};
use proxy::ProxyFlags;
use request::{LIMITS, RequestFlags};
use response::SERVING;
use site::SiteFlags;
use tls::TlsFlags;

/// With --revalidate inotify: how often a kept file is checked even though no change was reported, unless the user
/// says.
const INOTIFY_AFTER: Duration = Duration::from_secs(10);

/// The groups of flags in `drover serve --help`, in their order. The flags that operators need come first.
const WORKERS: &str = "Workers";
const EXPERIMENTS: &str = "Experiments";

/// What is served where nothing else is asked for.
pub(in crate::cli::serve) const CURRENT_DIRECTORY: &str = ".";

/// Flags of `drover serve`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Directory to serve; nothing outside it can be reached [default: ., or none with --host]
    pub(in crate::cli::serve) root: Option<PathBuf>,

    /// Where to listen: HOST:PORT, or PORT of 127.0.0.1, or :PORT of every IPv4 address, or unix:PATH
    ///
    /// The server listens on every address of HOST. Port 0 takes a free port. A link-local address has its
    /// interface with it, as in [fe80::1%eth0]:8080. A unix socket has the permissions 0660 unless they
    /// follow, as in unix:/run/drover.sock,mode=0666. With a certificate every address speaks HTTPS, except port 80; ',tls'
    /// or ',plain' behind an address says otherwise. The flag may be given several times
    #[arg(help_heading = SERVING)]
    #[arg(short = 'p', long, visible_alias = "port", value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address_or_path)]
    pub(in crate::cli::serve) listen: Vec<Listen>,

    #[command(flatten)]
    pub(in crate::cli::serve) site: SiteFlags,

    /// Serve other files to requests for a host: NAME=ROOT, and flags of its own; may be given several times
    ///
    /// For example 'example.org,www.example.org=/srv/example --listing'. NAME is a name without a port, an address, or *.NAME
    /// for all names beneath it; a whole name comes before a wildcard, a long wildcard before a short one. Quotation marks
    /// are as in a shell. Flags about files and responses may follow; those that do not are as for all, '--NAME=' takes one
    /// away, and '--NAME=false' switches one off. Requests for other hosts get the files of the ROOT that stands in front, or
    /// the status 421 if there is none. In a file of --config it is a table, [[host]], with the keys name and root.
    #[allow(rustdoc::broken_intra_doc_links, reason = "it is a help text")]
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "NAME=ROOT", hide_short_help = true, value_parser = HostFlag::parse)]
    pub(in crate::cli::serve) host: Vec<HostFlag>,

    /// Serve ROOT only to requests that name these hosts; others get 421 [default: all hosts]
    ///
    /// Names without a port, or *.NAME, with commas between them. Addresses and localhost are always served. '--allowed-hosts
    /// localhost' keeps web pages of other sites from reading a server on this machine by way of a browser (DNS rebinding).
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "LIST", hide_short_help = true, value_delimiter = ',')]
    pub(in crate::cli::serve) allowed_hosts: Vec<HostPattern>,

    /// How long requests under way may go on after SIGTERM, SIGINT or SIGQUIT
    ///
    /// The exit status is 1 if requests are cut off at the end of this time, or by a second signal.
    /// Idle connections are kept for a twentieth of this time, so that a request that is on the way is
    /// still answered.
    #[arg(help_heading = SERVING)]
    #[arg(hide_short_help = true, long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    pub(in crate::cli::serve) grace: Duration,

    /// Append a line per response to FILE; '-': stdout
    ///
    /// Client, time, request, status, bytes of the body, referrer and user agent. A line is written when its
    /// response has left, a second later at most. Lines that the disk is too slow for are lost, and counted.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) access_log: Option<PathBuf>,

    /// The form of a line of --access-log: combined, json, json-stages, or a format such as '%h %t "%r" %s %b %D'
    ///
    /// 'combined' is Apache's. JSON has the time that the response took, the dispatch mechanism and the worker too,
    /// 'json-stages' also what the response waited for. A format has directives of Apache's LogFormat, and
    /// %{NAME}x for what Drover knows; docs/serve.md lists them.
    #[arg(help_heading = SERVING)]
    #[arg(hide_short_help = true, long, value_name = "FORM")]
    #[arg(default_value = "combined", value_parser = AccessLogForm::parse)]
    pub(in crate::cli::serve) log_format: AccessLogForm,

    /// Say in each response how long it took until its head was written (the field Server-Timing)
    ///
    /// Everybody who gets a response can then tell whether its file had to be opened.
    #[arg(help_heading = SERVING)]
    #[arg(hide_short_help = true, long)]
    pub(in crate::cli::serve) server_timing: bool,

    #[command(flatten)]
    pub(in crate::cli::serve) tls: TlsFlags,

    #[command(flatten)]
    pub(in crate::cli::serve) http2: Http2Flags,

    #[command(flatten)]
    pub(in crate::cli::serve) acme: AcmeFlags,

    #[command(flatten)]
    pub(in crate::cli::serve) admin: AdminFlags,

    /// Become this user when the addresses are bound, and serve without the rights of root
    ///
    /// Names or numbers. Without GROUP: the groups that the user has; with GROUP: this group alone. Only root can
    /// become another user. The file of --access-log is opened before.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "USER[:GROUP]", value_parser = user)]
    pub(in crate::cli::serve) user: Option<OrdinaryUser>,

    /// Do not restrict workers to what serving needs (landlock(7), seccomp(2))
    ///
    /// Without this flag workers read ROOT alone, write only what flags name, and make only the system calls that
    /// serving needs: no new sockets, no programs, no signals to others. The log shows what this kernel enforces.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long)]
    pub(in crate::cli::serve) no_sandbox: bool,

    /// Read flags from FILE (TOML); the command line wins
    ///
    /// A key is the long name of a flag, and its value is the flag's value: workers = 4, pin = true,
    /// listen = ["8080", ":80"]. The key 'root' is the directory. Relative paths begin at the folder of
    /// FILE.
    #[arg(help_heading = SERVING)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) config: Option<PathBuf>,

    /// Check the flags and print the settings; serve nothing
    ///
    /// Prints every setting, and whether the command line, the file or a default set it. The output can
    /// be used as a file for --config.
    #[arg(help_heading = SERVING)]
    #[arg(long)]
    pub(in crate::cli::serve) check: bool,

    /// Print what each 'auto' would take here and why, and what to change to get better; serve nothing
    ///
    /// For dispatch, accept, file backend, workers, descriptors and more: what was looked at, what it was, what was
    /// chosen, and what a setting of the machine would gain. The addresses need not be free.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, conflicts_with = "check")]
    pub(in crate::cli::serve) explain: bool,

    /// Time limit for a request head; 0: none
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    pub(in crate::cli::serve) header_timeout: Duration,

    /// Time limit for idle and stalled clients; 0: none
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "T", default_value = "60s", value_parser = duration::parse)]
    pub(in crate::cli::serve) idle_timeout: Duration,

    /// Time limit for opening a file before a 503; 0: none
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    pub(in crate::cli::serve) open_timeout: Duration,

    /// Disconnect clients that read fewer bytes per second; 0: never
    ///
    /// The rate is an average over the time of --idle-timeout (a minute if that is 0). Only the time
    /// counts in which the server has bytes to send to the client
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "BYTES", default_value = "240", value_parser = size::parse_or_none)]
    pub(in crate::cli::serve) min_rate: usize,

    /// Most connections open at a time, over all workers
    ///
    /// At the limit, the server closes the connection that has been idle longest when a new connection
    /// comes. If no connection is idle, new connections wait [default: as many as the limit of open
    /// files allows, with some descriptors left for files]
    #[arg(help_heading = LIMITS)]
    #[arg(long, value_name = "N")]
    pub(in crate::cli::serve) max_connections: Option<NonZeroUsize>,

    /// How many connections a client may have at a time; further ones are closed at once [default: no limit]
    ///
    /// A client is an IPv4 address, or an IPv6 network of 64 bits. All workers count together, with --processes
    /// each by itself. Behind a proxy all connections come from one address: leave the limit to the proxy.
    #[arg(help_heading = LIMITS, hide_short_help = true)]
    #[arg(long, value_name = "N")]
    pub(in crate::cli::serve) max_per_address: Option<NonZeroU32>,

    #[command(flatten)]
    pub(in crate::cli::serve) requests: RequestFlags,

    #[command(flatten)]
    pub(in crate::cli::serve) proxies: ProxyFlags,

    #[command(flatten)]
    pub(in crate::cli::serve) memory: MemoryFlags,

    /// How long a cached file is served unchecked; or 'inotify'
    ///
    /// With 'inotify' the server drops a kept file at once when the kernel reports a change. The server
    /// also checks every kept file after 10s (after T with 'inotify,T'), because the kernel does not
    /// report some changes: stores into a mapped file, writes through a link in another directory,
    /// mounts, and writes by other hosts. A file in a directory that cannot be watched is checked after
    /// 1s.
    #[arg(help_heading = CACHE)]
    #[arg(long, value_name = "T", default_value = "1s", value_parser = revalidate)]
    pub(in crate::cli::serve) revalidate: Revalidate,

    /// How many workers serve, each with connections and a --cache of its own
    ///
    /// 'auto' is a worker for each processor that this process may use by its CPU affinity and the
    /// quota of its cgroup
    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "N", default_value = "auto", value_parser = workers)]
    pub(in crate::cli::serve) workers: Workers,

    /// Make each worker a process, replaced when it dies
    #[arg(help_heading = WORKERS)]
    #[arg(long)]
    pub(in crate::cli::serve) processes: bool,

    /// Keep each worker on a processor of its own
    #[arg(help_heading = WORKERS)]
    #[arg(long)]
    pub(in crate::cli::serve) pin: bool,

    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "M", default_value = "auto", value_parser = mechanism,
          help = "How a worker waits; 'drover mechanisms' lists how it can",
          long_help = format!("How a worker waits: {}", mechanism_names()))]
    pub(in crate::cli::serve) dispatch: AutoOr<Mechanism>,

    /// How long a worker that has something to do lets further requests gather before it looks for them; at most 1s
    ///
    /// Fewer wake-ups for each request, and up to so much more latency: for servers whose processors are wanted for other
    /// things. The first request after a rest is not held up. 'uring' has the kernel gather (Linux 6.12), other mechanisms
    /// sleep.
    #[arg(help_heading = WORKERS, hide_short_help = true)]
    #[arg(long, value_name = "T", default_value = "0", value_parser = min_wait)]
    pub(in crate::cli::serve) min_wait: Duration,

    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "S", default_value = "auto", value_parser = strategy,
          help = "How new connections are shared among workers",
          long_help = format!("How new connections are shared among workers: {}", strategy_names()))]
    pub(in crate::cli::serve) accept: AutoOr<Strategy>,

    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "B", default_value = "auto", value_parser = backend,
          help = "How a file's bytes reach the socket",
          long_help = backend_help())]
    pub(in crate::cli::serve) files: AutoOr<Backend>,

    /// Whether 'auto' uses the result of 'drover tune ROOT', if kernel, processor and program are
    /// unchanged
    #[arg(help_heading = WORKERS, hide_short_help = true)]
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(in crate::cli::serve) tuned: OnOff,

    /// How many threads of the process read files that are not in the page cache
    ///
    /// For --files auto. With --files threads, these threads read all files.
    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(in crate::cli::serve) read_threads: u16,

    /// How many threads of the process open, check and close files; 0: workers do so themselves, and wait
    ///
    /// A worker asks only what the kernel answers from memory. With 0, a disk or network file system that hangs
    /// stops the worker.
    #[arg(help_heading = WORKERS)]
    #[arg(long, value_name = "N", default_value_t = STAT_THREADS as u16)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(in crate::cli::serve) stat_threads: u16,

    /// Answer every request with SIZE bytes and read no file, as the micro web server of the papers
    /// does
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, alias = "reply-size", value_name = "SIZE", conflicts_with_all = ["root", "host"])]
    #[arg(value_parser = size::parse_or_none)]
    pub(in crate::cli::serve) response_size: Option<usize>,

    /// Write the times of each response to FILE, a line each; 'drover lab trace FILE' draws them
    ///
    /// A line says how long the response waited for the bytes of the file, for a thread that reads, and
    /// for the client, and who read the file
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) trace: Option<PathBuf>,

    /// Use the processor for the additional time T for each request
    ///
    /// Makes a server that is slower by a known time, for 'drover lab calibrate'
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    pub(in crate::cli::serve) spin_per_request: Option<Duration>,

    /// How many connections are accepted per wait: a number, or 'all'
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value = "all", value_parser = accept_batch)]
    pub(in crate::cli::serve) accept_batch: AcceptBatch,

    /// With --accept reuseport: the processor that a connection comes in on chooses the worker
    ///
    /// Needs as many workers as processors, and --pin
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long)]
    pub(in crate::cli::serve) accept_by_cpu: bool,

    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "P", value_parser = policy,
          help = format!("With --accept handoff: whom a connection wakes, as in Molloy & Lever's wait \
                          queues: {} [default: {}]", policies(), Policy::TaskExclusive.name()))]
    pub(in crate::cli::serve) accept_wake: Option<Policy>,

    /// Whether to accept a connection only when the first bytes have come (TCP_DEFER_ACCEPT)
    ///
    /// Spares a wait per connection. A connection that sends nothing is accepted after a second. When a worker first
    /// has as many connections as it may, this is switched off for its sockets until a restart or reload: silent connections would
    /// arrive in bursts
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub(in crate::cli::serve) defer_accept: OnOff,

    /// What to do when the kernel's queue of events overflows
    ///
    /// 'recover' finds every lost event. 'ignore' loses events on purpose, for the experiment about
    /// overflows
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "O", default_value = "recover")]
    pub(in crate::cli::serve) overflow: Overflow,

    /// Which parts of the /dev/poll patch --dispatch devpoll models, in addition to the interest set
    ///
    /// 'none', or a list of parts. 'hints': a scan asks only descriptors that have changed. 'walk': a
    /// scan walks over a hash table. 'lock': a scan holds a lock that all workers share. 'apart': scan
    /// and sleep are separate; the other parts imply this part. 'ready-list', which the patch had not:
    /// a scan looks at nothing but a list of descriptors that may be ready. Where the kernel has
    /// /dev/poll (docs/kernel.md), the parts are those of the device
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "PARTS", default_value = "none", value_parser = devpoll_model)]
    pub(in crate::cli::serve) devpoll_model: DevPollModel,

    /// How bytes that are in the page cache are read: by the worker at once, or queued like all others
    ///
    /// 'at-once': the worker reads with RWF_NOWAIT. 'queued': the backend reads all bytes. For --files
    /// threads, posix-aio, linux-aio, linux-aio-sendfile and uring
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "WHEN", default_value = "at-once")]
    pub(in crate::cli::serve) cached_reads: CachedReads,

    /// How many bytes --files reads at a time into the memory of a connection
    ///
    /// For backends that read a file into memory
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size::parse)]
    pub(in crate::cli::serve) read_ahead: usize,

    /// Take the listening sockets over from the server that runs with the same PATH, and hand them on to the next one
    ///
    /// The first server makes a socket at PATH, for its user and root. When the next one serves, the first answers its last
    /// requests and ends: no connection is refused or lost, whatever has changed, also the program itself.
    #[arg(help_heading = SERVING, hide_short_help = true)]
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli::serve) take_over: Option<PathBuf>,

    /// How many bytes of a response a worker sends before the next connection's turn: a size, or 'auto'
    ///
    /// 'auto' depends on the processor's caches and on the number of connections that send.
    ///
    /// For --files sendfile, splice and auto. Other backends read as many bytes as --read-ahead says.
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = send_budget)]
    pub(in crate::cli::serve) send_budget: SendBudgetFlag,

    /// Write the counters of all workers to FILE, as JSON, at SIGUSR1 and at the end
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) counters: Option<PathBuf>,

    /// Keep the counts of waits and events of --counters up to date at each wait
    ///
    /// Without it they are counted when a worker ends, and always with --admin
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, requires = "counters")]
    pub(in crate::cli::serve) count_events: bool,

    /// Write every event that --dispatch reports to FILE: its time and its connection
    ///
    /// For a server with a single worker
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli::serve) record_events: Option<PathBuf>,

    /// Do not change the access time of files that this user owns (O_NOATIME)
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long)]
    pub(in crate::cli::serve) noatime: bool,

    /// What the kernel is told about future reads (posix_fadvise)
    ///
    /// 'sequential': a file is read from its beginning to its end. 'willneed': which part of the file
    /// comes next, so that the kernel reads this part while the server sends another part
    #[arg(help_heading = EXPERIMENTS, hide_short_help = true)]
    #[arg(long, value_name = "A", default_value = "none")]
    pub(in crate::cli::serve) advise: Advise,

    #[arg(long = WORKER_FLAG.trim_start_matches('-'), hide = true)]
    pub(in crate::cli::serve) as_worker: Option<i32>,
}

impl Args {
    pub(in crate::cli::serve) fn workers(&self) -> NonZeroUsize {
        self.workers.number(self.max_connections)
    }

    /// The memory that the server uses.
    pub(in crate::cli::serve) fn server_memory(&self) -> ServerMemory {
        let workers = self.workers();
        self.memory.of_server(workers, if self.processes { workers } else { NonZeroUsize::MIN })
    }

    /// The directory for requests that name no host with files of its own; `None`: there is none.
    pub(in crate::cli::serve) fn root_of_all(&self) -> Option<&Path> {
        let default = || {
            (self.host.is_empty() && self.response_size.is_none())
                .then(|| Path::new(CURRENT_DIRECTORY))
        };
        self.root.as_deref().or_else(default)
    }
}

/// The values of `--overflow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum Overflow {
    Recover,
    Ignore,
}

/// The values of `--cached-reads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum CachedReads {
    AtOnce,
    Queued,
}

/// The values of `--advise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli::serve) enum Advise {
    None,
    Sequential,
    Willneed,
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::by_name(text).ok_or_else(|| format!("there are {}", policies()))
}

fn policies() -> String {
    names(Policy::ALL.iter().map(|policy| policy.name()))
}

fn user(text: &str) -> Result<OrdinaryUser, String> {
    static KNOWN: Remembered<OrdinaryUser> = Remembered::new();
    KNOWN.find(text, || OrdinaryUser::parse(text))
}

fn backend(text: &str) -> Result<AutoOr<Backend>, String> {
    if text == "auto" {
        return Ok(AutoOr(None));
    }
    let found = fileio::by_name(text).ok_or_else(|| format!("there are {}", backends()))?;
    Ok(AutoOr(Some(found)))
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

/// The number of workers; `None`: one for each processor that this process may use.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli::serve) struct Workers(Option<NonZeroUsize>);

impl Workers {
    /// Whether the number follows the processors.
    pub(in crate::cli::serve) fn is_auto(self) -> bool {
        self.0.is_none()
    }

    /// The number of workers. At most `most`, because each worker needs one of the connections.
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

/// How many bytes of a response a worker sends before the next connection's turn; `None`: derived from the caches.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli::serve) struct SendBudgetFlag(pub(in crate::cli::serve) Option<NonZeroU64>);

fn send_budget(text: &str) -> Result<SendBudgetFlag, String> {
    match text {
        "auto" => Ok(SendBudgetFlag(None)),
        size => {
            let bytes = size::parse(size).map_err(|reason| format!("{reason}; or auto"))?;
            Ok(SendBudgetFlag(NonZeroU64::new(bytes as u64)))
        }
    }
}

fn min_wait(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    let is_right = time <= Duration::from_secs(1);
    is_right.then_some(time).ok_or_else(|| "write a time of at most 1s, such as 50us".to_owned())
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
