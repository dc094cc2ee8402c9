//! The threads that read files: one pool per process, which all workers share.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::io::Errno;

use crate::fileio::FileIoCounts;
use crate::fileio::support::reads::{Ended, Read};
use crate::fileio::support::results::ReadResults;
use crate::fileio::support::times::Span;
use crate::thread_pool::ThreadPool;

/// Threads that take reads from one queue, first come, first served.
pub struct ReadPool(Arc<ThreadPool<Job>>);

struct Job {
    read: Read,
    results: Arc<ReadResults>,
    counts: Arc<FileIoCounts>,
}

// SAFETY: no other thread uses a job's buffer or closes its descriptor until the job's result is pushed
// (`Reader::begin`).
unsafe impl Send for Job {}

impl std::fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadPool").field("threads", &self.0.threads()).finish()
    }
}

impl ReadPool {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub fn start(threads: usize) -> io::Result<Arc<ReadPool>> {
        Ok(Arc::new(ReadPool(ThreadPool::start(threads, "reader", work)?)))
    }

    /// Queues `read`. The thread that reads puts the result into `results`.
    pub(crate) fn push(&self, read: Read, results: &Arc<ReadResults>, counts: &Arc<FileIoCounts>) {
        self.0.push(Job { read, results: Arc::clone(results), counts: Arc::clone(counts) });
    }
}

/// The reading threads of a process, which are started when they are first needed.
#[derive(Debug, Default)]
pub struct ReadThreads(OnceLock<Arc<ReadPool>>);

impl ReadThreads {
    /// The threads; the first call starts `threads` of them.
    pub(crate) fn pool(&self, threads: usize) -> io::Result<Arc<ReadPool>> {
        if let Some(pool) = self.0.get() {
            return Ok(Arc::clone(pool));
        }
        let started = ReadPool::start(threads)?;
        Ok(Arc::clone(self.0.get_or_init(|| started)))
    }
}

fn work(Job { read, results, counts }: Job) {
    let begun = read.timed.then(Instant::now);
    let result = do_read(read);
    let span = begun.map(|begun| Span { begun, ended: Instant::now() });
    read.advise_next(&counts);
    results.push(Ended { id: read.id, result, span });
}

fn do_read(read: Read) -> io::Result<usize> {
    // SAFETY: the descriptor stays open, and nothing else uses the buffer, until the read's end is reported
    // (`Reader::begin`).
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
