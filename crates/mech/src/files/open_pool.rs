//! Threads that ask file systems and close files, so that no worker waits for a disk (`served.rs` has the rule).
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
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::files::root::{ExpectedName, OpenOptions, Root};
use crate::files::served::{CloseQueue, Closer};
use crate::thread_pool::lock;
use drover_sys::process;

mod job;

use job::{FileQuery, PoolJob, QuerySubject};
pub use job::{OpenResults, Opened};

/// A thread that has been busy with one job for so long counts as hung: its disk or its network file
/// system does not answer. Another thread then works in its place.
const HUNG_AFTER: Duration = Duration::from_secs(1);

/// How many threads may be started beyond [`OpenPool::threads`], to replace hung ones.
const HUNG_MOST: usize = 64;

/// How many bytes the queued questions may take unless [`OpenPool::with_queue`] says otherwise. A question stays in the queue
/// when the client that wanted its file has gone. Without a bound, clients that ask and leave could fill the memory while a disk
/// hangs.
const QUEUED_BYTES_MOST: usize = 64 << 20;

/// What a queued job takes beside the bytes of its names: itself, and what the allocator adds.
const JOB_COST: usize = size_of::<PoolJob>() + 32;

/// The threads of a process that open files. Questions begin in the order in which they were asked. Files are closed
/// first: an opening may need their descriptors.
pub struct OpenPool {
    threads: usize,
    /// How many bytes the queued jobs may take.
    queued_most: usize,
    /// The queue, and behind it the threads; made for the first job.
    shared: OnceLock<Arc<Shared>>,
}

struct Shared {
    /// How many jobs may be under way at the same time, hung ones not counted.
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: VecDeque<PoolJob>,
    queued_bytes: usize,
    /// How many descriptors are to be closed, or being closed; and when the last was closed, or the first came.
    closing: usize,
    closed_at: Instant,
    /// How many descriptors have been closed.
    closed_files: u64,
    /// For each thread, when its job began; `None`: it waits for one.
    began: Vec<Option<Instant>>,
    closed: bool,
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

    /// Starts as many threads as there are while none hangs, the spare one included. Without this call jobs start them. A server
    /// calls this before it accepts connections, so that it fails at the start where no thread can be started. Later, a
    /// thread that begins when there is no memory ends the process: the standard library and glibc want some for it.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub fn start(&self) -> io::Result<()> {
        let shared = self.shared()?;
        let mut state = lock(&shared.state);
        while state.began.len() <= shared.threads {
            add_thread(shared, &mut state)?;
        }
        Ok(())
    }

    /// From now on, has what is opened beneath `root` closed by the threads, and in the end `root` itself.
    ///
    /// # Errors
    /// `EAGAIN` when no thread can be started.
    pub fn look_after(&self, root: &Root) -> io::Result<()> {
        root.close_by(Closer(Arc::clone(self.shared()?) as Arc<dyn CloseQueue>));
        Ok(())
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
        self.ask(root, QuerySubject::File(name.into(), options), results)
    }

    /// Looks on one of the threads whether `names` lead to what they led to ([`Root::still_has`]). The result, in
    /// which they are called `key`, goes to `results`.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub fn check(
        &self,
        root: &Arc<Root>,
        key: &[u8],
        names: Vec<ExpectedName>,
        results: &Arc<OpenResults>,
    ) -> io::Result<()> {
        self.ask(root, QuerySubject::Names(key.into(), names), results)
    }

    /// Looks on one of the threads whether the root's path leads to another directory by now
    /// ([`Root::replaced`]). The result goes to `results`.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub fn look_at_root(&self, root: &Arc<Root>, results: &Arc<OpenResults>) -> io::Result<()> {
        self.ask(root, QuerySubject::RootPath, results)
    }

    /// Whether the process has more descriptors than when it ran out of them, or will have soon: files have been closed since
    /// the last call with `seen`, or are being closed. `false` also while the file systems of those files do not answer.
    #[must_use]
    pub fn frees_descriptors(&self, seen: &mut u64) -> bool {
        self.shared.get().is_some_and(|shared| {
            let state = lock(&shared.state);
            let closes = state.closing > 0 && state.closed_at.elapsed() < HUNG_AFTER;
            std::mem::replace(seen, state.closed_files) != state.closed_files || closes
        })
    }

    fn ask(
        &self,
        root: &Arc<Root>,
        subject: QuerySubject,
        results: &Arc<OpenResults>,
    ) -> io::Result<()> {
        let (root, results) = (Arc::clone(root), Arc::clone(results));
        self.queue(PoolJob::Look(FileQuery { root, subject, results }))
    }

    /// Does `work` on one of the threads, which may wait for file systems there. While it waits in the queue, it counts `bytes`
    /// bytes there.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub fn run(&self, bytes: usize, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.queue(PoolJob::Run(Box::new(work), bytes))
    }

    fn queue(&self, job: PoolJob) -> io::Result<()> {
        let shared = self.shared()?;
        let mut state = lock(&shared.state);
        if state.queued_bytes + cost(&job) > self.queued_most {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.queued_bytes += cost(&job);
        state.queue.push_back(job);
        drop(state);
        shared.changed.notify_one();
        Ok(())
    }

    fn shared(&self) -> io::Result<&Arc<Shared>> {
        if let Some(shared) = self.shared.get() {
            return Ok(shared);
        }
        let state = State {
            queue: VecDeque::new(),
            queued_bytes: 0,
            closing: 0,
            closed_at: Instant::now(),
            closed_files: 0,
            began: Vec::new(),
            closed: false,
        };
        let (threads, state) = (self.threads.max(1), Mutex::new(state));
        let shared = Arc::new(Shared { threads, state, changed: Condvar::new() });
        add_thread(&shared, &mut lock(&shared.state))?;
        // If another worker was faster, its pool is used, and the thread of this one ends.
        if let Err(late) = self.shared.set(shared) {
            late.close_pool();
        }
        Ok(self.shared.get().expect("it was just set"))
    }
}

impl Drop for OpenPool {
    /// Tells the threads to end after their jobs, and does not wait for that: a hung thread must not
    /// keep the process from ending.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            shared.close_pool();
        }
    }
}

/// What a job takes in the queue, in bytes.
fn cost(job: &PoolJob) -> usize {
    JOB_COST + job.bytes()
}

impl CloseQueue for Shared {
    /// Queues the descriptor, in front of all questions. There is no bound but that of open files. A pool that was dropped
    /// has no threads left: then `file` is closed here.
    fn close(&self, file: OwnedFd) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return drop(file);
        }
        if state.closing == 0 {
            state.closed_at = Instant::now();
        }
        state.closing += 1;
        let job = PoolJob::Close(file);
        state.queued_bytes += cost(&job);
        state.queue.push_front(job);
        drop(state);
        self.changed.notify_one();
    }
}

impl Shared {
    fn close_pool(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    fn is_closing(&self) -> bool {
        lock(&self.state).closing > 0
    }

    fn has_closed_one(&self) {
        let mut state = lock(&self.state);
        state.closing -= 1;
        state.closed_files += 1;
        state.closed_at = Instant::now();
    }

    /// Waits for the next job of thread `number`. Returns it, and whether all threads are busy now;
    /// `None`: the pool was dropped.
    fn take(&self, number: usize) -> Option<(PoolJob, bool)> {
        let mut state = lock(&self.state);
        state.began[number] = None;
        loop {
            if state.closed {
                // What is left is dropped here: a root in the queue may be the last to know these threads.
                let left = std::mem::take(&mut state.queue);
                drop(state);
                drop(left);
                return None;
            }
            let now = Instant::now();
            let wait_until = state.may_begin_at(now, self.threads);
            if wait_until.is_none()
                && let Some(job) = state.queue.pop_front()
            {
                state.queued_bytes -= cost(&job);
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
                add_spare_thread(&shared);
            }
            let closes = job.is_close();
            job.run(|| shared.is_closing());
            if closes {
                shared.has_closed_one();
            }
        }
    };
    process::start_thread(format!("opener {number}"), work).map(drop)
}

/// Starts one more thread, unless there are [`HUNG_MOST`] spare ones already. Whenever all threads are
/// busy a spare one is started, which can work when one of them hangs. Where it cannot be started, the
/// next thread that takes a job while all others are busy tries again.
fn add_spare_thread(shared: &Arc<Shared>) {
    let mut state = lock(&shared.state);
    if state.began.len() <= shared.threads + HUNG_MOST {
        let _later = add_thread(shared, &mut state);
    }
}

/// Starts one more thread. It first takes the lock that the caller holds, so the thread finds its index in `began`.
fn add_thread(shared: &Arc<Shared>, state: &mut State) -> io::Result<()> {
    start_thread(Arc::clone(shared), state.began.len())?;
    state.began.push(None);
    Ok(())
}
