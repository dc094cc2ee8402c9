//! `handoff`: one thread accepts, and hands connections to workers that wait in a wait queue.
//!
//! The queue's policy decides which workers a connection wakes
//! ([`crate::accept::support::wait_queue`]). The four policies of Molloy & Lever (2000) run in user
//! space, as a *model* of kernels that no longer exist. A worker waits in its own dispatch mechanism. A
//! wake-up ends this wait, and the worker takes a connection from the shared queue if there is one.
//!
//! If workers are processes, the queue is in the supervisor, which has a thread for each worker: an
//! agent. A worker asks its agent for a connection with one byte over a unix(7) socket. The agent then
//! waits in the queue for the worker, and sends the connection that it gets (`SCM_RIGHTS`). The
//! supervisor keeps both ends of these sockets open, so that the process which replaces a dead worker
//! receives the connections that were sent to the dead worker.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

use super::support::accept_thread::{AcceptThread, Next, accept, let_block};
use super::{
    AcceptSource, Acceptor, Among, BoundListeners, ListenPlan, ListenerHandle, ObeyedFields,
    Strategy,
};
use crate::accept::support::wait_queue::{Policy, QueueWaiter, WaitFlag, WaitQueue};
use crate::mechanism::Features;
use drover_sys::errno::is_exhaustion;
use drover_sys::socket::{bound_address, defers};

/// One accepting thread for all workers.
pub(super) static HANDOFF: Strategy = Strategy {
    name: "handoff",
    summary: "one thread accepts and hands on to workers in a wait queue with a policy (a model); \
              to processes by SCM_RIGHTS",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: ObeyedFields::WAKE_POLICY,
    blocks: true,
    probe: || pair().map(drop),
    open,
    enter: |handle: ListenerHandle| match handle.queue {
        Some(ref queue) => {
            queue.start()?;
            Ok(AcceptSource::AcceptQueue { queue: Arc::clone(queue), worker: handle.worker })
        }
        None => Ok(AcceptSource::Channel(handle.socket()?)),
    },
    after_death: None,
};

/// How many accepted connections the accepting thread may keep that no worker has taken yet. Further
/// connections wait in the socket's backlog.
const MOST: usize = 64;

/// How long an agent sleeps before it tries again, when accept4(2) or sendmsg(2) has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The queue of accepted connections that all workers of a process, or all agents, take from.
pub(crate) struct AcceptQueue {
    /// The listening socket; `None` once the accepting thread has it.
    socket: Mutex<Option<OwnedFd>>,
    queue: Arc<WaitQueue>,
    /// Empty until [`AcceptQueue::start`]; holds `None` if the thread could not be started.
    accept_thread: OnceLock<Option<AcceptThread>>,
    /// How many agents look for a connection, or have taken one that is not sent yet.
    handing: AtomicUsize,
    /// Whether the socket has `TCP_DEFER_ACCEPT`: a request's first bytes are there at once.
    pub(crate) defers: bool,
}

impl AcceptQueue {
    fn new(socket: OwnedFd, policy: Policy) -> Arc<AcceptQueue> {
        Arc::new(AcceptQueue {
            defers: defers(socket.as_fd()),
            socket: Mutex::new(Some(socket)),
            queue: Arc::new(WaitQueue::new(policy)),
            accept_thread: OnceLock::new(),
            handing: AtomicUsize::new(0),
        })
    }

    /// Starts the accepting thread, unless another worker has started it.
    fn start(&self) -> io::Result<()> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = socket.take() else { return Ok(()) };
        let queue = Arc::clone(&self.queue);
        let take = Box::new(move |stop| accept(socket.as_fd(), stop));
        let accept_thread = AcceptThread::start(MOST, true, take, move |ended| {
            if ended {
                queue.wake_all()
            } else {
                queue.wake()
            };
        });
        let (accept_thread, result) = match accept_thread {
            Ok(accept_thread) => (Some(accept_thread), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Nothing was set before: only one caller could take the socket.
        let _ = self.accept_thread.set(accept_thread);
        result
    }

    fn accept_thread(&self) -> Option<&AcceptThread> {
        self.accept_thread.get()?.as_ref()
    }

    /// Takes a connection without waiting.
    pub(crate) fn next(&self) -> Next {
        match self.accept_thread.get() {
            None => Next::Nothing,
            Some(None) => Next::Ended,
            Some(Some(accept_thread)) => accept_thread.next(),
        }
    }

    /// Drains the backlog into the queue and ends the accepting thread. Workers can still take the
    /// connections in the queue.
    pub(crate) fn stop(&self) {
        if let Some(accept_thread) = self.accept_thread() {
            accept_thread.stop();
        }
    }

    /// How often the accepting thread has waited. The first call after the thread has ended gets the
    /// number; all others get 0, so that a sum over all workers counts the thread once.
    pub(crate) fn take_waits(&self) -> u64 {
        self.accept_thread().map_or(0, AcceptThread::take_waits)
    }

    /// A waiter for worker `worker`, which a wake-up notifies by `notifier`.
    pub(crate) fn waiter(
        &self,
        worker: usize,
        notifier: impl Fn() + Send + Sync + 'static,
    ) -> QueueWaiter {
        QueueWaiter::with_notifier(&self.queue, self.mode(worker), notifier)
    }

    /// Worker 0 is woken for every connection under [`Policy::AlwaysWake`], like a thread in select(2)
    /// among threads in accept(2). All other workers are exclusive.
    fn mode(&self, worker: usize) -> WaitFlag {
        match (self.queue.policy(), worker) {
            (Policy::AlwaysWake, 0) => WaitFlag::Always,
            _ => WaitFlag::Exclusive,
        }
    }
}

impl std::fmt::Debug for AcceptQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceptQueue").field("queue", &self.queue).finish_non_exhaustive()
    }
}

fn open(plan: &ListenPlan) -> io::Result<BoundListeners> {
    let socket = plan.socket()?;
    let_block(&socket)?;
    let address = bound_address(socket.as_fd())?;
    let sockets = vec![socket.try_clone()?];
    let queue = AcceptQueue::new(socket, plan.policy);
    let mut handles = Vec::new();
    let mut agents = Vec::new();
    for worker in 0..plan.workers.get() {
        let mut handle = ListenerHandle::of(&HANDOFF, Vec::new());
        handle.worker = worker;
        match plan.among {
            Among::Threads => handle.queue = Some(Arc::clone(&queue)),
            Among::Processes => {
                let (ours, theirs) = pair()?;
                handle.descriptors.push(theirs);
                agents.push(ours);
            }
        }
        handles.push(handle);
    }
    let acceptor = (plan.among == Among::Processes).then(|| Acceptor { queue, agents });
    Ok(BoundListeners { address, handles, sockets, acceptors: acceptor.into_iter().collect() })
}

/// A pair of connected sockets, for an agent and its worker. The sockets themselves block; the worker
/// passes `MSG_DONTWAIT` to each call.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Acceptor {
    /// Starts the accepting thread and an agent for each worker.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads; `EMFILE`.
    pub fn start(&self) -> io::Result<()> {
        self.queue.start()?;
        for (worker, agent) in self.agents.iter().enumerate() {
            let (queue, agent) = (Arc::clone(&self.queue), agent.try_clone()?);
            let serve = move || serve(&queue, worker, agent.as_fd());
            drover_sys::process::start_thread(format!("agent {worker}"), serve)?;
        }
        Ok(())
    }

    /// Drains the backlog, then accepts nothing more.
    pub fn finish(&self) {
        self.queue.stop();
    }

    /// Whether every accepted connection has been sent to a worker. The supervisor calls
    /// [`Acceptor::finish`], waits until this method returns `true`, and then stops the workers.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // The order matters: an agent increments `handing` before it takes the last connection.
        let is_empty = self.queue.accept_thread().is_none_or(AcceptThread::is_empty);
        is_empty && self.queue.handing.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        for agent in &self.agents {
            // Ends the agent's recv(2). An error means that the worker's end is closed, which has ended
            // the recv(2) already.
            let _ = rustix::net::shutdown(agent, Shutdown::Both);
        }
    }
}

/// The agent of one worker. For each byte that the worker sends, waits in the queue and sends the
/// worker one connection. Returns when the worker's socket is shut down or the accepting thread ends.
fn serve(queue: &AcceptQueue, worker: usize, agent: BorrowedFd<'_>) {
    let mut waiter = QueueWaiter::new(&queue.queue, queue.mode(worker));
    let wish = || rustix::net::recv(agent, &mut [0u8; 1], RecvFlags::empty());
    while let Ok((_, 1..)) = rustix::io::retry_on_intr(wish) {
        loop {
            let look = || {
                queue.handing.fetch_add(1, Ordering::SeqCst);
                match queue.next() {
                    Next::Nothing => {
                        queue.handing.fetch_sub(1, Ordering::SeqCst);
                        None
                    }
                    next => Some(next),
                }
            };
            let next = waiter.wait_until(None, look);
            let sent = match &next {
                Some(Next::Taken(Ok(socket))) => {
                    send(agent, socket.as_fd());
                    true
                }
                _ => false,
            };
            queue.handing.fetch_sub(1, Ordering::SeqCst);
            match next {
                Some(Next::Taken(Err(_))) => thread::sleep(RETRY_PAUSE),
                _ if sent => break,
                _ => return,
            }
        }
    }
}

/// Sends a connection to a worker. Waits and tries again while the user has more descriptors in flight
/// than `RLIMIT_NOFILE` (`ETOOMANYREFS`, unix(7)): the limit no longer applies once workers receive.
fn send(agent: BorrowedFd<'_>, socket: BorrowedFd<'_>) {
    let sockets = [socket];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        let byte = [IoSlice::new(&[0])];
        match rustix::net::sendmsg(agent, &byte, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::TOOMANYREFS | Errno::INTR) => thread::sleep(RETRY_PAUSE),
            Err(errno) if is_exhaustion(&errno.into()) => thread::sleep(RETRY_PAUSE),
            // Sent, or the worker's end is closed: then the connection is closed with `socket`.
            _ => return,
        }
    }
}

/// Tells the agent at the other end that this worker wants a connection.
pub(crate) fn ask(agent: BorrowedFd<'_>) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::send(agent, &[0], flags).map(drop)?)
}

/// Takes a connection that the agent has sent. The caller makes sure that the process may open one more
/// descriptor.
///
/// # Errors
/// `WouldBlock` when no connection has come; `UnexpectedEof` when the agent has ended and none will
/// come; `EMFILE` when the process was out of descriptors, so that the kernel dropped the connection.
pub(crate) fn receive(agent: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(agent, &mut parts, &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut sockets) = message
            && let Some(socket) = sockets.next()
        {
            return Ok(socket);
        }
    }
    Err(if received.bytes == 0 { io::ErrorKind::UnexpectedEof.into() } else { Errno::MFILE.into() })
}
