//! Memory that a crowd shares, threads or processes: counters, and the lock around accept(2).

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// Counters of the whole crowd, before those of each waiter.
const COMMON: usize = 4;
/// Counters of each waiter.
const OWN: usize = 2;

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and somebody sleeps.
const CONTENDED: u32 = 2;

/// The memory; it stays mapped until the last process that has it is gone.
pub(super) struct Board {
    words: ptr::NonNull<AtomicU32>,
    waiters: usize,
}

// SAFETY: it is memory of atomic words that is never unmapped.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Memory for so many waiters, which children of this process share.
    pub(super) fn new(waiters: usize) -> io::Result<Board> {
        let len = (COMMON + OWN * waiters) * size_of::<AtomicU32>();
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let memory = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, prot, flags)? };
        let words = ptr::NonNull::new(memory.cast()).expect("mmap(2) does not return null");
        Ok(Board { words, waiters })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < COMMON + OWN * self.waiters);
        // SAFETY: it lies in the mapping, which is aligned to a page, zeroed (a valid AtomicU32) and
        // never unmapped.
        unsafe { self.words.add(at).as_ref() }
    }

    fn ready(&self) -> &AtomicU32 {
        self.word(0)
    }

    fn errno(&self) -> &AtomicU32 {
        self.word(1)
    }

    fn lock_word(&self) -> &AtomicU32 {
        self.word(2)
    }

    /// How many connections have been taken and closed.
    pub(super) fn taken(&self) -> u32 {
        self.word(3).load(Ordering::Acquire)
    }

    fn taken_by(&self, waiter: usize) -> &AtomicU32 {
        self.word(COMMON + OWN * waiter)
    }

    fn returns_of(&self, waiter: usize) -> &AtomicU32 {
        self.word(COMMON + OWN * waiter + 1)
    }

    /// A waiter is about to wait for the first time.
    pub(super) fn tell_ready(&self) {
        self.ready().fetch_add(1, Ordering::Release);
        let _ = futex::wake(self.ready(), futex::Flags::empty(), 1);
    }

    /// A waiter cannot go on.
    pub(super) fn tell_error(&self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
        self.errno().store(errno, Ordering::Release);
        let _ = futex::wake(self.ready(), futex::Flags::empty(), 1);
    }

    /// A call that waits has come back to user space.
    pub(super) fn tell_return(&self, waiter: usize) {
        self.returns_of(waiter).fetch_add(1, Ordering::Relaxed);
    }

    /// A connection has been taken and closed.
    pub(super) fn tell_taken(&self, waiter: usize) {
        self.taken_by(waiter).fetch_add(1, Ordering::Relaxed);
        self.word(3).fetch_add(1, Ordering::Release);
    }

    /// What kept a waiter from going on.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.errno().load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno.cast_signed())),
        }
    }

    /// Sleeps until so many are ready, at most for a while: whether they are.
    pub(super) fn wait_ready(&self, wanted: u32) -> io::Result<bool> {
        const WHILE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let ready = self.ready().load(Ordering::Acquire);
        self.check()?;
        if ready < wanted {
            let _ = futex::wait(self.ready(), futex::Flags::empty(), ready, Some(&WHILE));
        }
        Ok(self.ready().load(Ordering::Acquire) >= wanted)
    }

    /// Connections by waiter.
    pub(super) fn shares(&self) -> Vec<u32> {
        (0..self.waiters).map(|waiter| self.taken_by(waiter).load(Ordering::Relaxed)).collect()
    }

    /// How often calls have come back to user space, over all waiters.
    pub(super) fn returns(&self) -> u64 {
        (0..self.waiters)
            .map(|waiter| u64::from(self.returns_of(waiter).load(Ordering::Relaxed)))
            .sum()
    }

    /// A mutex as in Drepper, *Futexes are tricky*, between processes: who finds it taken sleeps.
    pub(super) fn lock(&self) {
        let word = self.lock_word();
        let free = word.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if free.is_ok() {
            return;
        }
        while word.swap(CONTENDED, Ordering::Acquire) != UNLOCKED {
            let _ = futex::wait(word, futex::Flags::empty(), CONTENDED, None);
        }
    }

    /// Lets one of those go on that sleep.
    pub(super) fn unlock(&self) {
        if self.lock_word().swap(UNLOCKED, Ordering::Release) == CONTENDED {
            let _ = futex::wake(self.lock_word(), futex::Flags::empty(), 1);
        }
    }
}

/// The time after which waiting for something that should take none is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
