//! A bound on the memory for reads, over all connections of all workers of a process.
//!
//! A read needs a buffer from its beginning until the socket has taken the bytes. A client that does not
//! receive could keep its buffer for ever. So a buffer without a read is kept, for a slow client or for
//! the next read, only while at most half of the memory is in use. The other half is for buffers that
//! are being read into, and these reads end without any client's help. A read that finds no memory
//! waits for such a read to end.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::thread_pool::lock;
use drover_sys::waker::Waker;

/// The memory that reads share; see [`crate::fileio::FileIoOptions::read_memory`].
#[derive(Debug)]
pub struct ReadMemory {
    /// The bound in bytes.
    limit: u64,
    /// How many bytes are in use now.
    held: AtomicU64,
    /// The largest value that `held` has had.
    most: AtomicU64,
    /// Whether `waiters` has entries: spares [`ReadMemory::give_back`] the lock.
    wanted: AtomicBool,
    /// The workers that found no memory. Each is woken when memory is given back.
    waiters: Mutex<Vec<Arc<Waker>>>,
}

impl ReadMemory {
    /// The smallest bound, in bytes.
    pub const LEAST: u64 = 256 * 1024;

    /// A bound of `bytes` bytes, but at least [`ReadMemory::LEAST`].
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

    /// The bound, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many bytes are in use now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The most bytes that have been in use at the same time.
    #[must_use]
    pub fn most_held(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// The most bytes that one read may take: half of the bound, in whole pages.
    pub(crate) fn most_of_one(&self) -> u64 {
        let page = crate::files::bytes::page_size();
        (self.limit / 2 / page * page).max(page)
    }

    /// Whether a buffer that is not being read into may be kept: at most half of the bound is in use.
    pub(crate) fn may_keep(&self) -> bool {
        self.held() <= self.limit / 2
    }

    /// Takes `bytes`, at most [`ReadMemory::most_of_one`]. Returns `false` if too few are free. In that
    /// case `waker` wakes the worker when memory is given back, and the worker tries again.
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
        // Memory that was given back before `wanted` was set has woken no worker: try once more.
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

    /// Gives back bytes of [`ReadMemory::take`], and wakes all workers that found no memory.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
        if self.wanted.swap(false, Ordering::SeqCst) {
            for waiter in mem::take(&mut *lock(&self.waiters)) {
                // Fails only if the worker has ended.
                let _ = waiter.wake();
            }
        }
    }
}
