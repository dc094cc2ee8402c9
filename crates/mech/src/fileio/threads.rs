//! `threads`: other threads of the process read by pread(2) into a buffer of the connection, and the
//! worker sends the buffer when the read has ended.
//!
//! lighttpd 1.5 called this method `gthread-aio`. A read costs two hand-overs between threads. With
//! [`FileIoOptions::cached_at_once`], the worker itself reads bytes that are in the page cache.

use std::io;
use std::sync::Arc;

use crate::fileio::support::readers::ReadPool;
use crate::fileio::support::reads::{Ended, Read, Reader, Reads};
use crate::fileio::support::results::ReadResults;
use crate::fileio::{Backend, FileIoCounts, FileIoOptions};
use drover_sys::waker::Waker;

/// The `threads` backend.
pub(crate) static THREADS: Backend = Backend {
    place: 4,
    name: "threads",
    summary: "pread(2) by a pool of threads, then head and bytes in one vectored send",
    past_cache: false,
    sends_unread: false,
    reads_apart: true,
    calls: &[],
    open: |options, waker| Ok(Box::new(open(options, waker)?)),
};

/// How many reads of one worker may be in the pool's queue.
const MOST: usize = 256;

pub(super) struct Threads {
    pool: Arc<ReadPool>,
    results: Arc<ReadResults>,
    counts: Arc<FileIoCounts>,
    under_way: usize,
}

/// Makes the reads of one worker, which the process' pool of threads does.
pub(super) fn open(options: &FileIoOptions, waker: &Arc<Waker>) -> io::Result<Reads<Threads>> {
    let counts = Arc::clone(&options.counts);
    let results = ReadResults::new(Arc::clone(waker));
    let threads = Threads { pool: options.pool()?, results, counts, under_way: 0 };
    Ok(Reads::new(threads, options, &THREADS, waker))
}

impl Reader for Threads {
    unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
        if self.under_way >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.under_way += 1;
        self.pool.push(read, &self.results, &self.counts);
        Ok(())
    }

    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        let before = ended.len();
        self.results.take(ended);
        self.under_way -= ended.len() - before;
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.results.wait();
        Ok(())
    }
}
