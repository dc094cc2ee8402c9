//! One worker: a thread with its own mechanism, executor, timers, listening sockets and site.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use drover_http1::proxy_protocol;
use drover_mech::accept::ListenerHandle;
use drover_mech::fileio::{self, FileIoOptions};
use drover_mech::files::open_pool::{OpenPool, OpenResults};
use drover_mech::mechanisms::MechanismOptions;
use drover_mech::net::{Conn, Executor, Listener, Net, NetOptions, OutOfMemory, Readable, Remote};
use drover_sys::errno::is_exhaustion;
use drover_sys::process::give_back_memory;
use tracing::{info, warn};

use crate::Config;
use crate::access_log::{self, AccessLogger, LoggedBy};
use crate::auth::VerifiedTags;
use crate::budget::MemoryUse;
use crate::clock::{DateClock, Throttle};
use crate::hosts::NamedSites;
use crate::observe::Observers;
use crate::observe::spin::Spin;
use crate::protocol::addresses::{AddressCounter, AddressLimit};
use crate::protocol::serve::serve;
use crate::protocol::tls::WorkerTls;
use crate::protocol::{Limits, TimeOuts, WorkerService, connection};
use crate::respond::answer::SiteState;
use crate::respond::site::Site;
use crate::respond::sites::ServedSites;
use crate::status::statistics::{Counter, CountsCarrier, WorkerCounters};
use crate::trace::{self, TraceSink, Tracer};
use crate::worker::events::Recorder;

/// How often some of the files that are kept open are looked at.
/// With the turns that the process asks for to know that it goes on, an idle worker wakes up once a second.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// When so many bytes of buffers were freed, the worker gives memory back to the kernel.
const OUTPUTS_FREED: usize = 4 << 20;

/// The part of the grace in which an idle connection may still send a request.
const LINGER_SHARE: u32 = 20;

/// What a worker is made of.
pub(crate) struct WorkerPlan {
    pub(crate) config: Arc<Config>,
    /// The accept queues of this worker, one per address.
    pub(crate) handles: Vec<ListenerHandle>,
    /// The processor to stay on.
    pub(crate) cpu: Option<usize>,
    pub(crate) counters: WorkerCounters,
    /// How many workers share the process' descriptors.
    pub(crate) sharers: usize,
    /// How many connections this worker may have at a time.
    pub(crate) connections: usize,
    /// How many of them a client may have, in all workers of the process.
    pub(crate) addresses: Option<Arc<AddressLimit>>,
    /// The trace, if there is one, and this worker's number in it.
    pub(crate) trace: Option<(TraceSink, usize)>,
    /// Called whenever one of the listeners has ended, because the worker stops or has retired.
    pub(crate) left: Box<dyn Fn() + Send>,
    /// Where lines of the access log go, if there is one, and this worker's number in it.
    pub(crate) log: Option<(access_log::LogSink, usize)>,
    /// The file that events are written to, if they are recorded.
    pub(crate) events: Option<File>,
}

/// Serves until asked to stop. `ready` is called once connections can be accepted.
pub(crate) fn run(plan: WorkerPlan, ready: impl FnOnce(Remote)) -> anyhow::Result<()> {
    let WorkerPlan { config, handles, cpu, counters, sharers, connections, addresses, .. } = plan;
    let WorkerPlan { trace, log, events, left, .. } = plan;
    counters.begin();
    if let Some(cpu) = cpu {
        drover_sys::process::pin_current_thread(cpu)
            .with_context(|| format!("cannot stay on processor {cpu} (--pin)"))?;
    }
    let options = net_options(&config, connections);
    let net = open_net(&config, &options, &counters, events)?;
    let carrier = CountsCarrier::new(&counters, &options.file_options.counts);
    let carrier = Rc::new(RefCell::new(carrier));
    if config.admin.is_some() || config.counts_events {
        let carrier = Rc::clone(&carrier);
        net.on_wait(move |counts| carrier.borrow_mut().add(counts));
    }
    let observers = observers(&config, trace, log);
    let limits = limits(&config, addresses);
    let clock = DateClock::new(net.now());
    let sites = ServedSites::open(&config, sharers, &clock, &net)?;
    let site = Site::new(SiteState { clock, sites, counters: &counters });
    let tls = (WorkerTls::of(&config, &counters), config.challenges.clone());
    let service = WorkerService::new(site, limits, &counters, observers, tls, &config);
    let site = &service.site;
    let failure = RefCell::new(None);
    let fail = |what, error| {
        *failure.borrow_mut() = Some((what, error));
        net.stop();
    };
    net.linger(config.grace / LINGER_SHARE);
    let mut executor = Executor::new(&net, config.grace);
    hear_changes(&mut executor, &net, site, fail)?;
    for number in 0..site.count() {
        look_after_site(&mut executor, &net, site, number, config.openers.as_ref());
    }
    sweep_kept_files(&mut executor, &net, &service);
    for handle in handles {
        let listener = Listener::enter(&net, handle).context("cannot wait for connections")?;
        let listener = counted(listener, &config, &net, &service, connections);
        executor.listen(listener, |listener| async {
            if let Err(error) = accept(listener, &config, &net, &service).await {
                // A worker that accepts nothing any more must not go on in silence.
                fail("the listening socket", error);
            }
            left();
        });
    }
    let observers = service.observers.as_deref();
    if let Some(observers) = observers.filter(|it| it.reads_ends()) {
        executor.background(|conn| hand_lines_over(conn, observers));
    }
    executor.on_out_of_memory(|user| free_memory(user, &net, &service));
    ready(net.remote());
    // Dropped with all connections, whose last responses are observed then.
    let ran = executor.run(|conn| serve(conn, &service));
    observers.iter().for_each(|observers| observers.flush());
    carrier.borrow_mut().add(net.counts());
    counters.end(net.helpers_waited());
    ran.context("the dispatch mechanism failed")?;
    match failure.take() {
        None => Ok(()),
        Some((what, error)) => Err(error).with_context(|| format!("{what} failed")),
    }
}

/// Hears of changes of files, if a site has them watched. Begun before any listener, so that in one turn changes of files are handled
/// before requests.
fn hear_changes<'n, F: Future<Output = ()>>(
    executor: &mut Executor<'n, F>,
    net: &'n Net,
    site: &'n Site<'n>,
    fail: impl Fn(&'static str, io::Error) + Copy + 'n,
) -> anyhow::Result<()> {
    for number in 0..site.count() {
        let Some(changes) = site.changes(number)? else { continue };
        let readable = Readable::open(net, changes).context("cannot wait for changes of files")?;
        executor.watch(readable, move |readable| async move {
            if let Err(error) = hear(readable, site, number).await {
                fail("hearing of changes of files", error);
            }
        });
    }
    Ok(())
}

/// Frees memory that a connection, the worker or its wait lacks.
#[cold]
fn free_memory(user: OutOfMemory, net: &Net, service: &WorkerService<'_>) {
    match user {
        OutOfMemory::Connection => connection::out_of_memory(net, service),
        OutOfMemory::Worker => service.free_memory(net),
        OutOfMemory::Wait => {
            service.free_memory(net);
            close_idle(net, service);
        }
    }
}

/// What a client may take.
fn limits(config: &Config, addresses: Option<Arc<AddressLimit>>) -> Limits {
    let time_outs = TimeOuts {
        header: config.header_time_out,
        idle: config.idle_time_out,
        open: config.open_time_out,
    };
    Limits {
        time_outs,
        head: config.head_limits,
        min_rate: config.min_rate,
        requests: config.max_requests,
        addresses: addresses.map(AddressCounter::new),
        proxies: config.proxies.of_connections(),
    }
}

/// The listener, with what happens to it counted, and said where it matters.
fn counted<'n>(
    mut listener: Listener<'n>,
    config: &Config,
    net: &'n Net,
    service: &'n WorkerService<'n>,
    connections: usize,
) -> Listener<'n> {
    let (counters, site) = (service.counters, &service.site);
    listener.on_loss(|| counters.add(Counter::AcceptsLost, 1));
    if config.admin.is_some() {
        listener.on_batch(|| counters.add(Counter::AcceptBatches, 1));
    }
    listener.on_full(move |expired, no_longer_deferred| {
        counters.add(Counter::IdleClosed, expired as u64);
        if no_longer_deferred {
            info!(
                "connections are taken before they have sent anything, until the next start or reload: \
                 there is no room (--defer-accept)"
            );
        }
        if let Some(others) = site.may_complain(net.now()) {
            warn!(
                "there are {connections} connections, the most that a worker may have \
                 (--max-connections, ulimit -n); {expired} idle ones are closed for a new one \
                 ({others} like this not logged)"
            );
        }
    });
    listener
}

/// The worker's mechanism and connections, with what is counted and recorded of them.
fn open_net(
    config: &Config,
    options: &NetOptions,
    counters: &WorkerCounters,
    events: Option<File>,
) -> anyhow::Result<Net> {
    let name = config.mechanism.name;
    let net = Net::open(options).with_context(|| format!("cannot set up --dispatch {name}"))?;
    let overflows = counters.clone();
    net.on_overflow(move || overflows.add(Counter::Overflows, 1));
    if let Some(file) = events {
        let mut recorder = Recorder::begin(file, name).context("cannot begin --record-events")?;
        net.on_events(move |events| recorder.turn(events));
    }
    Ok(net)
}

/// Who observes responses.
fn observers(
    config: &Config,
    trace: Option<(TraceSink, usize)>,
    log: Option<(access_log::LogSink, usize)>,
) -> Option<Box<Observers>> {
    let tracer = trace.map(|(sink, worker)| Tracer::new(sink, worker, sender(config)));
    let log = log.zip(config.access_log.as_ref()).map(|((sink, worker), log)| {
        AccessLogger::new(
            log.form.clone(),
            config.proxies.of_requests(),
            sink,
            LoggedBy {
                mechanism: config.mechanism.name,
                accept: config.accept.name,
                files: config.files.map_or("auto", |backend| backend.name),
                sends: sender(config),
                worker,
                sites: (log.form.has_site() && !config.hosts.is_empty())
                    .then(|| NamedSites::new(config.hosts.iter().map(|host| &host.names[..]))),
            },
        )
    });
    Observers::new(tracer, log, config.spin.map(Spin::new), config.server_timing)
}

/// Hands lines of the trace and of the access log over that are a second old, until the worker stops. The last ones are
/// handed over when it has ended.
async fn hand_lines_over(conn: Conn<'_>, observers: &Observers) {
    while !conn.net().phase().is_ending() {
        // By the coarse timers: a precise sleep costs a reading of the clock in every turn.
        conn.set_deadline(Some(trace::KEPT_FOR));
        let _time_is_up = conn.until(|| conn.net().phase().is_ending()).await;
        observers.flush();
    }
}

/// Receives the files of a site that other threads open, and what they find out of passwords.
fn look_after_site<'n, F: Future<Output = ()>>(
    executor: &mut Executor<'n, F>,
    net: &'n Net,
    site: &'n Site<'n>,
    number: usize,
    pool: Option<&Arc<OpenPool>>,
) {
    // These coroutines have no deadline, so they wait without end.
    if let Some(pool) = pool.filter(|_| site.has_files(number)) {
        executor.background(|conn| {
            let results = OpenResults::new(net.remote(), conn.key());
            site.open_elsewhere(number, pool, &results);
            async move {
                while conn.until(|| !results.is_empty()).await.is_ok() {
                    site.complete(number, net);
                }
            }
        });
    }
    if site.has_users(number) {
        executor.background(|conn| {
            let results = VerifiedTags::new(net.remote(), conn.key());
            site.verify_by(number, &results);
            async move {
                while conn.until(|| !results.is_empty()).await.is_ok() {
                    site.verified(number, net);
                }
            }
        });
    }
}

/// Closes kept files that no request has used.
fn sweep_kept_files<'n, F: Future<Output = ()>>(
    executor: &mut Executor<'n, F>,
    net: &'n Net,
    service: &'n WorkerService<'n>,
) {
    let site = &service.site;
    if !(0..site.count()).any(|number| site.has_files(number)) {
        return;
    }
    executor.background(|conn| async move {
        loop {
            // By the coarse timers, as above.
            conn.set_deadline(Some(SWEEP_EVERY));
            let _time_is_up = conn.until(|| false).await;
            service.sweep(net.now());
            if net.has_freed_outputs(OUTPUTS_FREED) {
                // What connections that stay have allocated since lies above it in the heap.
                give_back_memory();
            }
        }
    });
}

fn net_options(config: &Config, connections: usize) -> NetOptions {
    let memory = &config.memory;
    let receive_memory = memory.of(MemoryUse::ReceiveBuffers);
    let log = config.access_log.as_ref();
    let of_proxies = if config.proxies.protocol { proxy_protocol::NEEDED_MOST } else { 0 };
    // Behind a head that has come, the next record has room.
    let of_records = if config.tls.is_some() { drover_tls::RECORD_MOST } else { 0 };
    let of_http2 = if config.http2.is_spoken() { drover_http2::RECEIVE_MOST } else { 0 };
    let input_capacity = config.head_limits.head.max(of_proxies).max(of_http2) + of_records;
    let defaults = NetOptions::new(config.mechanism);
    NetOptions {
        files: config.files.unwrap_or(defaults.files),
        file_options: FileIoOptions {
            // Each worker's own, as all that it counts.
            counts: Arc::default(),
            timed: config.trace.is_some() || log.is_some_and(|log| log.form.has_stages()),
            ..config.file_options.clone().with_pipe_memory(memory.of(MemoryUse::Pipes))
        },
        dispatch: MechanismOptions {
            connects: false,
            ..config.dispatch.with_receive_memory(receive_memory)
        },
        input_capacity,
        buffers_kept: memory.buffers_kept(input_capacity),
        connections,
        min_rate: config.min_rate,
        send_budget: config.send_budget,
        min_wait: config.min_wait,
        ..defaults
    }
}

/// The name of the file backend that sends bodies which are not read into memory first.
fn sender(config: &Config) -> &'static str {
    config.files.or(fileio::AUTO_TAKES.first().copied()).map_or("", |backend| backend.name)
}

async fn hear(readable: Readable<'_>, site: &Site<'_>, number: usize) -> io::Result<()> {
    while readable.ready().await? {
        site.hear(number)?;
    }
    Ok(())
}

async fn accept(
    listener: Listener<'_>,
    config: &Config,
    net: &Net,
    service: &WorkerService<'_>,
) -> io::Result<()> {
    let mut throttle = Throttle::default();
    let mut closed = 0;
    listener
        .run(config.accept_batch, |error| {
            if error.kind() == io::ErrorKind::OutOfMemory {
                connection::out_of_memory(net, service);
            }
            if is_exhaustion(error) && make_room(config, net, service, &mut closed) {
                return true;
            }
            service.counters.add(Counter::AcceptErrors, 1);
            if let Some(others) = throttle.ask(net.now()) {
                warn!("cannot accept: {error}; connections wait ({others} like this not logged)");
            }
            false
        })
        .await
}

/// Frees something when descriptors or memory have run out; `false`: nothing can be freed.
/// `closed`: how many files other threads had closed when something was freed last.
fn make_room(config: &Config, net: &Net, service: &WorkerService<'_>, closed: &mut u64) -> bool {
    let is_freed = config.openers.as_ref().is_some_and(|pool| pool.frees_descriptors(closed));
    if is_freed || service.give_back_descriptors() {
        return true;
    }
    close_idle(net, service) > 0
}

/// Closes a few idle connections, and says how many.
fn close_idle(net: &Net, service: &WorkerService<'_>) -> usize {
    // Should the wait fail, it fails again where the worker ends by it.
    let expired = net.expire_idle().unwrap_or(0);
    service.counters.add(Counter::IdleClosed, expired as u64);
    expired
}
