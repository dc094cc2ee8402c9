//! Threads that read files: one pool per process, for all its workers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;

use super::reads::{Ended, Read};
use crate::waker::Waker;

/// Threads that take reads from one queue, in the order in which they came.
///
/// The queue is bounded by its users: each has a limited number of reads in it.
pub struct ReadPool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    not_empty: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    read: Read,
    results: Arc<Results>,
}

// SAFETY: a job's buffer and descriptor are its own until its result is known (`Reader::begin`).
unsafe impl Send for Job {}

/// Where the results of one user's reads arrive.
pub(super) struct Results {
    ended: Mutex<Vec<Ended>>,
    any: AtomicBool,
    arrived: Condvar,
    /// Ends the user's wait.
    waker: Arc<Waker>,
}

impl std::fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadPool").field("threads", &self.threads.len()).finish()
    }
}

impl ReadPool {
    /// Starts `threads` threads (at least one).
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many.
    pub fn start(threads: usize) -> io::Result<Arc<ReadPool>> {
        let mut pool = ReadPool { queue: Arc::default(), threads: Vec::new() };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&pool.queue);
            let thread = thread::Builder::new().name(format!("reader {number}"));
            pool.threads.push(thread.spawn(move || queue.work())?);
        }
        Ok(Arc::new(pool))
    }

    /// Has `read` done, and `results` told.
    pub(super) fn push(&self, read: Read, results: &Arc<Results>) {
        let job = Job { read, results: Arc::clone(results) };
        lock(&self.queue.state).jobs.push_back(job);
        self.queue.not_empty.notify_one();
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        lock(&self.queue.state).closed = true;
        self.queue.not_empty.notify_all();
        for thread in self.threads.drain(..) {
            // A reader that panicked has said so, and its pool ends all the same.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// A thread's life.
    fn work(&self) {
        while let Some(Job { read, results }) = self.take() {
            results.push(Ended { id: read.id, result: do_read(read) });
        }
    }

    fn take(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn do_read(read: Read) -> io::Result<usize> {
    // SAFETY: descriptor and buffer are this read's until its end is reported (`Reader::begin`).
    let (file, buffer) = unsafe {
        let file = BorrowedFd::borrow_raw(read.file);
        (file, std::slice::from_raw_parts_mut(read.buffer, read.len))
    };
    loop {
        match rustix::io::pread(file, &mut *buffer, read.offset) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

impl Results {
    pub(super) fn new(waker: Arc<Waker>) -> Arc<Results> {
        let (ended, any) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Results { ended, any, arrived: Condvar::new(), waker })
    }

    /// The user is woken once for all results that it has not taken yet.
    fn push(&self, ended: Ended) {
        let mut all = lock(&self.ended);
        all.push(ended);
        let first = all.len() == 1;
        self.any.store(true, Ordering::Release);
        drop(all);
        if first {
            self.arrived.notify_one();
            // It fails only when the worker's thread has ended, which then waits by `arrived`.
            let _ = self.waker.wake();
        }
    }

    pub(super) fn take(&self, into: &mut Vec<Ended>) {
        if self.any.swap(false, Ordering::AcqRel) {
            into.append(&mut lock(&self.ended));
        }
    }

    /// Waits until there is a result.
    pub(super) fn wait(&self) {
        let mut ended = lock(&self.ended);
        while ended.is_empty() {
            ended = self.arrived.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a panicking reader leaves behind is whole: every change is one push or pop.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
