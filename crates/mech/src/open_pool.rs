//! Opens files on other threads than the worker's: looking a name up and asking for attributes can wait
//! for a disk just as reading can, and no system call of a static server does it without waiting.
//!
//! A worker gives a name to the [`OpenPool`] of its process, and finds it again, with the file, in its
//! own [`OpenResults`]: a result carries the name and the root that it was opened for, so that nobody
//! has to remember which question it answers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::fs::{How, OpenFile, Root};
use crate::key::Key;
use crate::net::Remote;
use crate::pool::lock;
use crate::process;

/// A thread that has waited so long for one file no longer counts among the [`OpenPool::threads`]: its
/// disk or its network file system hangs, and another thread takes its place.
const HUNG_AFTER: Duration = Duration::from_secs(1);

/// No more threads are started when so many hang.
const HUNG_MOST: usize = 64;

/// How many bytes of names may wait for a thread. Connections that are gone leave their names behind,
/// so that without a bound whoever asks and leaves could fill the memory while a disk hangs.
const QUEUED_BYTES_MOST: usize = 64 << 20;

/// What a name in the queue takes beside its bytes.
const JOB_COST: usize = size_of::<Job>() + 32;

/// The threads of a process that open files, in the order in which they were asked for.
pub struct OpenPool {
    threads: usize,
    /// Made when the threads are first needed.
    shared: OnceLock<Arc<Shared>>,
}

/// What was opened, or looked at, for a worker.
#[derive(Debug)]
pub enum Opened {
    /// A file.
    File {
        /// The root that it was to be opened beneath.
        root: Arc<Root>,
        /// Its name, relative to the root.
        name: Box<[u8]>,
        /// As [`Root::open_as`] says.
        result: io::Result<OpenFile>,
    },
    /// The directory that a root's path leads to.
    Root {
        /// The root that was asked about.
        before: Arc<Root>,
        /// As [`Root::replaced`] says.
        now: io::Result<Option<Root>>,
    },
}

/// What was opened for one worker and not taken yet. Opening threads put it here, and resume the
/// worker's coroutine that takes it.
pub struct OpenResults {
    opened: Mutex<Vec<Opened>>,
    remote: Remote,
    key: Key,
}

struct Job {
    root: Arc<Root>,
    /// `None`: look where the root's own path leads.
    name: Option<Box<[u8]>>,
    how: How,
    results: Arc<OpenResults>,
}

struct Shared {
    /// How many threads open files at the same time, unless some hang.
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: VecDeque<Job>,
    queued_bytes: usize,
    /// When each thread began its job; `None`: it has none.
    began: Vec<Option<Instant>>,
    closed: bool,
}

impl std::fmt::Debug for OpenPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl OpenPool {
    /// `threads` threads (at least one), and one more for each that hangs.
    #[must_use]
    pub fn new(threads: usize) -> OpenPool {
        OpenPool { threads, shared: OnceLock::new() }
    }

    /// How many files are opened at the same time.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Starts a first thread, which otherwise happens at the first file: where none can be started,
    /// this tells it before anybody waits for a file.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub fn start(&self) -> io::Result<()> {
        self.shared().map(drop)
    }

    /// Has `name` opened beneath `root` ([`Root::open_as`]), for `results`.
    ///
    /// # Errors
    /// `EAGAIN` when no thread can be started, or too many names wait already.
    pub fn open(
        &self,
        root: &Arc<Root>,
        name: &[u8],
        how: How,
        results: &Arc<OpenResults>,
    ) -> io::Result<()> {
        self.push(root, Some(name.into()), how, results)
    }

    /// Has a thread look whether the root's path leads to another directory by now
    /// ([`Root::replaced`]), for `results`.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub fn look_at_root(&self, root: &Arc<Root>, results: &Arc<OpenResults>) -> io::Result<()> {
        self.push(root, None, How::default(), results)
    }

    fn push(
        &self,
        root: &Arc<Root>,
        name: Option<Box<[u8]>>,
        how: How,
        results: &Arc<OpenResults>,
    ) -> io::Result<()> {
        let shared = self.shared()?;
        let job = Job { root: Arc::clone(root), name, how, results: Arc::clone(results) };
        let mut state = lock(&shared.state);
        if state.queued_bytes + job.cost() > QUEUED_BYTES_MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.queued_bytes += job.cost();
        state.queue.push_back(job);
        drop(state);
        shared.changed.notify_one();
        Ok(())
    }

    fn shared(&self) -> io::Result<&Arc<Shared>> {
        if let Some(shared) = self.shared.get() {
            return Ok(shared);
        }
        let state =
            State { queue: VecDeque::new(), queued_bytes: 0, began: vec![None], closed: false };
        let (threads, state) = (self.threads.max(1), Mutex::new(state));
        let shared = Arc::new(Shared { threads, state, changed: Condvar::new() });
        start_thread(Arc::clone(&shared), 0)?;
        // If another worker was faster, this thread ends at once, having nothing to do.
        if let Err(late) = self.shared.set(shared) {
            late.close();
        }
        Ok(self.shared.get().expect("it was just set"))
    }
}

impl Drop for OpenPool {
    /// The threads end after the files that they are opening, which nobody waits for: one that hangs
    /// must not keep the process.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            shared.close();
        }
    }
}

impl OpenResults {
    /// For the worker of `remote`, whose coroutine `key` takes the results.
    #[must_use]
    pub fn new(remote: Remote, key: Key) -> Arc<OpenResults> {
        Arc::new(OpenResults { opened: Mutex::new(Vec::new()), remote, key })
    }

    /// Whether there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        lock(&self.opened).is_empty()
    }

    /// What was opened since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Opened> {
        std::mem::take(&mut lock(&self.opened))
    }

    fn post(&self, opened: Opened) {
        let mut waiting = lock(&self.opened);
        waiting.push(opened);
        if waiting.len() == 1 {
            // It fails only when the worker has ended.
            let _ = self.remote.wake(self.key);
        }
    }
}

impl Job {
    fn cost(&self) -> usize {
        JOB_COST + self.name.as_ref().map_or(0, |name| name.len())
    }

    fn run(self) {
        let Job { root, name, how, results } = self;
        match name {
            Some(name) => {
                let result = root.open_as(&name, how);
                results.post(Opened::File { root, name, result });
            }
            None => {
                let now = root.replaced();
                results.post(Opened::Root { before: root, now });
            }
        }
    }
}

impl Shared {
    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// The next job of thread `number`, and whether no other thread is left without one; `None`: the
    /// pool is gone.
    fn take(&self, number: usize) -> Option<(Job, bool)> {
        let mut state = lock(&self.state);
        state.began[number] = None;
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let free = state.free_from(now, self.threads);
            if free.is_none()
                && let Some(job) = state.queue.pop_front()
            {
                state.queued_bytes -= job.cost();
                state.began[number] = Some(now);
                return Some((job, state.began.iter().all(Option::is_some)));
            }
            state = match free {
                Some(until) if !state.queue.is_empty() => {
                    let waited = self.changed.wait_timeout(state, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl State {
    /// From when on another job may begin beside those that are under way, of which `threads` may run
    /// without hanging; `None`: now.
    fn free_from(&self, now: Instant, threads: usize) -> Option<Instant> {
        let hung_at = self.began.iter().flatten().map(|&began| began + HUNG_AFTER);
        let at_work = hung_at.filter(|&hung_at| now < hung_at);
        if at_work.clone().count() < threads { None } else { at_work.min() }
    }
}

/// Starts thread `number`, whose place in [`State::began`] its first job is noted in.
fn start_thread(shared: Arc<Shared>, number: usize) -> io::Result<()> {
    let work = move || {
        while let Some((job, last)) = shared.take(number) {
            if last {
                add_thread(&shared);
            }
            job.run();
        }
    };
    process::start_thread(format!("opener {number}"), work).map(drop)
}

/// Starts one more thread, unless there are enough: only a thread to spare can take the place of one
/// that hangs. Where none can be started, the last of those that there are tries again.
fn add_thread(shared: &Arc<Shared>) {
    let mut state = lock(&shared.state);
    let number = state.began.len();
    if number <= shared.threads + HUNG_MOST && start_thread(Arc::clone(shared), number).is_ok() {
        // The new thread waits for the lock before it looks for its place.
        state.began.push(None);
    }
}
