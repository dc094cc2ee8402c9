//! `drover serve`: makes a server from flags, and prints what the server uses.

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use drover_mech::accept::wait_queue::Policy;
use drover_mech::accept::{self, ObeyedFields};
use drover_mech::fileio;
use drover_mech::files::open_pool::OpenPool;
use drover_mech::files::root::{Root, Symlinks};
use drover_mech::mechanisms::{self, Features, Mechanism};
use drover_mech::net::MinRate;
use tracing::{info, warn};

use super::auto_or::names;
use drover_server::log;
use drover_server::{
    AccessLog, Auth, ChildLimits, Config, ContentSource, FilesRead, HostSite, Inheritance,
    Listings, MechanismAndStrategy, MemoryUse, OpenedFiles, Role, SiteSettings, Statistics,
    StopSignals, Supervisor, WorkerStatistics, be_child, coefficient_of_variation, refuse_served,
    strict_transport,
};
use drover_sys::process::activation::passed_sockets;
use drover_sys::socket::{Address, bound_address};
use drover_usage::{UsageError, printable};

mod addresses;
mod announce;
mod check;
mod config;
mod explain;
mod flags;
mod hosts;
mod reload;
mod remembered;
mod tuned;

use announce::{Announcements, announce, begun, status, urls};
use check::check;
#[cfg(fuzzing)]
pub use config::fuzzing;
use config::{FlagOrigin, FlagValues};
use explain::explain;
pub(super) use flags::Args;
use flags::memory::ServerMemory;
use flags::response::described_auth;
use flags::site::{SiteFlags, UserFiles};
use flags::tls::check_addresses;
use flags::{Advise, CachedReads, Overflow};
use hosts::SiteFaults;
use reload::{Started, reloader};
pub(super) use tuned::Tuned;

/// How many descriptors all processes together have room for from the start, if the limit allows as many.
const ROOM: u64 = 65_536;
/// How many descriptors each process has room for from the start, at least.
const LEAST_ROOM: u64 = 1024;
/// How many events a wait returns while events are recorded: more than the kernel's queues hold.
const RECORDED_PER_WAIT: usize = 65_536;
/// The time over which the rate of a client is averaged where --idle-timeout gives no time.
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// The longest such time. [`MinRate`] takes a few years and no more.
const RATE_WINDOW_MOST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs `drover serve`. `matches` is its command line.
pub(super) fn run(mut args: Args, matches: &ArgMatches) -> anyhow::Result<()> {
    drover_sys::process::spare_addresses();
    if let Some(number) = args.as_worker.take() {
        let limits = ChildLimits { user: args.user.clone(), sandbox: !args.no_sandbox };
        let status = be_child(number, limits, |inheritance| set_up_worker(args, inheritance));
        log::finish();
        std::process::exit(status);
    }
    let given = args.clone();
    let (args, flags) = config::complete(args, matches)?;
    let (args, flags) = tuned::complete(args, flags);
    check_or_serve(args, &flags, (given, matches)).map_err(|error| flags.place(error))
}

/// `command_line`: the flags without the file of --config.
fn check_or_serve(
    args: Args,
    flags: &FlagValues,
    command_line: (Args, &ArgMatches),
) -> anyhow::Result<()> {
    if args.processes && args.trace.is_some() {
        bail!(UsageError::new(
            "--trace: it is written by one process; use it without --processes".to_string()
        ));
    }
    if args.check {
        return check(args, flags);
    }
    if args.explain {
        return explain(args, flags);
    }
    // Threads inherit this: the first of them is the log's.
    drover_sys::process::forbid_new_privileges().context("cannot set PR_SET_NO_NEW_PRIVS")?;
    raise_descriptors_limit()?;
    log::start()?;
    // Signals are caught before anything is opened that could block for ever: a signal ends the blocking call.
    serve(args, flags, command_line, &StopSignals::catch(Role::Supervisor)?)
}

fn set_up_worker(
    args: Args,
    inheritance: &mut Inheritance,
) -> anyhow::Result<(Config, StopSignals)> {
    log::start()?;
    raise_descriptors_limit()?;
    make_room_for_descriptors(&args);
    let signals = StopSignals::catch(Role::Worker)?;
    // A worker process does not choose again: the supervisor has chosen, and has opened sockets and roots.
    let opened = inheritance.opened().context("the roots are not there")?;
    let config = configuration(args, inheritance.mechanism_and_strategy()?, &opened)?;
    Ok((config, signals))
}

fn serve(
    args: Args,
    flags: &FlagValues,
    (given, matches): (Args, &ArgMatches),
    signals: &StopSignals,
) -> anyhow::Result<()> {
    let passed = passed_sockets().context("cannot take the sockets of LISTEN_FDS")?;
    let at: Vec<Address> = addresses_of(&passed)?;
    let processes = args.processes;
    let planned = Planned::of(args, flags, &at)?;
    let Planned { mut config, arguments, served, described } = planned;
    let started = Started {
        args: given,
        matches,
        arguments: arguments.clone(),
        files: FilesRead::of(&config),
        processes,
        passed: at,
    };
    if config.tls.is_some() {
        drover_sys::process::write_no_core_dumps().context("cannot limit core dumps")?;
    }
    config.config_file.clone_from(&started.args.config);
    config.passed = passed.into_iter().map(Arc::new).collect();
    let grace = config.grace;
    let announce_to = Announcements::beside(config.access_log.as_ref());
    let mut server = Supervisor::start(config, arguments, processes, signals)?;
    if !server.is_stopping() {
        let urls = urls(server.addresses(), server.tls());
        announce(&server, announce_to)?;
        begun(&urls, server.admin_addresses(), &served, &described);
        info!("sandbox: {}", server.sandbox());
        reloader(&started, &urls).into_iter().for_each(|it| server.reload_by(it));
        server.tell_ready(&status(&urls, &served));
    }
    let result = server.run();
    let (sum, workers) = (server.statistics(), server.workers());
    tell_end(sum, &workers);
    match sum.cut {
        0 => result,
        cut => result.and(Err(anyhow!(
            "connections cut at the end of the grace, {grace:?} after the signal: {cut}; --grace says \
             how long they may take"
        ))),
    }
}

/// The addresses of sockets that were passed.
fn addresses_of(passed: &[OwnedFd]) -> anyhow::Result<Vec<Address>> {
    let address = |(number, socket): (usize, &OwnedFd)| {
        let told = || format!("cannot serve socket {number} of LISTEN_FDS");
        bound_address(socket.as_fd()).with_context(told)
    };
    passed.iter().enumerate().map(address).collect()
}

/// A server as flags describe it.
struct Planned {
    config: Config,
    /// The arguments of worker processes.
    arguments: Vec<OsString>,
    /// What is served, in words.
    served: String,
    /// What is used for that, in words.
    described: String,
}

impl Planned {
    /// `passed`: the addresses of the sockets that a service manager has opened.
    fn of(args: Args, flags: &FlagValues, passed: &[Address]) -> anyhow::Result<Planned> {
        let is_passed = !passed.is_empty();
        let mut for_workers = flags.for_workers(args.workers());
        if let Some(user) = &args.user {
            // A name service that is away must not keep a worker from being replaced.
            for_workers.replace("user", user.all_numbers().into(), FlagOrigin::Supervisor);
        }
        let memory = args.server_memory();
        if let Some(excess) = memory.excess() {
            warn!("{excess}");
        }
        for_workers.replace("memory", memory.word().into(), FlagOrigin::Supervisor);
        let (chosen, why_no_rings) = choose(&args, is_passed)?;
        let (processes, served) = (args.processes, what_is_served(&args));
        let listens = !is_passed || !flags.is_default("listen");
        check_addresses(&args, if listens { &args.listen } else { &[] }, passed)?;
        let acme = flags::acme::settings(&args)?;
        let mut config = configuration(args, chosen, &OpenedFiles::default())?;
        config.acme = acme;
        if !listens {
            config.listen.clear();
        }
        let described = describe(&config, processes, why_no_rings, flags);
        Ok(Planned { config, arguments: for_workers.words(), served, described })
    }
}

/// Raises the limit of descriptors as far as possible: that of workers is their supervisor's.
fn raise_descriptors_limit() -> anyhow::Result<()> {
    drover_sys::process::raise_open_files_limit()
        .context("cannot raise the limit of open files")?;
    Ok(())
}

/// Makes room for a worker process's share of all descriptors in the kernel's table. Called while there are few threads.
fn make_room_for_descriptors(args: &Args) {
    let sharers = if args.processes { args.workers().get() as u64 } else { 1 };
    if let Err(error) =
        drover_sys::process::make_room_for_descriptors((ROOM / sharers).max(LEAST_ROOM))
    {
        warn!(
            "cannot pre-size the descriptor table ({error}): workers may stall for 10 ms when it grows"
        );
    }
}

/// Logs how much the server did, and how evenly the workers shared it.
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

/// `opened`: what a supervisor has opened and read for this process.
fn configuration(
    args: Args,
    (mechanism, accept): MechanismAndStrategy,
    opened: &OpenedFiles,
) -> anyhow::Result<Config> {
    refuse_served_files(&args)?;
    let (site, hosts) = sites(&args, opened)?;
    let tls = flags::tls::settings(&args, opened)?;
    let memory = args.server_memory();
    check_users(&args, site.iter().chain(hosts.iter().map(|host| &host.site)), &memory)?;
    let dispatch = dispatch_options(mechanism, &args)?;
    check_recording(mechanism, &args)?;
    let file_options = file_options(&args, &memory)?;
    check_agreement(&args, site.is_some(), accept)?;
    let proxies = args.proxies.proxies()?;
    let workers = args.workers();
    let limits = limits(&args, mechanism);
    Ok(Config {
        site,
        hosts,
        allowed_hosts: args.allowed_hosts,
        listen: args.listen,
        tls,
        https_redirect: args.tls.redirect(),
        admin: args.admin.admin,
        admin_hosts: args.admin.admin_hosts,
        dispatch,
        accept,
        by_cpu: args.accept_by_cpu,
        wake: args.accept_wake.unwrap_or(Policy::TaskExclusive),
        accept_batch: args.accept_batch,
        defer_accept: args.defer_accept.into(),
        files: args.files.usable()?,
        file_options,
        openers: (args.stat_threads > 0).then(|| {
            let queue = memory.budget.of(MemoryUse::OpenQueue) as usize;
            Arc::new(OpenPool::new(args.stat_threads.into()).with_queue(queue))
        }),
        listings: Listings::new(memory.budget.of(MemoryUse::Listings)),
        noatime: args.noatime,
        advise_sequential: args.advise == Advise::Sequential,
        user: args.user,
        sandbox: !args.no_sandbox,
        cache: memory.cache,
        memory: memory.budget,
        revalidate: args.revalidate,
        workers,
        pin: args.pin,
        proxies,
        access_log: args.access_log.map(|path| AccessLog {
            path: (path.as_os_str() != "-").then_some(path),
            form: args.log_format,
        }),
        server_timing: args.server_timing,
        trace: args.trace,
        send_budget: args.send_budget.0,
        min_wait: args.min_wait,
        counters: args.counters,
        counts_events: args.count_events,
        take_over: args.take_over,
        record_events: args.record_events,
        spin: args.spin_per_request.filter(|time| !time.is_zero()),
        ..limits
    })
}

/// Refuses users whose passwords take too much memory to verify.
fn check_users<'s>(
    args: &Args,
    sites: impl Iterator<Item = &'s SiteSettings>,
    memory: &ServerMemory,
) -> anyhow::Result<()> {
    let users = sites.filter_map(|site| site.auth.as_ref());
    let processes = if args.processes { args.workers().get() } else { 1 };
    Auth::check_memory(users, processes, memory.budget.all().unwrap_or(u64::MAX))
}

/// What clients may take, with defaults for everything else.
fn limits(args: &Args, mechanism: &'static Mechanism) -> Config {
    let some = |time: Duration| (!time.is_zero()).then_some(time);
    Config {
        header_time_out: some(args.header_timeout),
        idle_time_out: some(args.idle_timeout),
        open_time_out: some(args.open_timeout),
        min_rate: NonZeroU64::new(args.min_rate as u64).map(|bytes_per_second| {
            let window = some(args.idle_timeout).unwrap_or(RATE_WINDOW);
            MinRate::new(bytes_per_second, window.min(RATE_WINDOW_MOST))
        }),
        max_connections: args.max_connections,
        max_per_address: args.max_per_address,
        head_limits: args.requests.head_limits(),
        http2: args.http2.settings(args.requests.head_limits().head),
        max_requests: args.requests.requests(),
        grace: args.grace,
        ..Config::new(ContentSource::Fixed(0), mechanism)
    }
}

/// Refuses flags that cannot be obeyed together, or by this user.
fn check_agreement(args: &Args, has_root: bool, accept: &accept::Strategy) -> anyhow::Result<()> {
    if !has_root && !args.allowed_hosts.is_empty() {
        bail!(UsageError::new(
            "--allowed-hosts: there is no ROOT for these hosts; name a directory, or leave the flag out: hosts without a \
             site get 421 already"
                .to_owned()
        ));
    }
    if args.accept_by_cpu && !accept.settings.contains(ObeyedFields::BY_CPU) {
        bail!(UsageError::new(format!(
            "--accept-by-cpu: --accept {} has no sockets to choose from; use --accept {}",
            accept.name,
            names(with_setting(ObeyedFields::BY_CPU)),
        )));
    }
    if args.accept_wake.is_some() && !accept.settings.contains(ObeyedFields::WAKE_POLICY) {
        bail!(UsageError::new(format!(
            "--accept-wake: --accept {} has no wait queue of ours; use --accept {}",
            accept.name,
            names(with_setting(ObeyedFields::WAKE_POLICY)),
        )));
    }
    if let Some(most) = args.max_connections.filter(|most| *most < args.workers()) {
        bail!(UsageError::new(format!(
            "--max-connections {most}: each of {} workers needs one; use --max-connections {}",
            args.workers(),
            args.workers(),
        )));
    }
    if let Some(user) = args.user.as_ref().filter(|user| !user.can_be_had()) {
        bail!(UsageError::new(format!(
            "--user {user}: only root can become another user; start as root, or leave the flag out"
        )));
    }
    args.admin.check()
}

/// The directories that are served.
fn roots(args: &Args) -> Vec<PathBuf> {
    let of_hosts = args.host.iter().map(|host| &*host.root);
    args.root_of_all().into_iter().chain(of_hosts).map(Path::to_owned).collect()
}

/// Refuses a start that would serve the server's own files.
fn refuse_served_files(args: &Args) -> anyhow::Result<()> {
    let roots = roots(args);
    let log = args.access_log.as_ref().filter(|path| path.as_os_str() != "-");
    for (flag, file) in [
        ("--config", args.config.as_ref()),
        ("--access-log", log),
        ("--counters", args.counters.as_ref()),
        ("--trace", args.trace.as_ref()),
        ("--record-events", args.record_events.as_ref()),
    ] {
        file.map_or(Ok(()), |file| refuse_served(flag, file, &roots))?;
    }
    Ok(())
}

/// The site of ROOT, and those of hosts.
///
/// # Errors
/// [`SiteFaults`]: all that is wrong with them.
fn sites(
    args: &Args,
    opened: &OpenedFiles,
) -> Result<(Option<SiteSettings>, Vec<HostSite>), SiteFaults> {
    let of_all = args.root_of_all().map(Path::to_owned);
    let roots = roots(args);
    let mut users = UserFiles::beside(&roots, opened);
    let mut faults = SiteFaults::default();
    let source = match (args.response_size, &of_all) {
        (Some(size), _) => Some(Ok(ContentSource::Fixed(size))),
        (None, Some(root)) => Some(directory("ROOT", root, &args.site, opened)),
        (None, None) => None,
    };
    // What is for all is wrong in one place, and not at each host that has it too.
    let site = faults.of(None, args.site.clone().settings(ContentSource::Fixed(0), &mut users));
    let source = source.and_then(|source| faults.of(None, source));
    let mut site = source.zip(site).map(|(source, site)| SiteSettings { source, ..site });
    let mut hosts = Vec::new();
    for (number, host) in args.host.iter().enumerate() {
        let (names, flags, number) = (host.names.clone(), host.flags(&args.site), Some(number));
        let called = format!("the root of {}", host.described());
        let source = faults.of(number, directory(&called, &host.root, &flags, opened));
        let site = faults.of(number, flags.settings(ContentSource::Fixed(0), &mut users));
        faults.of(number, host.named_first(&args.host));
        if let (Some(source), Some(site)) = (source, site) {
            hosts.push(HostSite { names, site: SiteSettings { source, ..site } });
        }
    }
    if let Some(rule) = args.tls.hsts.map(strict_transport) {
        let of_hosts = hosts.iter_mut().map(|host| &mut host.site);
        site.iter_mut().chain(of_hosts).for_each(|site| site.add_header(rule.clone()));
    }
    if faults.0.is_empty() { Ok((site, hosts)) } else { Err(faults) }
}

/// The files beneath `path`, which is what `called` says.
fn directory(
    called: &str,
    path: &Path,
    flags: &SiteFlags,
    opened: &OpenedFiles,
) -> anyhow::Result<ContentSource> {
    let root = open_root(called, path, flags.symlinks.into(), opened)?;
    Ok(ContentSource::Directory(Arc::new(root)))
}

/// The mechanism and strategy that the user asked for, or the best ones that all workers can have; `is_passed`: a service
/// manager has opened the sockets. If io_uring would be better and cannot be used, also the reason.
fn choose(args: &Args, is_passed: bool) -> anyhow::Result<(MechanismAndStrategy, Option<String>)> {
    if let Some(user) = args.user.as_ref().filter(|user| user.can_be_had()) {
        // What root can have, an ordinary user may not.
        return user.try_out(|| choose_here(args, is_passed)).context("cannot become --user")?;
    }
    choose_here(args, is_passed)
}

fn choose_here(
    args: &Args,
    is_passed: bool,
) -> anyhow::Result<(MechanismAndStrategy, Option<String>)> {
    let mut why_no_rings = None;
    let auto = || match mechanisms::rings(args.workers().get()) {
        Ok(mechanism) => Some(mechanism),
        Err(reason) => {
            why_no_rings = Some(reason);
            mechanisms::auto_of_readiness()
        }
    };
    let mechanism = args.dispatch.clone().usable(auto)?;
    let has_unix = args.listen.iter().any(|listen| listen.unix.is_some());
    let accept = args.accept.clone().usable(args.workers(), mechanism, is_passed, has_unix)?;
    Ok(((mechanism, accept), why_no_rings))
}

fn dispatch_options(
    mechanism: &Mechanism,
    args: &Args,
) -> anyhow::Result<mechanisms::MechanismOptions> {
    let ignore_overflow = args.overflow == Overflow::Ignore;
    if ignore_overflow && !mechanism.features.contains(Features::CAN_OVERFLOW) {
        let can = mechanisms::ALL.iter().filter(|m| m.features.contains(Features::CAN_OVERFLOW));
        bail!(UsageError::new(format!(
            "--overflow ignore: {} has no queue that could overflow; use it with --dispatch {}",
            mechanism.name,
            names(can.map(|mechanism| mechanism.name)),
        )));
    }
    let devpoll = args.devpoll_model;
    if !devpoll.is_empty() && !mechanisms::models_devpoll(mechanism) {
        let can = mechanisms::ALL.iter().filter(|mechanism| mechanisms::models_devpoll(mechanism));
        bail!(UsageError::new(format!(
            "--devpoll-model: {} is no model of /dev/poll; use it with --dispatch {}",
            mechanism.name,
            names(can.map(|mechanism| mechanism.name)),
        )));
    }
    let mut options = mechanisms::MechanismOptions {
        ignore_overflow,
        devpoll,
        ..mechanisms::MechanismOptions::default()
    };
    if args.record_events.is_some() {
        // Each wait is to return all events of the queue.
        options.events_per_wait = RECORDED_PER_WAIT;
    }
    Ok(options)
}

/// Refuses to record events unless there is one worker, with a mechanism that reports events.
fn check_recording(mechanism: &Mechanism, args: &Args) -> anyhow::Result<()> {
    if args.record_events.is_none() {
        return Ok(());
    }
    if args.workers().get() > 1 || args.processes {
        bail!(UsageError::new("--record-events: use it with --workers 1, as a thread".to_string()));
    }
    if mechanism.features.contains(Features::COMPLETION) {
        bail!(UsageError::new(format!(
            "--record-events: {} reports no events; use another --dispatch",
            mechanism.name,
        )));
    }
    Ok(())
}

fn file_options(args: &Args, memory: &ServerMemory) -> anyhow::Result<fileio::FileIoOptions> {
    let advise_next = args.advise == Advise::Willneed;
    if let Some(backend) = args.files.0.filter(|backend| advise_next && backend.past_cache) {
        bail!(UsageError::new(format!(
            "--advise willneed: {} reads past the page cache, where nothing can be there before; \
             use --advise none, or --files threads",
            backend.name,
        )));
    }
    Ok(fileio::FileIoOptions {
        read_ahead: args.read_ahead,
        read_threads: args.read_threads.into(),
        advise_next,
        cached_at_once: args.cached_reads == CachedReads::AtOnce,
        read_memory: memory.read_memory()?,
        ..fileio::FileIoOptions::default()
    })
}

const NO_OPENAT2: &str = "openat2(2) is missing: Drover needs Linux 5.11, and a filter of system calls that allows it; systemd's \
     RestrictSUIDSGID=, which DynamicUser= implies, forbids it: use User= without it";

fn open_root(
    called: &str,
    directory: &Path,
    symlinks: Symlinks,
    opened: &OpenedFiles,
) -> anyhow::Result<Root> {
    let refused = |reason: &dyn std::fmt::Display| {
        let directory = directory.display();
        UsageError::new(format!(
            "{called} must be a directory: cannot serve '{directory}': {reason}"
        ))
    };
    let root = match opened.root(directory).transpose() {
        Some(of_supervisor) => of_supervisor.and_then(|it| Root::of(directory.to_owned(), it)),
        None => Root::open(directory),
    };
    // Opening the root, or something beneath it, shows whether the kernel has openat2(2). An error now is better than one at each
    // request.
    let lacks_call = |error: &io::Error| error.kind() == io::ErrorKind::Unsupported;
    let root = match root {
        Err(error) if lacks_call(&error) => return Err(error).context(NO_OPENAT2),
        root => root.map_err(|error| refused(&error))?.with_symlinks(symlinks),
    };
    match root.open_file(b"") {
        Err(error) if lacks_call(&error) => Err(error).context(NO_OPENAT2),
        _ => Ok(root),
    }
}

/// The directory that is served, or what is served in place of one, in words.
fn what_is_served(args: &Args) -> String {
    match args.response_size {
        Some(size) => format!("responses of {size} bytes"),
        None => {
            let real = |root: &Path| {
                let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
                printable(&real.display().to_string()).into_owned()
            };
            let of_all = args.root_of_all().map(real);
            let hosts = args
                .host
                .iter()
                .map(|host| format!("{} for {}", real(&host.root), host.described()));
            of_all.into_iter().chain(hosts).collect::<Vec<_>>().join("; ")
        }
    }
}

/// What was picked on each axis, in words.
fn describe(
    config: &Config,
    processes: bool,
    why_no_rings: Option<String>,
    flags: &FlagValues,
) -> String {
    let kind = if processes { "worker process" } else { "worker" };
    let workers = match config.workers.get() {
        1 => format!("1 {kind}"),
        workers => {
            let plural = if processes { "es" } else { "s" };
            format!("{workers} {kind}{plural}, accept {}", config.accept.name)
        }
    };
    let files = match config.files {
        _ if !config.has_files() => "no files".to_string(),
        Some(backend) => format!("files by {}", backend.name),
        None => format!(
            "small files from memory, large ones by {}",
            names(fileio::AUTO_TAKES.iter().map(|backend| backend.name))
        ),
    };
    let regret = why_no_rings.map(|reason| format!(" (uring would be better: {reason})"));
    let regret = regret.unwrap_or_default();
    let spin =
        config.spin.map_or(String::new(), |spin| format!(", slower by {spin:?} per request"));
    let tuned = flags.tuned().map_or(String::new(), |(names, on)| {
        format!("; {} as tuned on {on} (drover tune)", names.join(", "))
    });
    let user = config.user.as_ref().map_or(String::new(), |user| format!(", user {user}"));
    let auth = described_auth(config);
    let tls = flags::tls::described(config.tls.as_deref());
    let name = config.mechanism.name;
    format!("dispatch {name}{regret}, {workers}, {files}{tls}{user}{auth}{spin}{tuned}")
}

/// The names of the strategies that have a setting.
fn with_setting(setting: ObeyedFields) -> impl Iterator<Item = &'static str> {
    let strategies = accept::ALL.iter().filter(move |it| it.settings.contains(setting));
    strategies.map(|strategy| strategy.name)
}
