//! Threads that open files, so that no worker waits for a disk.
//!
//! Looking up a name and reading a file's attributes can wait for a disk, as reading its bytes can.
//! openat2(2) can refuse to wait (`RESOLVE_CACHED`, see [`Root::try_open_cached`]), but the kernel has no
//! open that is asynchronous and needs no thread.
//!
//! All workers of a process share one [`OpenPool`]. A worker gives it a name, and takes the open file
//! from its own [`OpenResults`]. A result carries the root and the name that were opened, so a worker
//! need not remember which question a result answers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::files::root::{OpenFile, OpenOptions, Root};
use crate::key::Key;
use crate::net::Remote;
use crate::thread_pool::lock;
use drover_sys::process;

/// A thread that has been busy with one job for so long counts as hung: its disk or its network file
/// system does not answer. Another thread then works in its place.
const HUNG_AFTER: Duration = Duration::from_secs(1);

/// How many threads may be started beyond [`OpenPool::threads`], to replace hung ones.
const HUNG_MOST: usize = 64;

/// How many bytes the queued jobs may take unless [`OpenPool::with_queue`] says otherwise. A job stays in the queue when the
/// client that wanted its file has gone. Without a bound, clients that ask and leave could fill the memory while a disk hangs.
const QUEUED_BYTES_MOST: usize = 64 << 20;

/// What a queued job takes beside the bytes of its name: itself, and what the allocator adds.
const JOB_COST: usize = size_of::<Job>() + 32;

/// The threads of a process that open files. Jobs begin in the order in which they were given.
pub struct OpenPool {
    threads: usize,
    /// How many bytes the queued jobs may take.
    queued_most: usize,
    /// The queue, and behind it the threads; made for the first job.
    shared: OnceLock<Arc<Shared>>,
}

/// The result of a job.
#[derive(Debug)]
pub enum Opened {
    /// The result of [`OpenPool::open`].
    File {
        /// The root beneath which the file was opened.
        root: Arc<Root>,
        /// The file's name, relative to the root.
        name: Box<[u8]>,
        /// The result of [`Root::open_as`].
        result: io::Result<OpenFile>,
    },
    /// The result of [`OpenPool::look_at_root`].
    Root {
        /// The root whose path was looked at.
        before: Arc<Root>,
        /// The result of [`Root::replaced`].
        now: io::Result<Option<Root>>,
    },
}

/// The results for one worker that it has not taken yet. The pool's threads put them here and resume the
/// worker's coroutine that takes them.
pub struct OpenResults {
    opened: Mutex<Vec<Opened>>,
    remote: Remote,
    key: Key,
}

struct Job {
    root: Arc<Root>,
    /// The file to open; `None`: look where the root's own path leads.
    name: Option<Box<[u8]>>,
    options: OpenOptions,
    results: Arc<OpenResults>,
}

struct Shared {
    /// How many jobs may be under way at the same time, hung ones not counted.
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: VecDeque<Job>,
    queued_bytes: usize,
    /// For each thread, when its job began; `None`: it waits for one.
    began: Vec<Option<Instant>>,
    closed: bool,
}

impl std::fmt::Debug for OpenResults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenResults").field("key", &self.key).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for OpenPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl OpenPool {
    /// A pool in which `threads` jobs (at least one) are under way at the same time. A hung thread is
    /// replaced.
    #[must_use]
    pub fn new(threads: usize) -> OpenPool {
        OpenPool { threads, queued_most: QUEUED_BYTES_MOST, shared: OnceLock::new() }
    }

    /// The pool with a queue of `bytes` bytes.
    #[must_use]
    pub fn with_queue(mut self, bytes: usize) -> OpenPool {
        self.queued_most = bytes;
        self
    }

    /// How many jobs are under way at the same time, hung ones not counted.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Starts the first thread. Without this call the first job starts it. A server calls this before it
    /// accepts connections, so that it fails at the start where no thread can be started.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub fn start(&self) -> io::Result<()> {
        self.shared().map(drop)
    }

    /// Opens `name` beneath `root` on one of the threads ([`Root::open_as`]). The result goes to
    /// `results`.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue is full.
    pub fn open(
        &self,
        root: &Arc<Root>,
        name: &[u8],
        options: OpenOptions,
        results: &Arc<OpenResults>,
    ) -> io::Result<()> {
        self.push(root, Some(name.into()), options, results)
    }

    /// Looks on one of the threads whether the root's path leads to another directory by now
    /// ([`Root::replaced`]). The result goes to `results`.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub fn look_at_root(&self, root: &Arc<Root>, results: &Arc<OpenResults>) -> io::Result<()> {
        self.push(root, None, OpenOptions::default(), results)
    }

    fn push(
        &self,
        root: &Arc<Root>,
        name: Option<Box<[u8]>>,
        options: OpenOptions,
        results: &Arc<OpenResults>,
    ) -> io::Result<()> {
        let shared = self.shared()?;
        let job = Job { root: Arc::clone(root), name, options, results: Arc::clone(results) };
        let mut state = lock(&shared.state);
        if state.queued_bytes + job.cost() > self.queued_most {
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
        // If another worker was faster, its pool is used, and the thread of this one ends.
        if let Err(late) = self.shared.set(shared) {
            late.close();
        }
        Ok(self.shared.get().expect("it was just set"))
    }
}

impl Drop for OpenPool {
    /// Tells the threads to end after their jobs, and does not wait for that: a hung thread must not
    /// keep the process from ending.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            shared.close();
        }
    }
}

impl OpenResults {
    /// Results for the worker that `remote` reaches. Its coroutine `key` takes them.
    #[must_use]
    pub fn new(remote: Remote, key: Key) -> Arc<OpenResults> {
        Arc::new(OpenResults { opened: Mutex::new(Vec::new()), remote, key })
    }

    /// Whether there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        lock(&self.opened).is_empty()
    }

    /// Takes all results that have come since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Opened> {
        std::mem::take(&mut lock(&self.opened))
    }

    fn post(&self, opened: Opened) {
        let mut waiting = lock(&self.opened);
        waiting.push(opened);
        if waiting.len() == 1 {
            // A worker takes all results at once, so only the first needs a wake. `wake` fails only when
            // the worker has ended.
            let _ = self.remote.wake(self.key);
        }
    }
}

impl Job {
    fn cost(&self) -> usize {
        JOB_COST + self.name.as_ref().map_or(0, |name| name.len())
    }

    fn run(self) {
        let Job { root, name, options, results } = self;
        match name {
            Some(name) => {
                let result = root.open_as(&name, options);
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

    /// Waits for the next job of thread `number`. Returns it, and whether all threads are busy now;
    /// `None`: the pool was dropped.
    fn take(&self, number: usize) -> Option<(Job, bool)> {
        let mut state = lock(&self.state);
        state.began[number] = None;
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let wait_until = state.may_begin_at(now, self.threads);
            if wait_until.is_none()
                && let Some(job) = state.queue.pop_front()
            {
                state.queued_bytes -= job.cost();
                state.began[number] = Some(now);
                return Some((job, state.began.iter().all(Option::is_some)));
            }
            state = match wait_until {
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
    /// When another job may begin; `None`: now. If `threads` jobs are under way, one of them has to end,
    /// or to count as hung, first: the result is when the oldest will count as hung.
    fn may_begin_at(&self, now: Instant, threads: usize) -> Option<Instant> {
        let hung_at = self.began.iter().flatten().map(|&began| began + HUNG_AFTER);
        let under_way = hung_at.filter(|&hung_at| now < hung_at);
        if under_way.clone().count() < threads { None } else { under_way.min() }
    }
}

/// Starts a thread. Its `number` is its index in [`State::began`].
fn start_thread(shared: Arc<Shared>, number: usize) -> io::Result<()> {
    let work = move || {
        while let Some((job, all_busy)) = shared.take(number) {
            if all_busy {
                add_thread(&shared);
            }
            job.run();
        }
    };
    process::start_thread(format!("opener {number}"), work).map(drop)
}

/// Starts one more thread, unless there are [`HUNG_MOST`] spare ones already. Whenever all threads are
/// busy a spare one is started, which can work when one of them hangs. Where it cannot be started, the
/// next thread that takes a job while all others are busy tries again.
fn add_thread(shared: &Arc<Shared>) {
    let mut state = lock(&shared.state);
    let number = state.began.len();
    if number <= shared.threads + HUNG_MOST && start_thread(Arc::clone(shared), number).is_ok() {
        // The new thread first takes the lock that this function holds, so the thread finds its index in
        // `began`.
        state.began.push(None);
    }
}
