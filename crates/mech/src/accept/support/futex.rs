//! A word that a thread sleeps on, and that another thread wakes it by: futex(2).
//!
//! With the lock that is re-exported here, this is all that [`crate::accept::support::wait_queue`] takes from the
//! system: its model check puts something else in the place of this file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::thread::futex;

pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Instant;

/// A number that its owner can wait for a change of.
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

    /// Sleeps until the word is no longer `value`, and returns what it is then; returns `value` when
    /// `deadline` has passed.
    pub(crate) fn wait_while(&self, value: u32, deadline: Option<Instant>) -> u32 {
        loop {
            let now = self.load();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if now != value || left == Some(Duration::ZERO) {
                return now;
            }
            // A time that does not fit is for ever; it is looked at again after each return.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            // Woken, changed before it slept, interrupted or late: the word tells.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, value, left.as_ref());
        }
    }

    /// Wakes the thread that sleeps on the word, if one does.
    pub(crate) fn wake(&self) {
        // It fails for addresses that are none, and this is one.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }
}
