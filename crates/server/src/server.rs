//! A server whose workers are threads: its life from the start over reloads to the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, bail};
use drover_mech::accept::{self, Among};
use drover_sys::process::{give_back_memory, on_own_thread, start_thread};
use drover_sys::socket::Address;
use tracing::{error, warn};

use crate::access_log;
use crate::admin::{AdminListener, BoundAdmin};
use crate::config::Config;
use crate::crew::{Crew, CrewPlan, ThreadReport};
use crate::listen::bind::{BoundAddresses, bind, check_paths};
use crate::reload::{
    FixedSettings, NextConfig, RETIRED_MOST, Reloader, tell_reload, tell_reopening,
};
use crate::sandbox::{self, Sandbox};
use crate::signals::{Heard, Role, StopSignals, exit_at_once};
use crate::status::history::CounterHistory;
use crate::status::statistics::{CounterTable, Statistics, WorkerStatistics};
use crate::stopper::Stopper;
use crate::succession::hand_over::{
    HandOverListener, HandOverState, HandOverStep, Offer, tell_handed_over,
};
use crate::succession::take_over::TakeOver;
use crate::supervisor::service_manager::ServiceManager;
use crate::worker::limits::{ConnectionLimit, descriptors_open};
use crate::{cannot_trace, processors, status, trace};

/// A running server. Dropping it asks it to stop.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    counters: CounterHistory,
    stopper: Stopper,
    reports: Receiver<ServerReport>,
    /// By which workers report; and signals, that the configuration is to be reloaded.
    sender: Sender<ServerReport>,
    crews: RefCell<Crews>,
    reloader: RefCell<Option<Reloader>>,
    /// Called when no worker accepts connections any more, after they have been told to retire.
    on_leave: Option<fn()>,
    admin: Option<AdminListener>,
    sandbox: Sandbox,
    fixed: FixedSettings,
    hand_over: RefCell<HandOverState<Arc<Config>>>,
    hand_over_listener: Option<HandOverListener>,
    /// Whether a reload was asked for while another server was taking over.
    reload_later: Cell<bool>,
    /// How many descriptors were open before the first connection.
    descriptors: u64,
}

/// The crews of a server.
#[derive(Debug, Default)]
struct Crews {
    /// By their numbers: the one that accepts connections, those that have retired, and one that starts.
    all: BTreeMap<usize, Crew>,
    /// The number of the crew that accepts connections.
    serving: usize,
    /// Why the crew that starts cannot.
    cannot_start: Option<anyhow::Error>,
    /// Why the server had to stop.
    failure: Option<anyhow::Error>,
}

/// What the thread that looks after a server is told.
pub(crate) enum ServerReport {
    /// By a worker of the crew with this number.
    Worker(usize, ThreadReport),
    /// The access log is to be opened anew, and the configuration to be reloaded.
    Reload,
    /// Another server takes over.
    HandOver(HandOverStep),
    /// The server has been asked to stop.
    Stopping,
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
        let take_over = TakeOver::of(&config)?;
        let handed = take_over.sockets(&config)?;
        let BoundAddresses { addresses, handles, sockets, .. } =
            bind(&config, Among::Threads, &handed)?;
        let admin = BoundAdmin::bind(&config, false, &addresses, &handed)?;
        drop(handed);
        let log = config.access_log.as_ref().map(access_log::open).transpose()?;
        let counter_table = CounterTable::new(handles.len()).context("cannot make the counters")?;
        let manager = ServiceManager::of_environment()?.map(Arc::new);
        let sandbox = sandbox::give_up(&config, Role::Server, &addresses)?;
        let config = Arc::new(Config { passed: Vec::new(), ..config });
        let plan = CrewPlan { config, first: 0, handles, counter_table, log };
        let stopper = Stopper::new(manager);
        let mut server = Server::of_crew(plan, sockets, sandbox, stopper)?;
        server.addresses = addresses;
        if let Some(admin) = admin {
            server.admin = Some(admin.start(&server.counters, &server.stopper.asked)?);
        }
        if let Some(control) = take_over.finish()? {
            let reports = server.reports();
            let tell = move |step| reports.send(ServerReport::HandOver(step)).is_ok();
            server.hand_over_listener = Some(HandOverListener::start(control, tell)?);
        }
        Ok(server)
    }

    /// Starts the workers of `plan`, and returns when all of them accept. `sockets` are those that they accept from.
    pub(crate) fn of_crew(
        plan: CrewPlan,
        sockets: Vec<OwnedFd>,
        sandbox: Sandbox,
        stopper: Stopper,
    ) -> anyhow::Result<Server> {
        let (sender, reports) = channel();
        let server = Server {
            addresses: Vec::new(),
            counters: CounterHistory::new(plan.counter_table.clone()),
            stopper,
            reports,
            sender,
            crews: RefCell::default(),
            reloader: RefCell::default(),
            on_leave: None,
            admin: None,
            sandbox,
            fixed: FixedSettings::of(&plan.config),
            hand_over: RefCell::new(HandOverState::Not),
            hand_over_listener: None,
            reload_later: Cell::default(),
            descriptors: descriptors_open()?,
        };
        server.start_crew(plan, sockets)?;
        Ok(server)
    }

    /// What is in force of the sandbox of a server of `config`, in words. Restricts nobody.
    ///
    /// # Errors
    /// The error of starting a thread.
    pub fn try_sandbox(config: &Config, role: Role) -> io::Result<String> {
        on_own_thread(|| Sandbox::enter(config, role, &[]).in_words)
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
        // Another server may listen there, and hands the sockets over when this one starts.
        if config.take_over.as_ref().is_some_and(|path| path.exists()) {
            return Ok(());
        }
        check_paths(config)?;
        let at_addresses = config.listen.iter().filter(|listen| listen.unix.is_none()).cloned();
        let config = &Config { listen: at_addresses.collect(), ..config.clone() };
        let bound = bind(config, Among::Threads, &[])?;
        BoundAdmin::bind(config, false, &bound.addresses, &[]).map(drop)
    }

    /// How many connections all workers could have in this process, or in processes under a supervisor. Listening
    /// sockets, which are not open yet, take a few of them.
    ///
    /// # Errors
    /// No descriptor is left for a connection.
    pub fn most_connections(config: &Config, role: Role) -> anyhow::Result<u64> {
        let workers = config.workers.get();
        let sharers = if role == Role::Supervisor { 1 } else { workers };
        let limit = ConnectionLimit::new(config, sharers, descriptors_open()?);
        Ok((0..workers).map(|worker| limit.of_worker(worker) as u64).sum())
    }

    /// The addresses as they are bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
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
        &self.sandbox.in_words
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

    /// Has a signal stop the server. A second one ends the process at once: with status 1 if connections
    /// are open. SIGUSR1 has the counters written to their file, if there is one, and SIGHUP the access log opened anew and the
    /// configuration reloaded. To be
    /// called before anybody is told that the server has started.
    ///
    /// # Errors
    /// The error of sigaction(2), or of starting a thread.
    pub fn stop_at(&self, signals: &StopSignals) -> anyhow::Result<()> {
        let (stopper, history, reports) = (self.stopper(), self.counters().clone(), self.reports());
        let file = self.fixed().counters_file();
        let mut stopping = false;
        signals.tell(move |heard| {
            match heard {
                Heard::Counters => {
                    return crate::status::counters::answer(file.as_deref(), &history);
                }
                // The send fails when the server has ended already.
                Heard::Reload => return drop(reports.send(ServerReport::Reload)),
                Heard::Stop | Heard::Child => {}
            }
            if std::mem::replace(&mut stopping, true) {
                let open = history.open();
                if open > 0 {
                    warn!("ended at once by a second signal: {open} connections were open");
                }
                exit_at_once(i32::from(open > 0));
            }
            let (waits, stops) = (stopper.clone(), reports.clone());
            // On a thread of its own, so that a second signal is heard.
            let stop = move || {
                waits.announce(Stopper::stop_in_good_order);
                // It fails if the last worker has ended.
                let _ended = stops.send(ServerReport::Stopping);
            };
            if start_thread("stop", stop).is_err() {
                stopper.announce(Stopper::stop);
            }
        })
    }

    /// From now on SIGHUP has the server go on with the configuration that `reloader` reads.
    pub fn reload_by(&self, reloader: Reloader) {
        *self.reloader.borrow_mut() = Some(reloader);
    }

    /// Has `tell` called when no worker accepts connections any more ([`Remote::retire`]).
    pub(crate) fn on_leave(&mut self, tell: fn()) {
        self.on_leave = Some(tell);
    }

    /// The handle by which other threads stop this server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// How other threads tell the thread that waits for this server something.
    pub(crate) fn reports(&self) -> Sender<ServerReport> {
        self.sender.clone()
    }

    pub(crate) fn fixed(&self) -> &FixedSettings {
        &self.fixed
    }

    pub(crate) fn counters(&self) -> &CounterHistory {
        &self.counters
    }

    /// What the workers have done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.counters.sum()
    }

    /// What each worker has done so far, with those whose place it has taken at a reload.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatistics> {
        self.counters.workers()
    }

    /// Waits until the server has stopped, and reloads its configuration whenever a signal asks for that.
    ///
    /// # Errors
    /// The failure of a worker that could not go on. It is logged at once, and the other workers
    /// are asked to stop: no server goes on with some of its workers missing.
    pub fn wait(&self) -> anyhow::Result<()> {
        let is_over = || {
            let stops = self.stopper.asked.load(Ordering::Relaxed);
            self.crews.borrow().all.is_empty() && (stops || !self.hand_over.borrow().is_under_way())
        };
        self.hear_until(is_over, |report| match report {
            ServerReport::Reload => self.reload(),
            ServerReport::HandOver(step) => self.hand_over(step),
            ServerReport::Worker(..) | ServerReport::Stopping => {}
        });
        self.stopper.until_announced();
        status::counters::finish(self.fixed.counters_file().as_deref(), &self.counters);
        self.crews.borrow_mut().failure.take().map_or(Ok(()), Err)
    }

    /// Hears the workers until `done`; what others report goes to `hear`.
    fn hear_until(&self, done: impl Fn() -> bool, mut hear: impl FnMut(ServerReport)) {
        while !done() {
            // It cannot fail: the server has a sender itself.
            match self.reports.recv() {
                Ok(ServerReport::Worker(crew, report)) => self.hear(crew, report),
                Ok(other) => hear(other),
                Err(_) => return,
            }
        }
    }

    /// Hears the workers until `done`. What others report meanwhile is heard later.
    fn hear_workers_until(&self, done: impl Fn(&Crews) -> bool) {
        let mut later = Vec::new();
        self.hear_until(|| done(&self.crews.borrow()), |report| later.push(report));
        for report in later {
            let _sent = self.sender.send(report);
        }
    }

    fn hear(&self, number: usize, report: ThreadReport) {
        let mut crews = self.crews.borrow_mut();
        let Crews { all, serving, cannot_start, failure } = &mut *crews;
        let Some(crew) = all.get_mut(&number) else { return };
        let had_left = crew.has_left();
        let heard = crew.hear(report);
        if crew.has_left() && !had_left {
            self.on_leave.iter().for_each(|tell| tell());
        }
        if number > *serving && (heard.is_err() || cannot_start.is_some()) {
            crew.stop();
        }
        if crew.has_ended() {
            crew.finish();
            self.counters.end(crew.counter_table());
            self.stopper.forget(number);
            all.remove(&number);
            give_back_memory();
        }
        let Err(reason) = heard else { return };
        if number > *serving {
            // Further errors follow from the first.
            cannot_start.get_or_insert(reason);
        } else if number == *serving {
            error!("{reason:#}; stopping the server");
            self.stopper.stop();
            failure.get_or_insert(reason);
        } else {
            error!("{reason:#}, which was succeeded by another; its connections are lost");
        }
    }

    /// Starts a crew, and returns when all of its workers accept connections from `sockets`. It is then the one that
    /// serves.
    fn start_crew(&self, plan: CrewPlan, sockets: Vec<OwnedFd>) -> anyhow::Result<()> {
        let number = self.crews.borrow().serving + 1;
        let sender = self.sender.clone();
        let report = move |report| drop(sender.send(ServerReport::Worker(number, report)));
        let crew = Crew::start(plan, self.descriptors, &report)?;
        self.crews.borrow_mut().all.insert(number, crew);
        // A crew that cannot start is gone when its last worker has ended.
        self.hear_workers_until(|crews| match crews.all.get(&number) {
            Some(crew) => crews.cannot_start.is_none() && crew.is_ready(),
            None => true,
        });
        let mut crews = self.crews.borrow_mut();
        if let Some(reason) = crews.cannot_start.take() {
            return Err(reason);
        }
        let Some(crew) = crews.all.get(&number) else { bail!("a worker ended before it began") };
        self.stopper.admit(number, &crew.workers, sockets);
        crews.serving = number;
        Ok(())
    }

    /// Opens the access log anew, and goes on with another configuration if there is one.
    fn reload(&self) {
        if self.stopper.asked.load(Ordering::Relaxed) {
            return;
        }
        if self.hand_over.borrow().is_under_way() {
            return self.reload_later.set(true);
        }
        let crews = self.crews.borrow();
        let has_log = crews.all.values().filter(|crew| crew.reopen_log()).count() > 0;
        drop(crews);
        let mut reloader = self.reloader.borrow_mut();
        if self.hand_over.borrow().is_done() {
            *reloader = None;
        }
        tell_reopening(has_log, reloader.is_some());
        let Some(reloader) = reloader.as_mut() else { return };
        let manager = self.stopper.manager.as_deref();
        manager.inspect(|manager| manager.is_reloading());
        let outcome = reloader.read(&self.fixed, &self.sandbox).and_then(|next| {
            let Some(NextConfig { config, arguments, described, status }) = next else {
                return Ok(None);
            };
            self.go_on_with(config)?;
            reloader.took(arguments);
            Ok(Some((described, status)))
        });
        if let Some(admin) = &self.admin {
            let crews = self.crews.borrow();
            match (&outcome, crews.all.get(&crews.serving)) {
                (Err(reason), _) => admin.reload_refused(reason),
                (Ok(Some(_)), Some(crew)) => admin.reloaded(&crew.config),
                _ => {}
            }
        }
        tell_reload(outcome.as_ref().map(|next| next.as_ref().map(|(described, _)| &**described)));
        let status = outcome.ok().flatten().map(|(_, status)| status);
        manager.inspect(|manager| manager.is_ready_again(status.as_deref()));
    }

    /// Has other workers, of `config`, take over from those that accept connections.
    fn go_on_with(&self, config: Config) -> anyhow::Result<()> {
        let before = self.crews.borrow().serving;
        let Some(old) = self.crews.borrow().all.get(&before).map(|crew| Arc::clone(&crew.config))
        else {
            bail!("the server stops");
        };
        let together =
            accept::can_share((old.mechanism, old.accept), (config.mechanism, config.accept));
        if !together {
            self.leave(before);
        }
        let succeeded = self.succeed(config);
        match (&succeeded, together) {
            (Ok(()), true) => self.retire(before),
            (Ok(()), false) | (Err(_), true) => {}
            // Nobody accepts connections: others of the old configuration go on.
            (Err(_), false) => self.go_on_as_before(&old),
        }
        let crews = self.crews.borrow();
        let retired = crews.all.iter().filter(|(number, _)| **number != crews.serving);
        retired.rev().skip(RETIRED_MOST).for_each(|(_, crew)| crew.stop());
        succeeded
    }

    /// Has other workers, of the configuration before, accept connections, since nobody does.
    fn go_on_as_before(&self, config: &Config) {
        if let Err(reason) = self.succeed(config.clone()) {
            error!("cannot go on with the configuration before either: {reason:#}");
            self.stopper.stop();
            self.crews.borrow_mut().failure.get_or_insert(reason);
        }
    }

    /// Does what the server's thread for another server asks for.
    fn hand_over(&self, step: HandOverStep) {
        let serving = self.crews.borrow().serving;
        let config = || self.crews.borrow().all.get(&serving).map(|crew| Arc::clone(&crew.config));
        match step {
            HandOverStep::Offer(offer) => {
                let stops = self.stopper.asked.load(Ordering::Relaxed);
                let Some(config) = config().filter(|_| !stops) else { return };
                let mut sockets = self.stopper.sockets();
                sockets.extend_from_slice(self.admin.as_ref().map_or(&[], AdminListener::sockets));
                *self.hand_over.borrow_mut() = HandOverState::UnderWay(None);
                // It fails if the thread has ended, which then asks for nothing else.
                let _sent = offer.send(Offer::of(&config, sockets));
            }
            HandOverStep::Leave(left) => {
                *self.hand_over.borrow_mut() = HandOverState::UnderWay(config());
                self.leave(serving);
                let _sent = left.send(());
            }
            HandOverStep::Finish(successor) => {
                *self.hand_over.borrow_mut() = HandOverState::Done;
                self.retire(serving);
                self.stopper.forget_sockets();
                self.admin.iter().for_each(AdminListener::stop);
                self.stopper.manager.iter().for_each(|manager| manager.is_succeeded(successor));
                tell_handed_over(successor);
            }
            HandOverStep::Resume => {
                let left = self.hand_over.borrow_mut().resume();
                let stops = self.stopper.asked.load(Ordering::Relaxed);
                left.filter(|_| !stops).iter().for_each(|config| self.go_on_as_before(config));
            }
        }
        if self.reload_later.take() {
            self.reload();
        }
    }

    /// Starts workers of `config` on the sockets that the server listens with.
    fn succeed(&self, config: Config) -> anyhow::Result<()> {
        if config.pin {
            processors(config.workers)?;
        }
        let passing = config.on(self.stopper.sockets());
        let BoundAddresses { handles, sockets, .. } = bind(&passing, Among::Threads, &[])?;
        drop(passing);
        let log = config.access_log.as_ref().map(access_log::open).transpose()?;
        let counter_table = CounterTable::new(handles.len()).context("cannot make the counters")?;
        let table = counter_table.clone();
        let config = Arc::new(config);
        self.start_crew(CrewPlan { config, first: 0, handles, counter_table, log }, sockets)?;
        self.counters.succeed(table);
        Ok(())
    }

    /// Waits until the workers of a crew accept no more connections.
    fn leave(&self, number: usize) {
        self.retire(number);
        self.hear_workers_until(|crews| crews.all.get(&number).is_none_or(Crew::has_left));
    }

    /// Has the workers of a crew accept no more connections, and go on with those that they have.
    fn retire(&self, number: usize) {
        if let Some(crew) = self.crews.borrow().all.get(&number) {
            // Waking fails if the worker has ended already.
            crew.workers.iter().for_each(|worker| drop(worker.retire()));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use drover_mech::Key;
    use drover_mech::mechanisms::{self, Features, Mechanism, MechanismKind};
    use drover_mech::readiness::{Batch, Event, Interest, Readiness};

    use super::*;
    use crate::ContentSource;

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
