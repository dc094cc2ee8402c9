//! Workers as processes, and the process that keeps them.
//!
//! The supervisor binds the addresses, keeps every descriptor that a listener handle is made of, and serves
//! nothing itself. A worker that dies for any reason is replaced by one with equal
//! listener handles: connections that wait in them wait a little longer, and are not lost. After repeated deaths at
//! once, the pause before a replacement grows. Workers die with the supervisor.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use mech::accept::{Acceptor, Among, ListenerHandle};
use signal_hook::consts::{SIGKILL, SIGSYS};
use sys::process::{self as mech_process, ChildChange};
use tracing::{error, info, warn};

use crate::BoundAddresses;
use crate::Config;
use crate::Role;
use crate::Statistics;
use crate::StopSignals;
use crate::WorkerStatistics;
use crate::access_log::{self, AccessLog};
use crate::bind;
use crate::listen::deferred::{Deferred, LOOK_AGAIN};
use crate::processors;
use crate::sandbox;
use crate::signals::{Heard, STOPPING, tell_reopening};
use crate::status::statistics::CounterTable;
use crate::supervisor::process::{ALIVE, FLAG, Inheritance, MechanismAndStrategy, PING, REOPEN};
use crate::supervisor::service_manager::{self, ServiceManager};
use crate::{AdminListener, BoundAdmin};

/// A worker that lives at least this long has not died at once.
const LONG: Duration = Duration::from_secs(1);

/// The pause before the second replacement of a worker that dies at once; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How often it is looked whether workers have been sent what was accepted for them.
const LOOK: Duration = Duration::from_millis(1);

/// How often workers are asked for a sign of life, and after how many questions without an answer one hangs: a single
/// one may find a worker that was never given the processor.
const PING_EVERY: Duration = Duration::from_secs(2);
const UNANSWERED_MOST: u32 = 2;

/// How long after the grace a worker may take to end by itself.
const BEYOND_GRACE: Duration = Duration::from_secs(5);

/// A server whose workers are processes. Dropping it kills them.
#[derive(Debug)]
pub struct Supervisor {
    /// What workers are started with.
    arguments: Vec<OsString>,
    addresses: Vec<SocketAddr>,
    mechanism_and_strategy: MechanismAndStrategy,
    /// The listener handles of each worker, by address.
    handles: Vec<Vec<ListenerHandle>>,
    acceptors: Vec<Acceptor>,
    workers: Vec<Worker>,
    counter_table: CounterTable,
    /// The file that the counters are written to.
    counters: Option<PathBuf>,
    /// The access log.
    access_log: Option<AccessLog>,
    /// Its open file, which workers inherit.
    log: Option<File>,
    /// What is in force of the sandbox.
    sandbox: String,
    grace: Duration,
    deferred: Deferred,
    /// Whether the server has begun to stop.
    stopping: Arc<AtomicBool>,
    admin: Option<AdminListener>,
    /// The service manager, if one has started the server.
    manager: Option<ServiceManager>,
    sender: Sender<Message>,
    inbox: Receiver<Message>,
}

/// A worker's place, with the process that fills it.
#[derive(Debug, Default)]
struct Worker {
    process: Option<Process>,
    /// How many processes here have died at once, one after the other.
    short_lives: u32,
    /// When the place is to be filled again.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    started: Instant,
    ready: bool,
    /// How many pings the worker has not answered.
    unanswered: u32,
    /// The reason that a failed worker has given.
    reason: Option<String>,
}

/// What the supervisor hears. Messages about a worker carry its place.
#[derive(Debug)]
enum Message {
    Ready(usize),
    /// The worker has answered a ping.
    Alive(usize),
    Failed(usize, String),
    /// The worker's stdout is closed: the worker has ended, or is about to.
    Ended(usize),
    /// The supervisor is to stop.
    Signal,
    /// One of the processes may have been stopped, or goes on.
    Changed,
    /// The access log is to be opened anew.
    Reopen,
}

impl Supervisor {
    /// Binds every address, starts the workers, and returns when all of them accept. To be called on
    /// a thread that lives as long as the server: workers die with it. `arguments` are those of this
    /// program that make a server of the same configuration; a worker gets them and [`FLAG`].
    ///
    /// # Errors
    /// An address that cannot be bound, or a worker that cannot start: one chain with the remedy.
    pub fn start(config: &Config, arguments: &[OsString]) -> anyhow::Result<Supervisor> {
        if config.pin {
            processors(config.workers)?;
        }
        let BoundAddresses { addresses, handles, acceptors } = bind(config, Among::Processes)?;
        let admin = BoundAdmin::bind(config, true, &addresses)?;
        let counter_table = CounterTable::new(handles.len()).context("cannot make the counters")?;
        let (sender, inbox) = channel();
        let workers = handles.iter().map(|_| Worker::default()).collect();
        let mut supervisor = Supervisor {
            mechanism_and_strategy: (config.mechanism, config.accept),
            log: config.access_log.as_ref().map(access_log::open).transpose()?,
            access_log: config.access_log.clone(),
            sandbox: String::new(),
            grace: config.grace,
            counters: config.counters.clone(),
            deferred: Deferred::of(config, &handles, &addresses)?,
            arguments: arguments.to_vec(),
            addresses,
            handles,
            acceptors,
            workers,
            counter_table,
            stopping: Arc::default(),
            admin: None,
            manager: ServiceManager::of_environment()?,
            sender,
            inbox,
        };
        supervisor.sandbox = sandbox::give_up(config, Role::Supervisor)?;
        for acceptor in &supervisor.acceptors {
            acceptor.start()?;
        }
        for place in 0..supervisor.workers.len() {
            supervisor.fill(place).map_err(|error| cannot_start(place, &error))?;
        }
        while supervisor.processes().any(|process| !process.ready) {
            match supervisor.inbox.recv()? {
                Message::Ready(place) => supervisor.is_ready(place),
                Message::Failed(_, reason) => bail!(reason),
                Message::Ended(place) => bail!(supervisor.early_end(place)),
                // The signal ends a process that starts (`signals.rs`), and nothing is asked yet.
                Message::Signal | Message::Changed | Message::Reopen | Message::Alive(_) => {}
            }
        }
        if let Some(admin) = admin {
            supervisor.admin = Some(admin.start(&supervisor.counter_table, &supervisor.stopping)?);
        }
        Ok(supervisor)
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

    /// Has a signal end [`Supervisor::run`]. To be called before anybody is told that the server has
    /// started.
    ///
    /// # Errors
    /// The error of sigaction(2), or of starting a thread.
    pub fn stop_at(&self, signals: &StopSignals) -> anyhow::Result<()> {
        let (sender, counter_table) = (self.sender.clone(), self.counter_table.clone());
        let counters = self.counters.clone();
        signals.tell(move |heard| {
            let message = match heard {
                Heard::Counters => {
                    return crate::status::counters::answer(counters.as_deref(), &counter_table);
                }
                Heard::Stop => Message::Signal,
                Heard::Reopen => Message::Reopen,
                Heard::Child => Message::Changed,
            };
            // The send fails when the server has ended already.
            let _ = sender.send(message);
        })
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
        self.keep();
        let stopped = self.stop_after_deferred();
        crate::status::counters::finish(self.counters.as_deref(), &self.counter_table);
        stopped
    }

    /// Waits for connections that the kernel has not handed over yet, then stops the workers.
    fn stop_after_deferred(&mut self) -> anyhow::Result<()> {
        self.stopping.store(true, Ordering::Relaxed);
        self.manager.iter().for_each(ServiceManager::is_stopping);
        let until = self.deferred.end();
        if self.second_signal_while(until, LOOK_AGAIN, |own| own.deferred.keeps_some()) {
            return self.kill("by a second signal");
        }
        info!("{STOPPING}");
        self.stop()
    }

    /// Replaces workers until a signal comes, and watches whether they go on.
    fn keep(&mut self) {
        let mut next_ping = Instant::now() + PING_EVERY;
        let beat = self.manager.as_ref().and_then(ServiceManager::beat).unwrap_or(PING_EVERY);
        let mut next_beat = Instant::now() + beat;
        loop {
            if next_ping <= Instant::now() {
                self.ping();
                next_ping = Instant::now() + PING_EVERY;
            }
            if next_beat <= Instant::now() {
                self.tell_alive();
                next_beat = Instant::now() + beat;
            }
            match self.next_message(next_ping.min(next_beat)) {
                Some(Message::Signal) => return,
                Some(Message::Alive(place)) => self.is_alive(place),
                Some(Message::Changed) => self.tell_changes(),
                Some(Message::Reopen) => self.reopen_log(),
                Some(Message::Ready(place)) => self.is_ready(place),
                Some(Message::Failed(place, reason)) => self.failed(place, reason),
                Some(Message::Ended(place)) => self.replace(place),
                None => self.fill_what_is_due(),
            }
        }
    }

    /// `None`: a place is to be filled, or it is `end`.
    fn next_message(&self, end: Instant) -> Option<Message> {
        let due = self.workers.iter().filter_map(|worker| worker.due).fold(end, Instant::min);
        self.inbox.recv_timeout(due.saturating_duration_since(Instant::now())).ok()
    }

    /// Pings the workers that have answered the last ping, and logs which ones have not answered for long.
    fn ping(&mut self) {
        for (place, worker) in self.workers.iter_mut().enumerate() {
            let Some(process) = worker.process.as_mut().filter(|process| process.ready) else {
                continue;
            };
            process.unanswered += 1;
            if process.unanswered == UNANSWERED_MOST {
                let number = process.child.id();
                warn!(
                    "worker {place} (process {number}) hangs: it has not looked for events for \
                     {UNANSWERED_MOST} × {PING_EVERY:?}, and its connections wait"
                );
            }
            // The pipe has room for two lines. It fails for a process that has ended.
            if process.unanswered <= UNANSWERED_MOST
                && let Some(stdin) = &mut process.stdin
            {
                let _ = writeln!(stdin, "{PING}");
            }
        }
    }

    /// Tells the service manager that the server is alive, unless a worker hangs.
    fn tell_alive(&self) {
        let mut processes = self.workers.iter().filter_map(|worker| worker.process.as_ref());
        if let (Some(manager), true) =
            (&self.manager, processes.all(|process| process.unanswered < UNANSWERED_MOST))
            && manager.beat().is_some()
        {
            manager.is_alive();
        }
    }

    fn is_alive(&mut self, place: usize) {
        if let Some(process) = &mut self.workers[place].process {
            if process.unanswered >= UNANSWERED_MOST {
                info!("worker {place} (process {}) looks for events again", process.child.id());
            }
            process.unanswered = 0;
        }
    }

    /// Has every worker open the access log anew, as this process does for workers to come.
    fn reopen_log(&mut self) {
        tell_reopening(self.log.is_some());
        let Some(own) = &self.access_log else { return };
        match access_log::open(own) {
            Ok(file) => self.log = Some(file),
            Err(error) => error!("cannot open anew: {error:#}; the old file is written on"),
        }
        for process in self.workers.iter_mut().filter_map(|worker| worker.process.as_mut()) {
            if let Some(stdin) = &mut process.stdin {
                // It fails for a process that has ended.
                let _ = writeln!(stdin, "{REOPEN}");
            }
        }
    }

    fn tell_changes(&self) {
        for (place, worker) in self.workers.iter().enumerate() {
            let Some(process) = &worker.process else { continue };
            let number = process.child.id();
            match mech_process::change_of(&process.child) {
                Ok(Some(ChildChange::Stopped)) => warn!(
                    "worker {place} (process {number}) was stopped: connections that come to it \
                     wait until it gets a SIGCONT"
                ),
                Ok(Some(ChildChange::GoesOn)) => info!("worker {place} (process {number}) goes on"),
                // The end of the worker is another message.
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn fill_what_is_due(&mut self) {
        let now = Instant::now();
        for place in 0..self.workers.len() {
            if self.workers[place].due.is_some_and(|due| due <= now)
                && let Err(error) = self.fill(place)
            {
                warn!("cannot start worker {place}: {error}; trying again");
                self.pause(place);
            }
        }
    }

    /// The process of a place has ended: another one is to follow.
    fn replace(&mut self, place: usize) {
        let Some(mut process) = self.workers[place].process.take() else { return };
        drop(process.stdin.take());
        let status = process.child.wait();
        self.after_death(place);
        let lost = match self.counter_table.close_all(place) {
            0 => String::new(),
            lost => format!(", and {lost} connections with it"),
        };
        let reason = process.reason.unwrap_or_else(|| describe(&status));
        let number = process.child.id();
        if process.started.elapsed() >= LONG {
            self.workers[place].short_lives = 0;
        }
        self.pause(place);
        let due = self.workers[place].due.map(|due| due.saturating_duration_since(Instant::now()));
        let when = match due {
            Some(pause) if !pause.is_zero() => format!("in {pause:.1?}"),
            _ => "now".to_string(),
        };
        warn!("worker {place} (process {number}) has ended{lost}: {reason}; it is replaced {when}");
    }

    /// Why there is no server: the process of a place has ended without a word.
    fn early_end(&mut self, place: usize) -> String {
        let process = self.workers[place].process.take();
        let status = process.map_or_else(
            || Err(io::ErrorKind::NotFound.into()),
            |mut process| process.child.wait(),
        );
        format!(
            "worker {place} has ended before it accepted connections: {}; try it without --processes",
            describe(&status)
        )
    }

    /// Has the others told of what a process has left undone that is gone.
    fn after_death(&self, place: usize) {
        for handle in &self.handles[place] {
            if let Err(error) = handle.after_death() {
                warn!("the other workers hear late of the end of worker {place}: {error}");
            }
        }
    }

    /// Has the place filled: at once if its process has lived long.
    fn pause(&mut self, place: usize) {
        let worker = &mut self.workers[place];
        let pause = match worker.short_lives {
            0 => Duration::ZERO,
            times => LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow(times.min(10) - 1)),
        };
        worker.short_lives += 1;
        worker.due = Some(Instant::now() + pause);
    }

    fn fill(&mut self, place: usize) -> io::Result<()> {
        let inheritance = Inheritance::of(
            place,
            self.mechanism_and_strategy,
            &self.handles[place],
            &self.counter_table,
            self.log.as_ref(),
        );
        let mut command = command(&self.arguments, &inheritance)?;
        let handles = self.handles[place].iter().flat_map(ListenerHandle::descriptors);
        let log = self.log.as_ref().map(AsFd::as_fd);
        mech_process::pass_on(&mut command, handles.chain([self.counter_table.file()]).chain(log));
        let mut child = command.spawn()?;
        let stdout = child.stdout.take();
        let stdin = child.stdin.take();
        let started = Instant::now();
        let process = Process { child, stdin, started, ready: false, unanswered: 0, reason: None };
        let sender = self.sender.clone();
        let listen = move || {
            let lines = stdout.into_iter().flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                let message = match line.strip_prefix("failed ") {
                    Some(reason) => Message::Failed(place, reason.to_string()),
                    None if line == ALIVE => Message::Alive(place),
                    None => Message::Ready(place),
                };
                // The send fails when starting was given up.
                let _ = sender.send(message);
            }
            let _ = sender.send(Message::Ended(place));
        };
        if let Err(error) = mech_process::start_thread(format!("of worker {place}"), listen) {
            // Nobody would hear of it.
            process.kill();
            return Err(error);
        }
        let worker = &mut self.workers[place];
        worker.due = None;
        worker.process = Some(process);
        Ok(())
    }

    fn is_ready(&mut self, place: usize) {
        if let Some(process) = &mut self.workers[place].process {
            process.ready = true;
        }
    }

    fn failed(&mut self, place: usize, reason: String) {
        if let Some(process) = &mut self.workers[place].process {
            process.reason = Some(reason);
        }
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.workers.iter().filter_map(|worker| worker.process.as_ref())
    }

    /// Tells the workers to stop and waits for them. The listener handles are closed here first, so that each
    /// is closed for good when its last worker has taken what waits in it.
    fn stop(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + self.grace + BEYOND_GRACE;
        self.acceptors.iter().for_each(Acceptor::finish);
        if self.second_signal_while(end, LOOK, |own| !own.acceptors.iter().all(Acceptor::is_done)) {
            return self.kill("by a second signal");
        }
        self.handles.clear();
        for process in self.workers.iter_mut().filter_map(|worker| worker.process.as_mut()) {
            if let Some(stdin) = &mut process.stdin {
                // Writing fails for a worker that has ended already.
                let _ = stdin.write_all(b"stop\n");
            }
        }
        while self.processes().next().is_some() {
            match self.inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Message::Ended(place)) => self.reap(place),
                Ok(Message::Failed(place, reason)) => warn!("worker {place}: {reason}"),
                Ok(Message::Ready(_) | Message::Alive(_) | Message::Changed | Message::Reopen) => {}
                Ok(Message::Signal) => return self.kill("by a second signal"),
                Err(_) => return self.kill("because they did not stop by themselves"),
            }
        }
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
                Ok(Message::Ended(place)) => self.reap(place),
                Ok(Message::Signal) => return true,
                _ => {}
            }
        }
        false
    }

    fn reap(&mut self, place: usize) {
        if let Some(mut process) = self.workers[place].process.take() {
            let status = process.child.wait();
            if !status.as_ref().is_ok_and(ExitStatus::success) {
                warn!("worker {place} did not stop in good order: {}", describe(&status));
            }
        }
    }

    /// Kills the workers that are left. It is an error if that cuts connections.
    fn kill(&mut self, why: &str) -> anyhow::Result<()> {
        let mut open = 0;
        for (place, worker) in self.workers.iter_mut().enumerate() {
            if let Some(process) = worker.process.take() {
                process.kill();
                open += self.counter_table.close_all(place);
            }
        }
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

impl Process {
    fn kill(mut self) {
        // Killing fails for a worker that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program again, for a worker.
fn command(arguments: &[OsString], inheritance: &Inheritance) -> io::Result<Command> {
    // /proc/self/exe is this program's file, also if another file has its name by now.
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).arg(FLAG).arg(serde_json::to_string(inheritance)?);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    for name in service_manager::VARIABLES.iter().chain(&mech_process::activation::VARIABLES) {
        command.env_remove(name);
    }
    mech_process::die_with_parent(&mut command);
    Ok(command)
}

fn cannot_start(place: usize, error: &io::Error) -> anyhow::Error {
    anyhow!(
        "cannot start worker {place} (--processes): {error}; raise 'ulimit -n' if that is about open \
         files, 'ulimit -u' if it is about processes, or use fewer --workers"
    )
}

/// Why a process has ended; for a signal, also what usually sends it.
fn describe(status: &io::Result<ExitStatus>) -> String {
    let status = match status {
        Ok(status) => status,
        Err(error) => return error.to_string(),
    };
    let hint = match status.signal() {
        Some(SIGKILL) => ", which the kernel sends when memory runs out: dmesg tells",
        Some(SIGSYS) => {
            ", which a seccomp filter sends: see 'drover mechanisms' for what it allows"
        }
        _ => "",
    };
    format!("{status}{hint}")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::ContentSource;

    /// Workers are this very program once more, which does not know the flag that makes it one.
    #[test]
    fn a_worker_that_ends_before_it_begins_is_the_end_and_says_how() {
        let mechanism = mech::mechanisms::auto(1).unwrap();
        let workers = NonZeroUsize::new(2).unwrap();
        let config = Config { workers, ..Config::new(ContentSource::Fixed(1), mechanism) };
        let error = format!("{:#}", Supervisor::start(&config, &[]).unwrap_err());
        for part in ["worker ", "before it accepted connections", "exit status: ", "--processes"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_started_and_what_has_died_names_cause_and_remedy() {
        let told = cannot_start(3, &io::Error::from_raw_os_error(24)).to_string();
        for part in ["worker 3", "Too many open files", "'ulimit -n'", "--workers"] {
            assert!(told.contains(part), "{told}");
        }
        let status = |raw| describe(&Ok(ExitStatus::from_raw(raw)));
        assert!(status(SIGKILL).contains("SIGKILL") && status(SIGKILL).contains("memory"));
        assert!(status(SIGSYS).contains("seccomp"), "{}", status(SIGSYS));
        assert_eq!(status(1 << 8), "exit status: 1");
    }
}
