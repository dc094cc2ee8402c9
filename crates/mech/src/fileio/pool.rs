//! Threads that read files: one pool per process, for all its workers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::io::Errno;

use super::reads::{Ended, Read};
use super::results::{Results, lock};
use super::times::Span;

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
            let begun = read.timed.then(Instant::now);
            let result = do_read(read);
            let span = begun.map(|begun| Span { begun, ended: Instant::now() });
            results.push(Ended { id: read.id, result, span });
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
