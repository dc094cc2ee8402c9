//! `handoff`: one thread accepts, and hands connections to workers that wait in a wait queue.
//!
//! Whom a connection wakes is the queue's policy ([`crate::accept::support::wait_queue`]): the four of Molloy & Lever
//! (2000), in user space, a *model* of kernels that are gone. A worker waits in its own dispatch
//! mechanism; being chosen ends that wait, and the worker takes what it finds. What nobody has taken
//! stays where all can reach it.
//!
//! Between processes, the supervisor has the queue, with an agent for each worker in it. A worker that
//! wants a connection says so with a byte over its unix(7) socket; its agent then waits in its place,
//! and sends it what it got (`SCM_RIGHTS`). Agents keep both ends of those sockets: what was sent to a
//! worker that died is its successor's.

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
    AcceptSource, Acceptor, Among, BoundListeners, ListenPlan, ListenerHandle, Settings, Strategy,
};
use crate::accept::support::wait_queue::{Policy, WaitFlag, WaitQueue, Waiter};
use crate::mechanism::Features;
use sys::socket::{ListenOptions, defers, listen, local_address};

/// One acceptor.
pub(super) static HANDOFF: Strategy = Strategy {
    name: "handoff",
    summary: "one thread accepts and hands on to workers in a wait queue with a policy (a model); \
              to processes by SCM_RIGHTS",
    needs: Features::empty(),
    excludes: Features::empty(),
    settings: Settings::WAKE_POLICY,
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

/// How many connections may wait for workers beside those in the backlog.
const MOST: usize = 64;

/// How long an agent rests when a connection could not be accepted.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Where connections wait for workers.
pub(crate) struct AcceptQueue {
    socket: Mutex<Option<OwnedFd>>,
    queue: Arc<WaitQueue>,
    /// `None` inside: its thread could not be started.
    accept_thread: OnceLock<Option<AcceptThread>>,
    /// Agents that look for a connection, or have one in their hands.
    handing: AtomicUsize,
    /// Whether connections come with their first bytes.
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

    /// Begins to accept, unless somebody has begun.
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
        // The socket could be taken only once.
        let _ = self.accept_thread.set(accept_thread);
        result
    }

    fn accept_thread(&self) -> Option<&AcceptThread> {
        self.accept_thread.get()?.as_ref()
    }

    pub(crate) fn next(&self) -> Next {
        match self.accept_thread.get() {
            None => Next::Nothing,
            Some(None) => Next::Ended,
            Some(Some(accept_thread)) => accept_thread.next(),
        }
    }

    /// Ends accepting; what there is can still be asked for.
    pub(crate) fn stop(&self) {
        if let Some(accept_thread) = self.accept_thread() {
            accept_thread.stop();
        }
    }

    /// How often the acceptor has waited, once it has ended: to whoever asks first.
    pub(crate) fn take_waits(&self) -> u64 {
        self.accept_thread().map_or(0, AcceptThread::take_waits)
    }

    /// A waiter that is woken by `notifier`. The first worker always wants to be, where the policy
    /// listens to waiters, as a select(2) among those in accept(2) does.
    pub(crate) fn waiter(
        &self,
        worker: usize,
        notifier: impl Fn() + Send + Sync + 'static,
    ) -> Waiter {
        Waiter::with_notifier(&self.queue, self.mode(worker), notifier)
    }

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
    let socket = listen(plan.address, ListenOptions { reuse_port: false, ..plan.listen })?;
    let_block(&socket)?;
    let address = local_address(socket.as_fd())?;
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
    Ok(BoundListeners { address, handles, acceptor })
}

/// Two ends that blocking agents and non-blocking workers can have: whether a call blocks is said
/// with each.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Acceptor {
    /// Begins to accept, and to hand over.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many threads.
    pub fn start(&self) -> io::Result<()> {
        self.queue.start()?;
        for (worker, agent) in self.agents.iter().enumerate() {
            let (queue, agent) = (Arc::clone(&self.queue), agent.try_clone()?);
            let serve = move || serve(&queue, worker, agent.as_fd());
            sys::process::start_thread(format!("agent {worker}"), serve)?;
        }
        Ok(())
    }

    /// Takes what waits in the backlog, and no more from then on.
    pub fn finish(&self) {
        self.queue.stop();
    }

    /// Whether all that was accepted has been sent to workers, once [`Acceptor::finish`] was called.
    /// They are to stop after that.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // In this order: who takes the last one has said so before.
        let is_empty = self.queue.accept_thread().is_none_or(AcceptThread::is_empty);
        is_empty && self.queue.handing.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        for agent in &self.agents {
            // Ends the wait for its worker's wish. It fails when the other end is closed.
            let _ = rustix::net::shutdown(agent, Shutdown::Both);
        }
    }
}

/// The agent of a worker: waits in its place when it wants a connection, and sends it.
fn serve(queue: &AcceptQueue, worker: usize, agent: BorrowedFd<'_>) {
    let mut waiter = Waiter::new(&queue.queue, queue.mode(worker));
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

/// Sends a connection to a worker. Too many may be under way for this user's limit (unix(7),
/// `ETOOMANYREFS`); that passes.
fn send(agent: BorrowedFd<'_>, socket: BorrowedFd<'_>) {
    let sockets = [socket];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        let byte = [IoSlice::new(&[0])];
        match rustix::net::sendmsg(agent, &byte, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {
                thread::sleep(RETRY_PAUSE);
            }
            // Should the worker's end be closed, so is the connection.
            _ => return,
        }
    }
}

/// Tells the agent at the other end that this worker wants a connection.
pub(crate) fn ask(agent: BorrowedFd<'_>) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::send(agent, &[0], flags).map(drop)?)
}

/// Takes a connection that the agent has sent; the process has room for its descriptor.
///
/// # Errors
/// `WouldBlock` when there is none; `UnexpectedEof` when there will be none any more; `EMFILE` when one
/// was lost because there was no room.
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
