//! How much memory the reads of a process may have: a bound over all connections of all workers.
//!
//! A read needs a buffer from its beginning until the socket has taken the bytes, which may be never.
//! So a buffer is kept for a client's sake, or for the next read, only as long as no more than half of
//! the memory is in use; the other half belongs to reads that end without any client's help. A read
//! that finds no memory waits for one of those to end.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::thread_pool::lock;
use sys::waker::Waker;

/// The memory that reads share; see [`crate::fileio::Options::read_memory`].
#[derive(Debug)]
pub struct ReadMemory {
    limit: u64,
    held: AtomicU64,
    most: AtomicU64,
    /// Whether there are `waiters`.
    wanted: AtomicBool,
    /// Workers that found no memory.
    waiters: Mutex<Vec<Arc<Waker>>>,
}

/// What a process takes by itself at most.
const MOST: u64 = 256 << 20;

impl ReadMemory {
    /// The least bound that is of use, in bytes.
    pub const LEAST: u64 = 256 * 1024;

    /// So many bytes, at least [`ReadMemory::LEAST`].
    #[must_use]
    pub fn of(bytes: u64) -> Arc<ReadMemory> {
        Arc::new(ReadMemory {
            limit: bytes.max(ReadMemory::LEAST),
            held: AtomicU64::new(0),
            most: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            waiters: Mutex::default(),
        })
    }

    /// An eighth of what the process may have ([`sys::process::memory_limit`]), at most 256 MiB,
    /// divided among so many processes.
    #[must_use]
    pub fn of_process(processes: usize) -> Arc<ReadMemory> {
        let all = sys::process::memory_limit().map_or(MOST, |limit| (limit / 8).min(MOST));
        ReadMemory::of(all / processes.max(1) as u64)
    }

    /// How many bytes there are in all.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many bytes buffers have now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The most bytes that buffers have had at once.
    #[must_use]
    pub fn most_held(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// The most bytes that one read takes.
    pub(crate) fn most_of_one(&self) -> u64 {
        let page = crate::files::root::page_size();
        (self.limit / 2 / page * page).max(page)
    }

    /// Whether a buffer that no read needs now may be kept.
    pub(crate) fn may_keep(&self) -> bool {
        self.held() <= self.limit / 2
    }

    /// Takes `bytes`, at most [`ReadMemory::most_of_one`]. If there are none, `waker`'s worker is woken
    /// when some were given back, and asks again.
    pub(crate) fn take(&self, bytes: u64, waker: &Arc<Waker>) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        let mut waiters = lock(&self.waiters);
        if !waiters.iter().any(|waiter| Arc::ptr_eq(waiter, waker)) {
            waiters.push(Arc::clone(waker));
        }
        self.wanted.store(true, Ordering::SeqCst);
        drop(waiters);
        // What was given back before that has woken nobody.
        self.try_take(bytes)
    }

    fn try_take(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.limit);
        let taken = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        if let Ok(before) = taken {
            self.most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
        if self.wanted.swap(false, Ordering::SeqCst) {
            for waiter in mem::take(&mut *lock(&self.waiters)) {
                // It fails only for a worker that has ended.
                let _ = waiter.wake();
            }
        }
    }
}
