//! How reads that end on other threads come back to their worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::fileio::support::reads::Ended;
use crate::thread_pool::lock;
use sys::waker::Waker;

/// Where the results of one user's reads arrive.
pub(crate) struct Results {
    ended: Mutex<Vec<Ended>>,
    any: AtomicBool,
    arrived: Condvar,
    /// Ends the user's wait.
    waker: Arc<Waker>,
}

impl Results {
    /// Results of the worker whose waits `waker` ends.
    pub(crate) fn new(waker: Arc<Waker>) -> Arc<Results> {
        let (ended, any) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Results { ended, any, arrived: Condvar::new(), waker })
    }

    /// The user is woken once for all results that it has not taken yet.
    pub(crate) fn push(&self, ended: Ended) {
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

    /// Takes what has arrived.
    pub(crate) fn take(&self, into: &mut Vec<Ended>) {
        if self.any.swap(false, Ordering::AcqRel) {
            into.append(&mut lock(&self.ended));
        }
    }

    /// Waits until there is a result.
    pub(crate) fn wait(&self) {
        let mut ended = lock(&self.ended);
        while ended.is_empty() {
            ended = self.arrived.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
