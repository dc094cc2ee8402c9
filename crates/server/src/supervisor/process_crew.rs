//! The worker processes of one configuration, each in a place that is filled again when its process dies.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use drover_mech::accept::{Acceptor, ListenerHandle};
use drover_sys::process::{self as mech_process, ChildChange};
use signal_hook::consts::{SIGKILL, SIGSYS};
use tracing::{error, info, warn};

use crate::access_log;
use crate::config::Config;
use crate::status::statistics::CounterTable;
use crate::succession::hand_over::HandOverStep;
use crate::supervisor::process::{ALIVE, FLAG, Inheritance, LEFT, PING, REOPEN, RETIRE, STOP};
use crate::supervisor::service_manager;

/// A worker that lives at least this long has not died at once.
const LONG: Duration = Duration::from_secs(1);

/// The pause before the second replacement of a worker that dies at once; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How often workers are asked for a sign of life.
pub(super) const PING_EVERY: Duration = Duration::from_secs(2);

/// After how many questions without an answer a worker hangs: a single one may find a worker that was never given the
/// processor.
const UNANSWERED_MOST: u32 = 2;

/// The worker processes of one configuration.
#[derive(Debug)]
pub(super) struct ProcessCrew {
    pub(super) config: Arc<Config>,
    /// The number of these workers among those of other configurations.
    number: usize,
    /// What workers are started with.
    pub(super) arguments: Vec<OsString>,
    /// The listener handles of each worker, by address; none when the workers have retired.
    pub(super) handles: Vec<Vec<ListenerHandle>>,
    pub(super) acceptors: Vec<Acceptor>,
    workers: Vec<Worker>,
    pub(super) counter_table: CounterTable,
    /// The open file of the access log, which workers inherit.
    log: Option<File>,
    sender: Sender<Message>,
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
    /// Whether it accepts no more connections.
    left: bool,
    /// How many pings the worker has not answered.
    unanswered: u32,
    /// The reason that a failed worker has given.
    reason: Option<String>,
}

/// What the supervisor hears.
pub(super) enum Message {
    /// What a worker does, with the number of its crew and its place there.
    Worker(usize, usize, WorkerChange),
    /// The supervisor is to stop.
    Signal,
    /// One of the processes may have been stopped, or goes on.
    Changed,
    /// The access log is to be opened anew, and the configuration to be reloaded.
    Reload,
    /// Another server takes over.
    HandOver(HandOverStep),
}

/// What a worker process does.
#[derive(Debug)]
pub(super) enum WorkerChange {
    /// It accepts connections.
    Ready,
    /// It has answered a ping.
    Alive,
    /// It accepts no more connections.
    Left,
    Failed(String),
    /// Its stdout is closed: it has ended, or is about to.
    Ended,
}

impl ProcessCrew {
    /// Places without processes. `arguments` are those of this program that make a server of `config`.
    pub(super) fn new(
        config: Arc<Config>,
        number: usize,
        arguments: Vec<OsString>,
        (handles, acceptors): (Vec<Vec<ListenerHandle>>, Vec<Acceptor>),
        sender: Sender<Message>,
    ) -> anyhow::Result<ProcessCrew> {
        let counter_table = CounterTable::new(handles.len()).context("cannot make the counters")?;
        let log = config.access_log.as_ref().map(access_log::open).transpose()?;
        let workers = handles.iter().map(|_| Worker::default()).collect();
        Ok(ProcessCrew {
            config,
            number,
            arguments,
            handles,
            acceptors,
            workers,
            counter_table,
            log,
            sender,
        })
    }

    /// Fills all places.
    ///
    /// # Errors
    /// No more processes, threads or descriptors, with the remedy.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        for acceptor in &self.acceptors {
            acceptor.start()?;
        }
        for place in 0..self.workers.len() {
            self.fill(place).map_err(|error| cannot_start(place, &error))?;
        }
        Ok(())
    }

    /// Whether the workers have been told to accept no more connections.
    pub(super) fn has_retired(&self) -> bool {
        self.handles.is_empty()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.processes().all(|process| process.ready)
    }

    /// Whether no worker accepts connections any more.
    pub(super) fn has_left(&self) -> bool {
        self.processes().all(|process| process.left)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.processes().next().is_none()
    }

    /// Whether a worker does not answer.
    pub(super) fn hangs(&self) -> bool {
        self.processes().any(|process| process.unanswered >= UNANSWERED_MOST)
    }

    /// When a place is to be filled again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.workers.iter().filter_map(|worker| worker.due).min()
    }

    /// Hears what a worker does that serves.
    pub(super) fn hear(&mut self, place: usize, change: WorkerChange) {
        match change {
            WorkerChange::Ended if self.has_retired() => self.reap(place),
            WorkerChange::Ended => self.replace(place),
            WorkerChange::Alive => self.is_alive(place),
            WorkerChange::Ready => self.process_at(place, |process| process.ready = true),
            WorkerChange::Left => self.process_at(place, |process| process.left = true),
            WorkerChange::Failed(reason) => {
                self.process_at(place, |process| process.reason = Some(reason));
            }
        }
    }

    fn process_at(&mut self, place: usize, change: impl FnOnce(&mut Process)) {
        self.workers[place].process.as_mut().map(change);
    }

    /// Writes a line to all workers.
    fn say(&mut self, line: &str) {
        for process in self.workers.iter_mut().filter_map(|worker| worker.process.as_mut()) {
            if let Some(stdin) = &mut process.stdin {
                // It fails for a process that has ended.
                let _ = writeln!(stdin, "{line}");
            }
        }
    }

    /// Has the workers leave new connections to others. To be called when the acceptors are done.
    pub(super) fn retire(&mut self) {
        self.say(RETIRE);
        self.forget_places();
    }

    /// Has the workers stop. To be called when the acceptors are done.
    pub(super) fn stop(&mut self) {
        // Closed here first, so that each is closed for good when its last worker has taken what waits in it.
        self.forget_places();
        self.say(STOP);
    }

    /// No place is filled again.
    fn forget_places(&mut self) {
        self.handles.clear();
        self.workers.iter_mut().for_each(|worker| worker.due = None);
    }

    /// Has every worker open the access log anew, as this process does for workers to come. Returns whether there is one.
    pub(super) fn reopen_log(&mut self) -> bool {
        let Some(own) = &self.config.access_log else { return false };
        match access_log::open(own) {
            Ok(file) => self.log = Some(file),
            Err(error) => error!("cannot open anew: {error:#}; the old file is written on"),
        }
        self.say(REOPEN);
        true
    }

    /// Pings the workers that have answered the last ping, and logs which ones have not answered for long.
    pub(super) fn ping(&mut self) {
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

    fn is_alive(&mut self, place: usize) {
        if let Some(process) = &mut self.workers[place].process {
            if process.unanswered >= UNANSWERED_MOST {
                info!("worker {place} (process {}) looks for events again", process.child.id());
            }
            process.unanswered = 0;
        }
    }

    pub(super) fn tell_changes(&self) {
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

    pub(super) fn fill_what_is_due(&mut self) {
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
    pub(super) fn early_end(&mut self, place: usize) -> String {
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
            (self.config.mechanism, self.config.accept),
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
        let process = Process {
            child,
            stdin,
            started,
            ready: false,
            left: false,
            unanswered: 0,
            reason: None,
        };
        let (sender, number) = (self.sender.clone(), self.number);
        let send = move |change| drop(sender.send(Message::Worker(number, place, change)));
        let listen = move || {
            let lines = stdout.into_iter().flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                // A send fails when starting was given up.
                send(match line.strip_prefix("failed ") {
                    Some(reason) => WorkerChange::Failed(reason.to_string()),
                    None if line == ALIVE => WorkerChange::Alive,
                    None if line == LEFT => WorkerChange::Left,
                    None => WorkerChange::Ready,
                });
            }
            send(WorkerChange::Ended);
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

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.workers.iter().filter_map(|worker| worker.process.as_ref())
    }

    pub(super) fn reap(&mut self, place: usize) {
        if let Some(mut process) = self.workers[place].process.take() {
            let status = process.child.wait();
            if !status.as_ref().is_ok_and(ExitStatus::success) {
                warn!("worker {place} did not stop in good order: {}", describe(&status));
            }
        }
    }

    /// Kills the workers that are left. Returns how many connections that has cut.
    pub(super) fn kill(&mut self) -> u64 {
        let mut open = 0;
        for (place, worker) in self.workers.iter_mut().enumerate() {
            if let Some(process) = worker.process.take() {
                process.kill();
                open += self.counter_table.close_all(place);
            }
        }
        open
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
    use super::*;

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
