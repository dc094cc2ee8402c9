//! A handle by which other threads reach a worker.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::key::Key;
use sys::waker::Waker;

/// The state that a worker shares with other threads. It is written only when a
/// thread asks the worker for something.
pub(in crate::net) struct RemoteState {
    waker: Arc<Waker>,
    asked: AtomicBool,
    stop: AtomicBool,
    keys: Mutex<Vec<Key>>,
    /// How often the worker has handled the requests of other threads.
    turns: Mutex<u64>,
    turned: Condvar,
}

impl RemoteState {
    pub(in crate::net) fn new(waker: Arc<Waker>) -> RemoteState {
        RemoteState {
            waker,
            asked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            keys: Mutex::new(Vec::new()),
            turns: Mutex::new(0),
            turned: Condvar::new(),
        }
    }

    /// Whether another thread has asked for something since the last call.
    pub(in crate::net) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::AcqRel)
    }

    fn ask(&self) -> std::io::Result<()> {
        self.asked.store(true, Ordering::Release);
        self.waker.wake()
    }

    pub(in crate::net) fn take(&self) -> Vec<Key> {
        *self.turns.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.turned.notify_all();
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(in crate::net) fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A handle to a worker for other threads: they can make the worker resume a
/// coroutine, or stop.
#[derive(Clone)]
pub struct Remote(Arc<RemoteState>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("stop_asked", &self.0.stop_asked()).finish_non_exhaustive()
    }
}

impl Remote {
    pub(in crate::net) fn new(shared: Arc<RemoteState>) -> Remote {
        Remote(shared)
    }

    /// Resumes the coroutine of `key`, if there still is one.
    ///
    /// # Errors
    /// Errors of [`Waker::wake`]. The worker then resumes the coroutine when its wait
    /// ends for another reason.
    pub fn wake(&self, key: Key) -> std::io::Result<()> {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.0.ask()
    }

    /// Blocks until the worker has looked for events once more. Blocks while the worker is stopped or
    /// hangs, and for ever if it has ended.
    ///
    /// # Errors
    /// Errors of [`Waker::wake`].
    pub fn until_it_turns(&self) -> std::io::Result<()> {
        let turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *turns;
        self.0.ask()?;
        drop(self.0.turned.wait_while(turns, |turns| *turns == before));
        Ok(())
    }

    /// Asks the worker to stop gracefully; see [`crate::net::Net::stop`].
    ///
    /// # Errors
    /// Errors of [`Waker::wake`]: `ESRCH` if the worker's thread has ended.
    pub fn stop(&self) -> std::io::Result<()> {
        self.0.stop.store(true, Ordering::Release);
        self.0.ask()
    }
}
