//! A thread that takes connections by calls that block, for workers that do not.
//!
//! It keeps a few that no worker has asked for yet, and then waits until one does. A signal with a
//! handler that does nothing ends its call when it is to stop: closing the socket would not
//! (accept(2) goes on with the open file), and shutdown(2) would reset what is queued and end the
//! other workers' listening too.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SocketFlags;

use super::interrupt;
use sys::process;

/// Takes one connection. When it is told that it is to stop, it no longer waits, and `None` means
/// that there is none.
pub(crate) type AcceptCall = Box<dyn FnMut(bool) -> io::Result<Option<OwnedFd>> + Send>;

/// How long a stop waits for the thread before it interrupts it again: a signal that comes just
/// before the call is too early.
const AGAIN: Duration = Duration::from_millis(1);

/// How many connections a worker's own thread takes that it has not asked for: more spare switches
/// under load, fewer leave others their share when the worker stands still.
const AHEAD: usize = 4;

/// The thread, with what it has taken.
pub(crate) struct AcceptThread(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Somebody has asked for a connection, or the thread is to stop, or it has ended.
    changed: Condvar,
    stop: AtomicBool,
    /// Whether the thread is to end at once.
    leave: AtomicBool,
    /// How many connections may wait here.
    most: usize,
}

#[derive(Default)]
struct State {
    taken: VecDeque<io::Result<OwnedFd>>,
    /// An error was passed on, and nobody has asked again since.
    paused: bool,
    ended: bool,
    thread: libc::pid_t,
    /// How often the thread has waited; known when it has ended.
    waits: u64,
}

/// What an accept thread has.
#[derive(Debug)]
pub(crate) enum Next {
    /// A connection, or why there is none.
    Taken(io::Result<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    Ended,
}

impl AcceptThread {
    /// An accept thread for one worker, which `notify` wakes.
    pub(crate) fn for_one(
        take: AcceptCall,
        notify: impl Fn() + Send + 'static,
    ) -> io::Result<AcceptThread> {
        AcceptThread::start(AHEAD, false, take, move |_| notify())
    }

    /// Starts the thread. It calls `notify` with `false` when it has taken something for which somebody
    /// may be waiting, each time or only the first until it is asked for (`each`); with `true` when it
    /// has ended.
    pub(crate) fn start(
        most: usize,
        each: bool,
        mut take: AcceptCall,
        notify: impl Fn(bool) + Send + 'static,
    ) -> io::Result<AcceptThread> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            leave: AtomicBool::new(false),
            most,
        });
        let ours = Arc::clone(&shared);
        process::start_thread("accept", move || {
            interrupt::allow();
            ours.lock().thread = process::thread_number().cast_signed();
            while let Some(stop) = ours.until_there_is_room() {
                match take(stop) {
                    Ok(None) => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) if stop => break,
                    taken => {
                        if ours.put(taken.map_err(Some).and_then(|it| it.ok_or(None))) || each {
                            notify(false);
                        }
                    }
                }
            }
            let mut state = ours.lock();
            state.ended = true;
            state.waits = process::thread_waits().unwrap_or(0);
            drop(state);
            ours.changed.notify_all();
            notify(true);
        })?;
        Ok(AcceptThread(shared))
    }

    /// Asks for a connection.
    pub(crate) fn next(&self) -> Next {
        let mut state = self.0.lock();
        let taken = state.taken.pop_front();
        let was_full = state.taken.len() + 1 == self.0.most;
        match taken {
            Some(taken) => {
                drop(state);
                if was_full {
                    self.0.changed.notify_all();
                }
                Next::Taken(taken)
            }
            None if state.ended => Next::Ended,
            None => {
                if std::mem::take(&mut state.paused) {
                    self.0.changed.notify_all();
                }
                Next::Nothing
            }
        }
    }

    /// Has the thread take what there is and end, and waits until it has.
    pub(crate) fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.interrupt();
    }

    /// How often the thread has waited, to whoever asks first; 0 as long as it runs.
    pub(crate) fn take_waits(&self) -> u64 {
        std::mem::take(&mut self.0.lock().waits)
    }

    /// Whether all that was taken has been asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().taken.is_empty()
    }

    fn interrupt(&self) {
        self.0.changed.notify_all();
        let mut state = self.0.lock();
        while !state.ended {
            if state.thread != 0 {
                interrupt::interrupt(state.thread);
            }
            let waited = self.0.changed.wait_timeout(state, AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for AcceptThread {
    /// What waits in the backlog is left to others.
    fn drop(&mut self) {
        self.0.leave.store(true, Ordering::Release);
        self.interrupt();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to stop, once there is something to do; `None`: it is to end.
    fn until_there_is_room(&self) -> Option<bool> {
        let mut state = self.lock();
        loop {
            if self.leave.load(Ordering::Acquire) {
                return None;
            }
            if self.stop.load(Ordering::Acquire) {
                return Some(true);
            }
            if state.taken.len() < self.most && !state.paused {
                return Some(false);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `true`: there was nothing before.
    fn put(&self, taken: Result<OwnedFd, Option<io::Error>>) -> bool {
        let mut state = self.lock();
        let was_empty = state.taken.is_empty();
        match taken {
            Ok(socket) => state.taken.push_back(Ok(socket)),
            Err(Some(error)) => {
                state.paused = true;
                state.taken.push_back(Err(error));
            }
            Err(None) => {}
        }
        was_empty
    }
}

/// Takes a connection of a blocking socket; without waiting for one if it is to `stop`.
pub(crate) fn accept(socket: BorrowedFd<'_>, stop: bool) -> io::Result<Option<OwnedFd>> {
    if stop {
        let mut look = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        if rustix::event::poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Ok(None);
        }
        // Should another be faster, the next interruption ends this call.
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(Some(rustix::net::accept_with(socket, flags)?))
}

/// Makes calls on the socket block, for everyone who has it.
pub(crate) fn let_block(socket: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&socket)?;
    Ok(rustix::fs::fcntl_setfl(&socket, flags - rustix::fs::OFlags::NONBLOCK)?)
}
