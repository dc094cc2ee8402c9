//! The results of reads that end on other threads, on their way to the worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::fileio::support::reads::Ended;
use crate::thread_pool::lock;
use drover_sys::waker::Waker;

/// The results for one worker that the worker has not taken yet.
pub(crate) struct ReadResults {
    ended: Mutex<Vec<Ended>>,
    /// Whether `ended` has results: spares the worker the lock.
    any: AtomicBool,
    /// Notified when a result arrives, for [`ReadResults::wait`].
    arrived: Condvar,
    /// Ends the worker's wait.
    waker: Arc<Waker>,
}

impl ReadResults {
    /// Makes an empty store for one worker. `waker` must end the waits of this worker.
    pub(crate) fn new(waker: Arc<Waker>) -> Arc<ReadResults> {
        let (ended, any) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(ReadResults { ended, any, arrived: Condvar::new(), waker })
    }

    /// Adds a result. Wakes the worker only if it has taken all earlier results.
    pub(crate) fn push(&self, ended: Ended) {
        let mut all = lock(&self.ended);
        all.push(ended);
        let first = all.len() == 1;
        self.any.store(true, Ordering::Release);
        drop(all);
        if first {
            self.arrived.notify_one();
            // Fails only when the worker no longer waits by its mechanism. `arrived` then ends the wait
            // in `Reads::drop`.
            let _ = self.waker.wake();
        }
    }

    /// Appends all results that have arrived to `into`.
    pub(crate) fn take(&self, into: &mut Vec<Ended>) {
        if self.any.swap(false, Ordering::AcqRel) {
            into.append(&mut lock(&self.ended));
        }
    }

    /// Blocks until there is a result. Called only when a worker ends and reads are still under way.
    pub(crate) fn wait(&self) {
        let mut ended = lock(&self.ended);
        while ended.is_empty() {
            ended = self.arrived.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
