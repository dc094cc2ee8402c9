//! Memory that the waiters of a group share, as threads or as processes: counters, the gate of busy waiters,
//! and the lock around accept(2).

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// How many words the whole group shares. They come before the waiters' own words.
const COMMON: usize = 7;
/// How many words each waiter has.
const OWN: usize = 2;

// The indices of the shared words.
const READY: usize = 0;
const ERRNO: usize = 1;
const LOCK: usize = 2;
const TAKEN: usize = 3;
const ROUND: usize = 4;
const PARKED: usize = 5;
const DISTURBED: usize = 6;

// The values of the word at `LOCK`.
const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and a waiter may sleep until the lock is released.
const CONTENDED: u32 = 2;

/// The shared words: a mapping that this process and its children never unmap.
pub(crate) struct SharedWords {
    words: ptr::NonNull<AtomicU32>,
    waiters: usize,
}

// SAFETY: the pointer leads to atomic words that are never unmapped.
unsafe impl Send for SharedWords {}
// SAFETY: the pointer leads to atomic words that are never unmapped.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Makes a table for `waiters` waiters. Child processes that are forked afterwards share the table.
    pub(crate) fn new(waiters: usize) -> io::Result<SharedWords> {
        let len = (COMMON + OWN * waiters) * size_of::<AtomicU32>();
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses, overlaps no other memory.
        let memory = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, flags)? };
        let words = ptr::NonNull::new(memory.cast()).expect("mmap(2) does not return null");
        Ok(SharedWords { words, waiters })
    }

    /// The word with that index.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < COMMON + OWN * self.waiters);
        // SAFETY: the word lies in the mapping, which is aligned to a page, zeroed (a valid AtomicU32) and
        // never unmapped.
        unsafe { self.words.add(at).as_ref() }
    }

    /// How many connections have been taken and closed.
    pub(crate) fn taken(&self) -> u32 {
        self.word(TAKEN).load(Ordering::Acquire)
    }

    /// How many connections a waiter has taken.
    fn taken_by(&self, waiter: usize) -> &AtomicU32 {
        self.word(COMMON + OWN * waiter)
    }

    /// How many waiting system calls of a waiter have returned.
    fn returns_of(&self, waiter: usize) -> &AtomicU32 {
        self.word(COMMON + OWN * waiter + 1)
    }

    /// Called by a waiter that is about to wait for the first time.
    pub(crate) fn tell_ready(&self) {
        self.word(READY).fetch_add(1, Ordering::Release);
        let _ = futex::wake(self.word(READY), futex::Flags::empty(), 1);
    }

    /// Called by a waiter that ends because a system call has failed.
    pub(crate) fn tell_error(&self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
        self.word(ERRNO).store(errno, Ordering::Release);
        let _ = futex::wake(self.word(READY), futex::Flags::empty(), 1);
    }

    /// Called by a waiter whose waiting system call has returned.
    pub(crate) fn tell_return(&self, waiter: usize) {
        self.returns_of(waiter).fetch_add(1, Ordering::Relaxed);
    }

    /// Called by a waiter that has taken a connection and closed it.
    pub(crate) fn tell_taken(&self, waiter: usize) {
        self.taken_by(waiter).fetch_add(1, Ordering::Relaxed);
        self.word(TAKEN).fetch_add(1, Ordering::Release);
    }

    /// Returns the error of a waiter that has failed, if there is one.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.word(ERRNO).load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno.cast_signed())),
        }
    }

    /// Sleeps for at most 10 ms, until a waiter has become ready. Returns whether `wanted` waiters are ready.
    pub(crate) fn wait_ready(&self, wanted: u32) -> io::Result<bool> {
        const WHILE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let ready = self.word(READY).load(Ordering::Acquire);
        self.check()?;
        if ready < wanted {
            let _ = futex::wait(self.word(READY), futex::Flags::empty(), ready, Some(&WHILE));
        }
        Ok(self.word(READY).load(Ordering::Acquire) >= wanted)
    }

    /// Called by a busy waiter: counts the waiter as parked, and sleeps until the gate is opened. `seen` is the
    /// number of the last round that the waiter has seen, at first 0. Returns the number of the new round.
    pub(crate) fn park(&self, seen: u32) -> u32 {
        self.word(PARKED).fetch_add(1, Ordering::Release);
        loop {
            let slept = futex::wait(self.word(ROUND), futex::Flags::empty(), seen, None);
            let round = self.word(ROUND).load(Ordering::Acquire);
            if round != seen {
                return round;
            }
            if slept.is_ok() {
                self.word(DISTURBED).fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many waiters are parked.
    pub(crate) fn parked(&self) -> u32 {
        self.word(PARKED).load(Ordering::Acquire)
    }

    /// Opens the gate once for every waiter. All waiters must be parked.
    pub(crate) fn open_gate(&self) {
        self.word(PARKED).store(0, Ordering::Relaxed);
        self.word(ROUND).fetch_add(1, Ordering::Release);
        let _ = futex::wake(self.word(ROUND), futex::Flags::empty(), i32::MAX.cast_unsigned());
    }

    /// How often a parked waiter was woken while the gate was closed.
    pub(crate) fn disturbed(&self) -> u32 {
        self.word(DISTURBED).load(Ordering::Relaxed)
    }

    /// How many connections each waiter has taken.
    pub(crate) fn shares(&self) -> Vec<u32> {
        (0..self.waiters).map(|waiter| self.taken_by(waiter).load(Ordering::Relaxed)).collect()
    }

    /// How many waiting system calls have returned, over all waiters.
    pub(crate) fn returns(&self) -> u64 {
        (0..self.waiters)
            .map(|waiter| u64::from(self.returns_of(waiter).load(Ordering::Relaxed)))
            .sum()
    }

    /// Takes the lock. The lock works between processes; its algorithm is the second mutex of Drepper,
    /// *Futexes are tricky*.
    pub(crate) fn lock(&self) {
        let word = self.word(LOCK);
        let free = word.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            return;
        }
        while word.swap(CONTENDED, Ordering::Acquire) != UNLOCKED {
            let _ = futex::wait(word, futex::Flags::empty(), CONTENDED, None);
        }
    }

    /// Releases the lock, and wakes one waiter that waits for the lock.
    pub(crate) fn unlock(&self) {
        if self.word(LOCK).swap(UNLOCKED, Ordering::Release) == CONTENDED {
            let _ = futex::wake(self.word(LOCK), futex::Flags::empty(), 1);
        }
    }
}

/// How long a group may take to start, and its waiters to be parked again, before the caller gives up.
pub(crate) const GROUP_TIMEOUT: Duration = Duration::from_secs(60);
