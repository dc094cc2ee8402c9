//! A thread that accepts connections by blocking calls, for workers that must not block.
//!
//! The thread keeps a few accepted connections, and then waits until a worker takes one. To stop the
//! thread, a signal interrupts its accept4(2) ([`super::interrupt`]). Two other ways do not work:
//! close(2) on the socket does not end a running accept4(2), which holds the open file; shutdown(2)
//! resets the connections in the backlog and ends the listening of all workers.

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
use drover_sys::process;

/// A call that accepts one connection. The argument is `stop`. With `false`, the call blocks until a
/// connection comes. With `true`, the call does not block, and returns `None` when the backlog is empty.
pub(crate) type AcceptCall = Box<dyn FnMut(bool) -> io::Result<Option<OwnedFd>> + Send>;

/// How long [`AcceptThread::stop`] waits for the thread before it sends the signal again. A signal that
/// arrives just before the thread enters accept4(2) interrupts nothing.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(1);

/// How many connections a worker's own thread accepts before the worker asks for them. A larger number
/// saves context switches under load. A smaller number leaves more connections to other workers when
/// this worker is stuck.
const AHEAD: usize = 4;

/// A handle to the thread and to the connections that the thread has accepted.
pub(crate) struct AcceptThread(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when a worker asks for a connection, when `stop` or `exit` is set, and when the thread
    /// has ended.
    changed: Condvar,
    /// Whether the thread must drain the backlog and end.
    stop: AtomicBool,
    /// Whether the thread must end at once.
    exit: AtomicBool,
    /// How many accepted connections may wait in `State::taken`.
    most: usize,
}

#[derive(Default)]
struct State {
    taken: VecDeque<io::Result<OwnedFd>>,
    /// Whether the thread pauses: accept4(2) has failed, and no worker has asked for a connection since
    /// it took the error.
    paused: bool,
    /// Whether the thread has ended.
    ended: bool,
    /// The thread's number (gettid(2)); 0 until the thread runs.
    thread: libc::pid_t,
    /// How often the thread has slept in the kernel; 0 until the thread has ended.
    waits: u64,
}

/// The answer to a worker that asks an accept thread for a connection.
#[derive(Debug)]
pub(crate) enum Next {
    /// A connection, or the error of accept4(2).
    Taken(io::Result<OwnedFd>),
    /// No connection waits now.
    Nothing,
    /// No connection waits, and none will come: the thread has ended.
    Ended,
}

/// What the accepting thread must do next.
enum NextCall {
    /// Wait for a connection and accept it.
    Accept,
    /// Accept a connection if one waits; otherwise end.
    Drain,
    /// End now, and leave the backlog to other workers.
    Exit,
}

impl AcceptThread {
    /// Starts an accept thread for one worker. `notify` ends the worker's wait.
    pub(crate) fn for_one(
        take: AcceptCall,
        notify: impl Fn() + Send + 'static,
    ) -> io::Result<AcceptThread> {
        AcceptThread::start(AHEAD, false, take, move |_| notify())
    }

    /// Starts an accept thread that keeps at most `most` connections.
    ///
    /// The thread calls `notify(false)` after it has accepted a connection: for every connection if
    /// `each`, otherwise only if no other connection was waiting to be taken. The thread calls
    /// `notify(true)` when it ends.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
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
            exit: AtomicBool::new(false),
            most,
        });
        let ours = Arc::clone(&shared);
        process::start_thread("accept", move || {
            interrupt::allow();
            ours.lock().thread = process::thread_number().cast_signed();
            loop {
                let stop = match ours.wait_for_room() {
                    NextCall::Accept => false,
                    NextCall::Drain => true,
                    NextCall::Exit => break,
                };
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

    /// Takes an accepted connection without waiting.
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

    /// Makes the thread drain the backlog and end, and waits until the thread has ended.
    pub(crate) fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.interrupt();
    }

    /// How often the thread has slept in the kernel. Returns 0 while the thread runs, and 0 on every
    /// call after the one that returned the number.
    pub(crate) fn take_waits(&self) -> u64 {
        std::mem::take(&mut self.0.lock().waits)
    }

    /// Whether every accepted connection has been taken by a worker.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().taken.is_empty()
    }

    /// Interrupts the thread again and again until it has ended.
    fn interrupt(&self) {
        let mut state = self.0.lock();
        // Under the lock: the thread has either seen the flag, or sleeps already and hears of it.
        self.0.changed.notify_all();
        while !state.ended {
            if state.thread != 0 {
                interrupt::interrupt(state.thread);
            }
            let waited = self.0.changed.wait_timeout(state, SIGNAL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for AcceptThread {
    /// Ends the thread at once. The connections in the backlog stay there for other workers.
    fn drop(&mut self) {
        self.0.exit.store(true, Ordering::Release);
        self.interrupt();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the thread may accept a connection or must end.
    fn wait_for_room(&self) -> NextCall {
        let mut state = self.lock();
        loop {
            if self.exit.load(Ordering::Acquire) {
                return NextCall::Exit;
            }
            if self.stop.load(Ordering::Acquire) {
                return NextCall::Drain;
            }
            if state.taken.len() < self.most && !state.paused {
                return NextCall::Accept;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps a connection or an error for the workers. Returns whether nothing was kept before.
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

/// Accepts a connection from a blocking socket. With `stop`, looks first whether one waits, and returns
/// `None` if not.
pub(crate) fn accept(socket: BorrowedFd<'_>, stop: bool) -> io::Result<Option<OwnedFd>> {
    if stop {
        let mut look = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        if rustix::event::poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Ok(None);
        }
        // Another worker may accept the connection first. accept4(2) then blocks until `interrupt` sends
        // the next signal.
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(Some(rustix::net::accept_with(socket, flags)?))
}

/// Clears `O_NONBLOCK`, for every process that shares the socket's open file.
pub(crate) fn let_block(socket: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&socket)?;
    Ok(rustix::fs::fcntl_setfl(&socket, flags - rustix::fs::OFlags::NONBLOCK)?)
}
