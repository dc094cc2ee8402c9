//! The worker processes of one configuration, each in a place that is filled again when its process dies.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use drover_mech::accept::{Acceptor, Among, ListenerHandle};
use drover_sys::process::{self, ChildChange};
use tracing::{error, info, warn};

use super::child::{ChildEvent, ChildProcess, describe};
use super::heartbeat::HANGS_AFTER;
use super::messages::{FromWorker, ToWorker};
use super::process::{Inheritance, Inherited, InheritedListeners, passed_on};
use crate::acme::FromKeeper;
use crate::admin::process::{FromAdmin, WorkerProcessFacts};
use crate::config::Config;
use crate::output_files::{OutputFiles, UnreadPipe, open_log};
use crate::status::statistics::CounterTable;
use crate::succession::hand_over::HandOverStep;

/// A process that lives at least this long has not died at once.
const LONG: Duration = Duration::from_secs(1);

/// The pause before the second replacement of a process that dies at once; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// After how many pings without an answer a process hangs: a single one may find one that was never given the
/// processor.
const UNANSWERED_MOST: u32 = 2;

/// How connections come to the workers of a configuration.
#[derive(Debug)]
pub(super) enum CrewListeners {
    /// All workers are threads of one process, which share these sockets out among themselves.
    Sockets(Vec<Arc<OwnedFd>>),
    /// Each worker is a process: its listener handles, by address.
    Handles(Vec<Vec<ListenerHandle>>),
}

impl CrewListeners {
    pub(super) fn among(&self) -> Among {
        match self {
            CrewListeners::Sockets(_) => Among::Threads,
            CrewListeners::Handles(_) => Among::Processes,
        }
    }

    /// What a process inherits of them, and the descriptors that must be passed on for that.
    fn of(&self, place: usize) -> (InheritedListeners, Vec<BorrowedFd<'_>>) {
        match self {
            CrewListeners::Sockets(sockets) => {
                let numbers = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
                let descriptors = sockets.iter().map(|socket| socket.as_fd()).collect();
                (InheritedListeners::Sockets(numbers), descriptors)
            }
            CrewListeners::Handles(all) => {
                let handles = all.get(place).map_or(&[][..], Vec::as_slice);
                let numbers = |handle: &ListenerHandle| {
                    let numbers = handle.descriptors().map(|descriptor| descriptor.as_raw_fd());
                    (handle.address(), numbers.collect())
                };
                let descriptors = handles.iter().flat_map(ListenerHandle::descriptors).collect();
                (InheritedListeners::Handles(handles.iter().map(numbers).collect()), descriptors)
            }
        }
    }

    /// Closes the descriptors.
    fn close(&mut self) {
        match self {
            CrewListeners::Sockets(sockets) => sockets.clear(),
            CrewListeners::Handles(handles) => handles.clear(),
        }
    }
}

/// The worker processes of one configuration.
#[derive(Debug)]
pub(super) struct ProcessCrew {
    pub(super) config: Arc<Config>,
    /// The number of these workers among those of other configurations.
    number: usize,
    /// What processes are started with.
    pub(super) arguments: Vec<OsString>,
    pub(super) listeners: CrewListeners,
    /// Whether the workers have been told to accept no more connections.
    has_retired: bool,
    pub(super) acceptors: Vec<Acceptor>,
    slots: Vec<WorkerSlot>,
    pub(super) counter_table: CounterTable,
    /// What the workers write.
    pub(super) files: OutputFiles,
    sender: Sender<Message>,
}

/// A place, with the process that fills it.
#[derive(Debug)]
struct WorkerSlot {
    /// The numbers of its workers.
    workers: Range<usize>,
    process: Option<WorkerProcess>,
    /// How many processes here have died at once, one after the other.
    short_lives: u32,
    /// When the place is to be filled again.
    due: Option<Instant>,
}

#[derive(Debug)]
struct WorkerProcess {
    process: ChildProcess,
    /// What is in force of its sandbox, in words; `None`: it does not accept connections yet.
    ready: Option<String>,
    /// Whether it accepts no more connections.
    left: bool,
    /// Whether its workers have ended. The process may still wait for a disk that one of its threads has asked.
    done: bool,
    /// How many pings it has not answered.
    unanswered: u32,
    /// The reason that a process that failed has given.
    reason: Option<String>,
}

/// What the supervisor hears.
pub(super) enum Message {
    /// What a process does, with the number of its crew and its place there.
    Worker(usize, usize, ChildEvent<FromWorker>),
    /// What the process of `--admin` does, with its number.
    Admin(u32, ChildEvent<FromAdmin>),
    /// The supervisor is to stop.
    Signal,
    /// One of the processes may have been stopped, or goes on.
    Changed,
    /// The access log is to be opened again, and the configuration to be reloaded.
    Reload,
    /// Another server takes over.
    HandOver(HandOverStep),
    /// What the thread that gets certificates has.
    Acme(FromKeeper),
}

impl ProcessCrew {
    /// Places without processes. `arguments` are those of this program that make a server of `config`.
    pub(super) fn new(
        config: Arc<Config>,
        number: usize,
        arguments: Vec<OsString>,
        (listeners, acceptors): (CrewListeners, Vec<Acceptor>),
        (files, sender): (OutputFiles, Sender<Message>),
    ) -> anyhow::Result<ProcessCrew> {
        let workers = config.workers.get();
        let counter_table = CounterTable::new(workers).context("cannot make the counters")?;
        let place = |workers| WorkerSlot { workers, process: None, short_lives: 0, due: None };
        let slots = match listeners.among() {
            Among::Threads => vec![place(0..workers)],
            Among::Processes => (0..workers).map(|worker| place(worker..worker + 1)).collect(),
        };
        Ok(ProcessCrew {
            config,
            number,
            arguments,
            listeners,
            has_retired: false,
            acceptors,
            slots,
            counter_table,
            files,
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
        for place in 0..self.slots.len() {
            self.fill(place).map_err(|error| cannot_start(&self.slots[place].workers, &error))?;
        }
        Ok(())
    }

    /// Whether the workers have been told to accept no more connections.
    pub(super) fn has_retired(&self) -> bool {
        self.has_retired
    }

    pub(super) fn is_ready(&self) -> bool {
        self.processes().all(|process| process.ready.is_some())
    }

    /// What is in force of the sandbox of a worker that accepts connections, in words.
    pub(super) fn sandbox(&self) -> Option<&str> {
        self.processes().find_map(|process| process.ready.as_deref())
    }

    /// Whether no worker accepts connections any more.
    pub(super) fn has_left(&self) -> bool {
        self.processes().all(|process| process.left)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.processes().next().is_none()
    }

    /// Whether no worker is left, be there processes or not.
    pub(super) fn is_done(&self) -> bool {
        self.processes().all(|process| process.done)
    }

    /// What the process of `--admin` is told of the processes.
    pub(super) fn facts(&self) -> impl Iterator<Item = WorkerProcessFacts> {
        self.slots.iter().filter_map(|place| {
            let pid = place.process.as_ref()?.process.child.id();
            let open_descriptors = process::open_descriptors(pid);
            Some(WorkerProcessFacts { first: place.workers.start, pid, open_descriptors })
        })
    }

    /// Whether a process does not answer.
    pub(super) fn hangs(&self) -> bool {
        self.processes().any(|process| process.unanswered >= UNANSWERED_MOST)
    }

    /// When a place is to be filled again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|place| place.due).min()
    }

    /// Hears what a process does that serves.
    pub(super) fn hear(&mut self, place: usize, heard: ChildEvent<FromWorker>) {
        match heard {
            ChildEvent::Ended if self.has_retired => self.reap(place),
            ChildEvent::Ended => self.replace(place),
            ChildEvent::Garbage => self.process_at(place, |process| {
                process.reason = Some("it sent its supervisor something that is no message".into());
                // It fails for a process that has ended.
                let _ = process.process.child.kill();
            }),
            ChildEvent::Message(message) => self.hear_message(place, message),
        }
    }

    fn hear_message(&mut self, place: usize, message: FromWorker) {
        match message {
            FromWorker::Alive => self.process_at(place, |process| process.unanswered = 0),
            FromWorker::Ready { sandbox } => {
                self.process_at(place, |process| process.ready = Some(sandbox));
            }
            FromWorker::Left => self.process_at(place, |process| process.left = true),
            FromWorker::Failed(reason) => {
                self.process_at(place, |process| process.reason = Some(reason));
            }
            FromWorker::Hangs(worker) => self.process_at(place, |process| {
                let pid = process.process.child.id();
                warn!(
                    "worker {worker} (pid {pid}) hangs: its event loop has not turned for {HANGS_AFTER:?}, \
                     and its connections wait"
                );
            }),
            FromWorker::GoesOn(worker) => self.process_at(place, |process| {
                info!("worker {worker} (pid {}) is responsive again", process.process.child.id());
            }),
            FromWorker::Done => self.process_at(place, |process| process.done = true),
            // The supervisor does that.
            FromWorker::RootReplaced => {}
        }
    }

    fn process_at(&mut self, place: usize, change: impl FnOnce(&mut WorkerProcess)) {
        self.slots[place].process.as_mut().map(change);
    }

    /// Has the workers leave new connections to others. To be called when the acceptors are done.
    pub(super) fn retire(&mut self) {
        for process in self.processes() {
            // It fails for a process that has ended.
            let _ = process.process.tell(&ToWorker::Retire, &[]);
        }
        self.forget_places();
    }

    /// Has the workers stop. To be called when the acceptors are done.
    pub(super) fn stop(&mut self) {
        // Closed here first, so that each is closed for good when its last worker has taken what waits in it.
        self.forget_places();
        self.processes().for_each(|process| process.process.stop());
    }

    /// No place is filled again.
    fn forget_places(&mut self) {
        self.has_retired = true;
        self.listeners.close();
        self.slots.iter_mut().for_each(|place| place.due = None);
    }

    /// Opens the access log again, for these processes and those to come. Returns whether there is one.
    pub(super) fn reopen_log(&mut self) -> bool {
        match open_log(&self.config, UnreadPipe::Fail) {
            Ok(None) => return false,
            Ok(file) => self.files.log = file,
            Err(error) => {
                error!("cannot reopen the log: {error:#}; still writing to the old file");
                return true;
            }
        }
        let file = self.files.log.as_ref().map(AsFd::as_fd);
        for process in self.processes() {
            // It fails for a process that has ended, or is stopped and has read nothing for long.
            let _ = process.process.tell(&ToWorker::ChangeLog, file.as_slice());
        }
        true
    }

    /// Pings the processes that accept connections, for a service manager that wants to know.
    pub(super) fn ping(&mut self) {
        let processes = self.slots.iter_mut().filter_map(|place| place.process.as_mut());
        for process in processes.filter(|process| process.ready.is_some()) {
            process.unanswered = process.unanswered.saturating_add(1);
            // There is room for a few messages. It fails for a process that has ended.
            if process.unanswered <= UNANSWERED_MOST {
                let _ = process.process.tell(&ToWorker::Ping, &[]);
            }
        }
    }

    pub(super) fn tell_changes(&self) {
        for place in &self.slots {
            let Some(process) = &place.process else { continue };
            let name = place.name(&process.process);
            match process::change_of(&process.process.child) {
                Ok(Some(ChildChange::Stopped)) => {
                    warn!("{name} was stopped: its connections wait until it gets a SIGCONT")
                }
                Ok(Some(ChildChange::GoesOn)) => info!("{name} goes on"),
                // The end of the process is another message.
                Ok(None) | Err(_) => {}
            }
        }
    }

    pub(super) fn fill_what_is_due(&mut self) {
        let now = Instant::now();
        for place in 0..self.slots.len() {
            if self.slots[place].due.is_some_and(|due| due <= now)
                && let Err(error) = self.fill(place)
            {
                let workers = described(&self.slots[place].workers);
                warn!("cannot start {workers}: {error}; trying again");
                self.pause(place);
            }
        }
    }

    /// The process of a place has ended: another one is to follow.
    fn replace(&mut self, place: usize) {
        let Some(mut process) = self.slots[place].process.take() else { return };
        let status = process.process.child.wait();
        self.after_death(place);
        let lost = match self.close_all(place) {
            0 => String::new(),
            1 => ", and 1 connection with it".to_owned(),
            lost => format!(", and {lost} connections with it"),
        };
        let reason = process.reason.unwrap_or_else(|| describe(&status));
        if process.process.started.elapsed() >= LONG {
            self.slots[place].short_lives = 0;
        }
        self.pause(place);
        let due = self.slots[place].due.map(|due| due.saturating_duration_since(Instant::now()));
        let when = match due {
            Some(pause) if !pause.is_zero() => format!("in {pause:.1?}"),
            _ => "now".to_string(),
        };
        let name = self.slots[place].name(&process.process);
        warn!("{name} has ended{lost}: {reason}; starting another {when}");
    }

    /// Counts the connections of a place as closed. Returns how many were open.
    fn close_all(&self, place: usize) -> u64 {
        let workers = self.slots[place].workers.clone();
        workers.map(|worker| self.counter_table.close_all(worker)).sum()
    }

    /// Why there is no server: the process of a place has ended without a word.
    pub(super) fn early_end(&mut self, place: usize) -> String {
        let workers = described(&self.slots[place].workers);
        let Some(mut process) = self.slots[place].process.take() else { return workers };
        // Waited for, so that nothing of it is left: process 1 of a container may wait for nobody.
        let status = process.process.child.wait();
        if let Some(reason) = process.reason {
            return reason;
        }
        format!("{workers} ended before accepting connections: {}", describe(&status))
    }

    /// Has the others told of what a process has left undone that is gone.
    fn after_death(&self, place: usize) {
        let CrewListeners::Handles(handles) = &self.listeners else { return };
        for handle in handles.get(place).into_iter().flatten() {
            if let Err(error) = handle.after_death() {
                warn!("the other workers hear late of the end of worker {place}: {error}");
            }
        }
    }

    /// Has the place filled: at once if its process has lived long.
    fn pause(&mut self, place: usize) {
        let place = &mut self.slots[place];
        let pause = match place.short_lives {
            0 => Duration::ZERO,
            times => LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.pow(times.min(10) - 1)),
        };
        place.short_lives += 1;
        place.due = Some(Instant::now() + pause);
    }

    fn fill(&mut self, place: usize) -> io::Result<()> {
        let workers = self.slots[place].workers.clone();
        let (listeners, listening) = self.listeners.of(place);
        let mut inheritance = Inheritance::of(&self.config, workers.start, listeners);
        let OutputFiles { log, trace, events } = &self.files;
        let number = |file: &Option<std::fs::File>| file.as_ref().map(AsRawFd::as_raw_fd);
        (inheritance.log, inheritance.trace) = (number(log), number(trace));
        inheritance.events = number(events);
        inheritance.counter_table = self.counter_table.file().as_raw_fd();
        let files = [log, trace, events].into_iter().flatten().map(AsFd::as_fd);
        let others = listening.into_iter().chain(files).chain([self.counter_table.file()]);
        let passed_on = passed_on(&self.config, others);
        let inherit = move |control| {
            inheritance.control = control;
            Inherited::Workers(inheritance).write()
        };
        let (sender, crew) = (self.sender.clone(), self.number);
        // A send fails when starting was given up.
        let hear = move |heard| drop(sender.send(Message::Worker(crew, place, heard)));
        let name = format!("of worker {}", workers.start);
        let process = ChildProcess::start(&self.arguments, inherit, &passed_on, (name, hear))?;
        let place = &mut self.slots[place];
        place.due = None;
        let (ready, reason) = (None, None);
        let (left, done, unanswered) = (false, false, 0);
        place.process = Some(WorkerProcess { process, ready, left, done, unanswered, reason });
        Ok(())
    }

    fn processes(&self) -> impl Iterator<Item = &WorkerProcess> {
        self.slots.iter().filter_map(|place| place.process.as_ref())
    }

    pub(super) fn reap(&mut self, place: usize) {
        if let Some(mut process) = self.slots[place].process.take() {
            let status = process.process.child.wait();
            if !status.as_ref().is_ok_and(ExitStatus::success) {
                let workers = described(&self.slots[place].workers);
                let reason = process.reason.unwrap_or_else(|| describe(&status));
                warn!("{workers} did not stop in good order: {reason}");
            }
        }
    }

    /// Waits for the processes, which are done, to end, but not for long.
    pub(super) fn reap_all(&mut self) {
        for place in 0..self.slots.len() {
            let process = self.slots[place].process.as_mut();
            if process.is_some_and(|process| process.process.ends_soon()) {
                self.reap(place);
            }
        }
    }

    /// Kills the processes that are left. Returns how many connections that has cut.
    pub(super) fn kill(&mut self) -> u64 {
        let mut open = 0;
        for place in 0..self.slots.len() {
            if let Some(process) = self.slots[place].process.take() {
                process.process.kill();
                open += self.close_all(place);
            }
        }
        open
    }
}

impl WorkerSlot {
    /// Its workers and their process, for the log.
    fn name(&self, process: &ChildProcess) -> String {
        format!("{} (pid {})", described(&self.workers), process.child.id())
    }
}

/// Workers, for messages.
fn described(workers: &Range<usize>) -> String {
    match workers.len() {
        1 => format!("worker {}", workers.start),
        _ => format!("the process of workers {} to {}", workers.start, workers.end - 1),
    }
}

fn cannot_start(workers: &Range<usize>, error: &io::Error) -> anyhow::Error {
    let workers = described(workers);
    anyhow!(
        "cannot start {workers}: {error}; raise 'ulimit -n' if that is about open \
         files, 'ulimit -u' if it is about processes, or use fewer --workers"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_started_names_cause_and_remedy() {
        let told = cannot_start(&(3..4), &io::Error::from_raw_os_error(libc::EMFILE)).to_string();
        for part in ["worker 3", "Too many open files", "'ulimit -n'", "--workers"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(described(&(0..2)), "the process of workers 0 to 1");
    }
}
