//! A futex word: one thread sleeps on the word, another thread wakes it (futex(2)).
//!
//! [`crate::accept::support::wait_queue`] takes everything that it needs from the system from this file,
//! including `Arc`, `Mutex` and `Instant`. The model check of the wait queue replaces this file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::thread::futex;

pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Instant;

/// A 32-bit number. The thread that owns the word can sleep until the number changes.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    pub(crate) fn new(value: u32) -> Word {
        Word(AtomicU32::new(value))
    }

    pub(crate) fn load(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, value: u32) {
        self.0.store(value, Ordering::Release);
    }

    /// Sleeps while the word is `value`, and returns the word's new number. Returns `value` if
    /// `deadline` passes first.
    pub(crate) fn wait_while(&self, value: u32, deadline: Option<Instant>) -> u32 {
        loop {
            let now = self.load();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if now != value || left == Some(Duration::ZERO) {
                return now;
            }
            // A duration too long for a timespec becomes an unlimited wait.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            // FUTEX_WAIT returns 0 (woken), EAGAIN (the word had changed before), EINTR or ETIMEDOUT.
            // The loop reads the word in every case.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, value, left.as_ref());
        }
    }

    /// Wakes the thread that sleeps on the word, if one does.
    pub(crate) fn wake(&self) {
        // FUTEX_WAKE fails only with EFAULT, and this page is mapped.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }
}
