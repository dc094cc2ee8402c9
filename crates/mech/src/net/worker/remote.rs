//! A handle by which other threads reach a worker.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::key::Key;
use drover_sys::waker::Waker;

/// What a worker has done for other threads.
#[derive(Default)]
struct Turns {
    /// How often the worker has handled the requests of other threads.
    count: u64,
    /// Whether the worker has ended.
    ended: bool,
}

/// The state that a worker shares with other threads. It is written only when a
/// thread asks the worker for something.
pub(in crate::net) struct RemoteState {
    waker: Arc<Waker>,
    asked: AtomicBool,
    stop: AtomicBool,
    retire: AtomicBool,
    keys: Mutex<Vec<Key>>,
    turns: Mutex<Turns>,
    turned: Condvar,
}

impl RemoteState {
    pub(in crate::net) fn new(waker: Arc<Waker>) -> RemoteState {
        RemoteState {
            waker,
            asked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            retire: AtomicBool::new(false),
            keys: Mutex::new(Vec::new()),
            turns: Mutex::default(),
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
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        self.turned.notify_all();
        std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The worker handles no more requests.
    pub(in crate::net) fn end(&self) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.turned.notify_all();
    }

    pub(in crate::net) fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(in crate::net) fn retire_asked(&self) -> bool {
        self.retire.load(Ordering::Acquire)
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

    /// Blocks until the worker has looked for events once more, or has ended. Blocks while the worker is stopped or
    /// hangs.
    ///
    /// # Errors
    /// Errors of [`Waker::wake`].
    pub fn until_it_turns(&self) -> std::io::Result<()> {
        let turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let before = turns.count;
        if !turns.ended {
            self.0.ask()?;
        }
        drop(self.0.turned.wait_while(turns, |turns| turns.count == before && !turns.ended));
        Ok(())
    }

    /// Asks the worker to look for events once more. Returns how often it had done so for other threads, for
    /// [`Remote::has_turned_since`].
    pub fn ask_for_turn(&self) -> u64 {
        let before = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner).count;
        // Waking fails if the worker has ended.
        let _ended = self.0.ask();
        before
    }

    /// Whether the worker has looked for events since [`Remote::ask_for_turn`] returned `before`, or has ended.
    #[must_use]
    pub fn has_turned_since(&self, before: u64) -> bool {
        let turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.count != before || turns.ended
    }

    /// Asks the worker to leave new connections to others; see [`crate::net::Net::retire`].
    ///
    /// # Errors
    /// Errors of [`Waker::wake`]: `ESRCH` if the worker's thread has ended.
    pub fn retire(&self) -> std::io::Result<()> {
        self.0.retire.store(true, Ordering::Release);
        self.0.ask()
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
