//! The life of a server: a small process that keeps its rights, and worker processes that serve.
//!
//! The supervisor binds the addresses and opens roots, users' files and logs. It reads the configuration, hears signals, the
//! service manager and other servers that take over, and serves nothing itself: nothing that a client sends is read here. Its
//! workers are threads of one process or, with `--processes`, a process each (`supervisor/process.rs`); they have no rights but
//! to read the roots (`sandbox`). A process that dies for any reason is replaced by one with equal
//! sockets: connections that wait in them wait a little longer, and are not lost. After repeated deaths at
//! once, the pause before a replacement grows. Workers die with the supervisor. A supervisor of idle workers sleeps.

mod next_workers;
mod renewed;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::bail;
use drover_mech::accept::{self, Acceptor, Among};
use drover_sys::process::give_back_memory;
use drover_sys::socket::Address;
use tracing::{error, info};

use super::admin_keeper::AdminKeeper;
use super::child::ChildEvent;
use super::messages::FromWorker;
use super::process_crew::{CrewListeners, Message, ProcessCrew};
use super::renewal::CertificateRenewal;
use super::service_manager::ServiceManager;
use crate::admin::BoundAdmin;
use crate::admin::process::FromAdmin;
use crate::config::{Config, ContentSource};
use crate::listen::bind::{BoundAddresses, bind};
use crate::listen::sockets::{LOOK_AGAIN, ListeningSockets};
use crate::output_files::OutputFiles;
use crate::reload::{FixedSettings, Reloader};
use crate::signals::{Heard, StopSignals};
use crate::status::history::CounterHistory;
use crate::status::statistics::{Statistics, WorkerStatistics};
use crate::succession::hand_over::{
    HandOverListener, HandOverState, HandOverStep, Offer, tell_handed_over,
};
use crate::succession::take_over::TakeOver;
use crate::tls::TlsListeners;
use crate::{processors, status};

/// How often it is looked whether workers have been sent what was accepted for them.
const LOOK: Duration = Duration::from_millis(1);

/// What the log says when workers have been told to stop.
const STOPPING: &str = "stopping: requests under way may finish";

/// How often it is looked at most whether roots are other directories.
const ROOTS_EVERY: Duration = Duration::from_millis(250);

/// How often the log warns of certificates that end soon.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long after the grace a worker may take to end by itself.
const BEYOND_GRACE: Duration = Duration::from_secs(5);

/// What workers are made of.
#[derive(Debug)]
struct WorkerPlans {
    config: Arc<Config>,
    arguments: Vec<OsString>,
}

impl WorkerPlans {
    fn of(crew: &ProcessCrew) -> WorkerPlans {
        WorkerPlans { config: Arc::clone(&crew.config), arguments: crew.arguments.clone() }
    }
}

/// A server: the process with the rights, and its workers. Dropping it kills them.
#[derive(Debug)]
pub struct Supervisor {
    /// Whether the workers are threads of one process, or a process each.
    among: Among,
    addresses: Vec<Address>,
    /// Which of them speak TLS.
    tls: TlsListeners,
    /// The workers of each configuration, by its number: those that accept connections, those that have retired, and some
    /// that start.
    crews: BTreeMap<usize, ProcessCrew>,
    /// The number of the workers that accept connections.
    serving: usize,
    /// What the supervisor listens with.
    sockets: ListeningSockets,
    counters: CounterHistory,
    fixed: FixedSettings,
    reloader: Option<Reloader>,
    /// Whether the server has begun to stop.
    stopping: Arc<AtomicBool>,
    admin: Option<AdminKeeper>,
    /// When it may be looked whether the roots are other directories; `None`: no worker wants to know.
    roots_due: Option<Instant>,
    /// When that was looked at last.
    roots_seen: Instant,
    /// When certificates are looked at again, which end one day.
    certificates_due: Option<Instant>,
    /// Certificates that are got from a CA, if some are.
    renewal: Option<CertificateRenewal>,
    /// The service manager, if one has started the server.
    manager: Option<ServiceManager>,
    sender: Sender<Message>,
    inbox: Receiver<Message>,
    /// Whether a reload was asked for.
    reload_again: bool,
    hand_over: HandOverState<WorkerPlans>,
    /// What the thread for another server asks for, in its order.
    hand_over_steps: VecDeque<HandOverStep>,
    hand_over_listener: Option<HandOverListener>,
}

impl Supervisor {
    /// Binds every address, starts the workers, and returns when all of them accept. To be called on
    /// a thread that lives as long as the server: workers die with it. `arguments` are those of this
    /// program that make a server of the same configuration; a worker process gets them and
    /// [`FLAG`](super::process::FLAG). `processes`: each worker is a process.
    ///
    /// A signal ends the process at once until there are workers. From then on it has [`Supervisor::run`] end, since the first
    /// worker serves before the last one starts: this function returns early then ([`Supervisor::is_stopping`]).
    ///
    /// # Errors
    /// An address that cannot be bound, or a worker that cannot start: one chain with the remedy.
    pub fn start(
        config: Config,
        arguments: Vec<OsString>,
        processes: bool,
        signals: &StopSignals,
    ) -> anyhow::Result<Supervisor> {
        if config.pin {
            processors(config.workers)?;
        }
        let among = if processes { Among::Processes } else { Among::Threads };
        let take_over = TakeOver::of(&config)?;
        let handed = take_over.sockets(&config)?;
        let bound = bind(&config, among, &handed)?;
        let admin = BoundAdmin::bind(&config, processes, &bound.addresses, &handed)?;
        drop(handed);
        let manager = ServiceManager::of_environment();
        let (sender, inbox) = channel();
        let (tls, tls_listeners) = (bound.tls.clone(), bound.tls.clone());
        let renewal = config.acme.as_ref().map(|_| CertificateRenewal::new()).transpose()?;
        let challenges = renewal.as_ref().map(CertificateRenewal::challenges);
        let config = Arc::new(Config { passed: Vec::new(), tls_listeners, challenges, ..config });
        config.tls.iter().for_each(|tls| tls.warn());
        let addresses = bound.addresses.clone();
        let (made, sockets) = listeners_of(bound, among);
        let files = (OutputFiles::open(&config)?, sender.clone());
        let crew = ProcessCrew::new(Arc::clone(&config), 0, arguments, made, files)?;
        let mut supervisor = Supervisor {
            among,
            addresses,
            tls,
            counters: CounterHistory::new(crew.counter_table.clone()),
            crews: BTreeMap::new(),
            serving: 0,
            sockets,
            fixed: FixedSettings::of(&config),
            reloader: None,
            stopping: Arc::default(),
            admin: None,
            roots_due: None,
            roots_seen: Instant::now(),
            certificates_due: config.tls.is_some().then(|| Instant::now() + CERTIFICATES_EVERY),
            renewal,
            manager,
            sender,
            inbox,
            reload_again: false,
            hand_over: HandOverState::Not,
            hand_over_steps: VecDeque::new(),
            hand_over_listener: None,
        };
        supervisor.stop_at(signals)?;
        supervisor.start_crew(0, crew)?;
        if let Some(admin) = admin {
            supervisor.start_admin(admin)?;
        }
        if supervisor.is_stopping() {
            // The server before, if there is one, goes on.
            return Ok(supervisor);
        }
        if let Some(control) = take_over.finish()? {
            let sender = supervisor.sender.clone();
            let tell = move |step| sender.send(Message::HandOver(step)).is_ok();
            supervisor.hand_over_listener = Some(HandOverListener::start(control, tell)?);
        }
        // What the start needed is more than what is needed from now on.
        give_back_memory();
        Ok(supervisor)
    }

    /// Starts the process of `--admin`, and returns when it accepts connections.
    fn start_admin(&mut self, admin: BoundAdmin) -> anyhow::Result<()> {
        let Some(crew) = self.crews.get(&self.serving) else { bail!("the server stops") };
        let (sender, arguments) = (self.sender.clone(), crew.arguments.clone());
        let table = (self.serving, crew.counter_table.clone());
        let hear = move |number, heard| drop(sender.send(Message::Admin(number, heard)));
        let mut keeper = AdminKeeper::start(admin, arguments, table, hear)?;
        while !keeper.is_ready()? && !self.is_stopping() {
            match self.inbox.recv()? {
                Message::Admin(number, heard) => keeper.hear(number, heard),
                other => self.hear(other),
            }
        }
        self.admin = Some(keeper);
        Ok(())
    }

    /// Starts the workers of one configuration, and returns when all of them accept, or when the server is to stop.
    fn start_crew(&mut self, number: usize, mut crew: ProcessCrew) -> anyhow::Result<()> {
        let started = crew.start();
        self.crews.insert(number, crew);
        let started = started.and_then(|()| self.until_ready(number));
        if started.is_err()
            && let Some(mut crew) = self.crews.remove(&number)
        {
            crew.kill();
        }
        started
    }

    fn until_ready(&mut self, number: usize) -> anyhow::Result<()> {
        while self.crews.get(&number).is_some_and(|crew| !crew.is_ready()) && !self.is_stopping() {
            match self.inbox.recv()? {
                Message::Worker(it, place, heard) if it == number => {
                    let Some(crew) = self.crews.get_mut(&number) else { continue };
                    match heard {
                        ChildEvent::Ended => bail!(crew.early_end(place)),
                        heard => crew.hear(place, heard),
                    }
                }
                other => self.hear(other),
            }
        }
        Ok(())
    }

    /// Whether the server has been told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The addresses as they are bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Which of them speak TLS, by their number.
    #[must_use]
    pub fn tls(&self) -> &TlsListeners {
        &self.tls
    }

    /// The addresses of [`Config::admin`] as they are bound.
    #[must_use]
    pub fn admin_addresses(&self) -> &[SocketAddr] {
        self.admin.as_ref().map_or(&[], AdminKeeper::addresses)
    }

    /// What is in force of the workers' sandbox ([`Config::sandbox`]), in words.
    #[must_use]
    pub fn sandbox(&self) -> &str {
        let crew = self.crews.get(&self.serving);
        crew.and_then(ProcessCrew::sandbox).unwrap_or("no worker has told")
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

    /// Has a signal end [`Supervisor::run`].
    ///
    /// # Errors
    /// The error of sigaction(2), or of starting a thread.
    fn stop_at(&self, signals: &StopSignals) -> anyhow::Result<()> {
        let (sender, counters) = (self.sender.clone(), self.counters.clone());
        let file = self.fixed.counters_file();
        signals.tell(move |heard| {
            let message = match heard {
                Heard::Counters => return status::counters::answer(&file, &counters),
                Heard::Stop => Message::Signal,
                Heard::Reload => Message::Reload,
                Heard::Child => Message::Changed,
            };
            // The send fails when the server has ended already.
            let _ = sender.send(message);
        })
    }

    /// From now on SIGHUP has the server go on with the configuration that `reloader` reads.
    pub fn reload_by(&mut self, reloader: Reloader) {
        self.reloader = Some(reloader);
    }

    /// Tells the service manager that has started the process, if there is one, that the server accepts connections, with
    /// `status` for those who ask it.
    pub fn tell_ready(&self, status: &str) {
        self.manager.iter().for_each(|manager| manager.is_ready(status));
    }

    /// Keeps the workers until a signal to stop comes, and waits until all have stopped. At a second
    /// signal they are killed.
    ///
    /// # Errors
    /// Connections that were open when the workers were killed. What goes wrong in a worker before is
    /// answered by another worker.
    pub fn run(&mut self) -> anyhow::Result<()> {
        self.plan_renewal();
        self.keep();
        let stopped = match self.crews.is_empty() {
            true => Ok(()),
            false => self.stop_after_deferred(),
        };
        self.renewal.iter_mut().for_each(CertificateRenewal::finish);
        status::counters::finish(&self.fixed.counters_file(), &self.counters);
        self.admin.iter_mut().for_each(AdminKeeper::end);
        stopped
    }

    /// Waits for connections that the kernel has not handed over yet, then stops the workers.
    fn stop_after_deferred(&mut self) -> anyhow::Result<()> {
        self.stopping.store(true, Ordering::Relaxed);
        self.manager.iter().for_each(ServiceManager::is_stopping);
        self.admin.iter().for_each(AdminKeeper::is_stopping);
        let until = self.sockets.close();
        if self.second_signal_while(until, LOOK_AGAIN, |own| own.sockets.keep_some()) {
            return self.kill("by a second signal");
        }
        info!("{STOPPING}");
        self.stop()
    }

    /// Replaces workers until a signal comes, or the last have ended. Sleeps as long as there is nothing to do; only a service
    /// manager that wants to know whether the workers go on makes it wake up by itself.
    fn keep(&mut self) {
        let beat = self.manager.as_ref().and_then(ServiceManager::beat);
        let mut next_beat = beat.map(|beat| Instant::now() + beat);
        while !self.is_stopping() && (!self.hand_over.is_done() || !self.crews.is_empty()) {
            if self.does_what_is_asked() {
                continue;
            }
            if let Some((beat, due)) = beat.zip(next_beat)
                && due <= Instant::now()
            {
                self.tell_alive();
                self.crews.values_mut().for_each(ProcessCrew::ping);
                next_beat = Some(Instant::now() + beat);
            }
            match self.next_message(next_beat) {
                Some(message) => self.hear(message),
                None => self.do_what_is_due(),
            }
        }
    }

    /// Does one thing that was asked for by a message that is heard; `false`: there is none. While the supervisor waits for its
    /// workers it hears messages too, so that there may be several, and nothing comes to wake it up for them.
    fn does_what_is_asked(&mut self) -> bool {
        if let Some(step) = self.hand_over_steps.pop_front() {
            self.hand_over(step);
            return true;
        }
        let is_time = self.reload_again && !self.hand_over.is_under_way();
        if is_time {
            self.reload_again = false;
            self.reload();
        }
        is_time
    }

    fn do_what_is_due(&mut self) {
        self.crews.values_mut().for_each(ProcessCrew::fill_what_is_due);
        self.admin.iter_mut().for_each(|admin| admin.fill_if_due(&self.counters));
        let now = Instant::now();
        if self.roots_due.is_some_and(|due| due <= now) && !self.hand_over.is_under_way() {
            (self.roots_due, self.roots_seen) = (None, now);
            self.serve_replaced_roots();
        }
        self.serve_renewed();
        if self.certificates_due.is_some_and(|due| due <= now) {
            self.certificates_due = Some(now + CERTIFICATES_EVERY);
            let crew = self.crews.get(&self.serving);
            crew.and_then(|crew| crew.config.tls.as_ref()).into_iter().for_each(|tls| tls.warn());
        }
    }

    /// `None`: something is due, or it is `end`.
    fn next_message(&self, end: Option<Instant>) -> Option<Message> {
        let due = self.crews.values().filter_map(ProcessCrew::due);
        let of_admin = self.admin.as_ref().and_then(AdminKeeper::due);
        let renewed = self.renewal.as_ref().and_then(CertificateRenewal::due);
        match due
            .chain(end)
            .chain(of_admin)
            .chain(renewed.filter(|_| !self.hand_over.is_under_way()))
            .chain(self.roots_due)
            .chain(self.certificates_due)
            .min()
        {
            Some(due) => {
                self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())).ok()
            }
            // It cannot fail: the supervisor has a sender itself.
            None => self.inbox.recv().ok(),
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Signal => self.stopping.store(true, Ordering::Relaxed),
            Message::Changed => self.crews.values().for_each(ProcessCrew::tell_changes),
            Message::Reload => self.reload_again = true,
            Message::HandOver(step) => self.hand_over_steps.push_back(step),
            Message::Acme(heard) => self.hear_renewal(heard),
            Message::Admin(_, ChildEvent::Message(FromAdmin::Asks)) => {
                let facts = self.crews.values().flat_map(ProcessCrew::facts).collect();
                if let Some(admin) = &self.admin {
                    admin.answer(facts);
                }
            }
            Message::Admin(number, heard) => {
                if let Some(admin) = &mut self.admin {
                    admin.hear(number, heard);
                }
            }
            Message::Worker(number, _, ChildEvent::Message(FromWorker::RootReplaced)) => {
                if number == self.serving && self.roots_due.is_none() {
                    self.roots_due = Some(self.roots_seen + ROOTS_EVERY);
                }
            }
            Message::Worker(number, place, heard) => {
                let Some(crew) = self.crews.get_mut(&number) else { return };
                crew.hear(place, heard);
                if crew.has_retired() && crew.has_ended() {
                    self.counters.end(&crew.counter_table);
                    self.admin.iter_mut().for_each(|admin| admin.ended(number));
                    self.crews.remove(&number);
                    give_back_memory();
                }
            }
        }
    }

    /// Has other workers serve where the path of a root leads to another directory now.
    fn serve_replaced_roots(&mut self) {
        let Some(crew) = self.crews.get(&self.serving) else { return };
        let (mut config, arguments) = ((*crew.config).clone(), crew.arguments.clone());
        let (own_files, mut names) = (config.own_files(), Vec::new());
        let own = config.site.iter_mut();
        for site in own.chain(config.hosts.iter_mut().map(|host| &mut host.site)) {
            if let ContentSource::Directory(root) = &site.source
                && let Ok(Some(now)) = root.replaced()
            {
                if let Err(reason) = own_files.refuse_root(&now) {
                    return error!(
                        "{} is another directory now, and not served: {reason:#}",
                        now.name()
                    );
                }
                names.push(now.name().to_string());
                site.source = ContentSource::Directory(Arc::new(now));
            }
        }
        if names.is_empty() {
            return;
        }
        names.dedup();
        let names = names.join(", ");
        match self.go_on_with(config, arguments) {
            Ok(()) => info!("{names} is another directory now: serving that"),
            Err(reason) => {
                error!("{names} is another directory now, and cannot be served: {reason:#}");
            }
        }
    }

    /// Tells the service manager that the server is alive, unless a worker hangs.
    fn tell_alive(&self) {
        if let Some(manager) = self.manager.as_ref().filter(|manager| manager.beat().is_some())
            && !self.crews.values().any(ProcessCrew::hangs)
        {
            manager.is_alive();
        }
    }

    /// Does what the thread for another server asks for.
    fn hand_over(&mut self, step: HandOverStep) {
        let serving = self.serving;
        match step {
            HandOverStep::Offer(offer) => {
                // Nobody asks whether their workers can share sockets with those of the other server.
                if self.until_left(|_| true).is_err() {
                    return;
                }
                let Some(crew) = self.crews.get(&serving) else { return };
                let mut sockets = self.sockets.all();
                sockets.extend_from_slice(self.admin.as_ref().map_or(&[], AdminKeeper::sockets));
                self.hand_over = HandOverState::UnderWay(None);
                // It fails if the thread has ended, which then asks for nothing else.
                let _sent = offer.send(Offer::of(&crew.config, sockets));
            }
            HandOverStep::Leave(left) => {
                self.hand_over =
                    HandOverState::UnderWay(self.crews.get(&serving).map(WorkerPlans::of));
                // Nobody here answers the CA any more.
                self.renewal.iter_mut().for_each(CertificateRenewal::end);
                self.retire(serving);
                if self.until_left(|_| true).is_ok() {
                    let _sent = left.send(());
                }
            }
            HandOverStep::Finish(successor) => {
                self.hand_over = HandOverState::Done;
                self.retire(serving);
                self.sockets = ListeningSockets::default();
                self.admin.iter_mut().for_each(AdminKeeper::end);
                self.manager.iter().for_each(|manager| manager.is_succeeded(successor));
                tell_handed_over(successor);
            }
            HandOverStep::Resume => {
                if let Some(before) = self.hand_over.resume() {
                    self.go_on_as_before(before);
                }
                self.plan_renewal();
            }
        }
    }

    /// Has the workers of a configuration accept no more connections, and go on with those that they have.
    fn retire(&mut self, number: usize) {
        let Some(crew) = self.crews.get_mut(&number) else { return };
        crew.acceptors.iter().for_each(Acceptor::finish);
        while !crew.acceptors.iter().all(Acceptor::is_done) {
            std::thread::sleep(LOOK);
        }
        crew.retire();
    }

    /// Tells the workers to stop and waits for them.
    fn stop(&mut self) -> anyhow::Result<()> {
        let grace = self.crews.values().map(|crew| crew.config.grace).max().unwrap_or_default();
        let end = Instant::now() + grace + BEYOND_GRACE;
        let acceptors = |own: &Supervisor| {
            own.crews.values().all(|crew| crew.acceptors.iter().all(Acceptor::is_done))
        };
        self.crews.values().flat_map(|crew| &crew.acceptors).for_each(Acceptor::finish);
        if self.second_signal_while(end, LOOK, |own| !acceptors(own)) {
            return self.kill("by a second signal");
        }
        self.crews.values_mut().for_each(ProcessCrew::stop);
        while self.crews.values().any(|crew| !crew.is_done()) {
            match self.inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Message::Signal) => return self.kill("by a second signal"),
                Ok(message) => self.hear(message),
                Err(_) => return self.kill("because they did not stop by themselves"),
            }
        }
        self.crews.values_mut().for_each(ProcessCrew::reap_all);
        Ok(())
    }

    /// Waits as long as `lasts` says so, but not beyond `end`; looks every `look`. Returns whether a second
    /// signal came meanwhile.
    fn second_signal_while(
        &mut self,
        end: Instant,
        look: Duration,
        lasts: impl Fn(&Supervisor) -> bool,
    ) -> bool {
        while lasts(self) && Instant::now() < end {
            match self.inbox.recv_timeout(look) {
                Ok(Message::Signal) => return true,
                Ok(Message::Worker(number, place, ChildEvent::Ended)) => {
                    self.crews.get_mut(&number).into_iter().for_each(|crew| crew.reap(place));
                }
                _ => {}
            }
        }
        false
    }

    /// Kills the workers that are left. It is an error if that cuts connections.
    fn kill(&mut self, why: &str) -> anyhow::Result<()> {
        let open: u64 = self.crews.values_mut().map(ProcessCrew::kill).sum();
        match open {
            0 => Ok(()),
            _ => bail!("workers were killed {why}: {open} connections were open"),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // What is open then does not matter to whoever has given the server up.
        let _ = self.kill("at the end");
    }
}

/// Whether workers of both configurations can accept from the same sockets at the same time.
fn can_share(one: &Config, other: &Config) -> bool {
    accept::can_share((one.mechanism, one.accept), (other.mechanism, other.accept))
}

/// How connections come to the workers, with what the supervisor itself keeps of the sockets.
fn listeners_of(
    bound: BoundAddresses,
    among: Among,
) -> ((CrewListeners, Vec<Acceptor>), ListeningSockets) {
    let sockets = ListeningSockets::from(bound.sockets);
    let listeners = match among {
        // The process of the threads makes handles of the sockets itself.
        Among::Threads => CrewListeners::Sockets(sockets.all()),
        Among::Processes => CrewListeners::Handles(bound.handles),
    };
    ((listeners, bound.acceptors), sockets)
}

#[cfg(test)]
mod tests;
