//! `handoff`: one thread accepts, and hands connections to workers that wait in a wait queue.
//!
//! Whom a connection wakes is the queue's policy ([`crate::wait_queue`]): the four of Molloy & Lever
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

use super::feeder::{Feeder, Next, accept, let_block};
use super::{Among, Door, Doors, Keeper, Plan, Settings, Strategy, Way};
use crate::dispatch::Features;
use sys::socket::{ListenOptions, defers, listen, local_address};
use crate::wait_queue::{Manner, Policy, WaitQueue, Waiter};

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
    enter: |door: Door| match door.hall {
        Some(ref hall) => {
            hall.start()?;
            Ok(Way::Hall { hall: Arc::clone(hall), worker: door.worker })
        }
        None => Ok(Way::Channel(door.socket()?)),
    },
    after_death: None,
};

/// How many connections may wait for workers beside those in the backlog.
const MOST: usize = 64;

/// How long an agent rests when a connection could not be accepted.
const REST: Duration = Duration::from_millis(50);

/// Where connections wait for workers.
pub(crate) struct Hall {
    socket: Mutex<Option<OwnedFd>>,
    queue: Arc<WaitQueue>,
    /// `None` inside: its thread could not be started.
    feeder: OnceLock<Option<Feeder>>,
    /// Agents that look for a connection, or have one in their hands.
    handing: AtomicUsize,
    /// Whether connections come with their first bytes.
    pub(crate) defers: bool,
}

impl Hall {
    fn new(socket: OwnedFd, policy: Policy) -> Arc<Hall> {
        Arc::new(Hall {
            defers: defers(socket.as_fd()),
            socket: Mutex::new(Some(socket)),
            queue: Arc::new(WaitQueue::new(policy)),
            feeder: OnceLock::new(),
            handing: AtomicUsize::new(0),
        })
    }

    /// Begins to accept, unless somebody has begun.
    fn start(&self) -> io::Result<()> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = socket.take() else { return Ok(()) };
        let queue = Arc::clone(&self.queue);
        let take = Box::new(move |stop| accept(socket.as_fd(), stop));
        let feeder = Feeder::start(MOST, true, take, move |ended| {
            if ended {
                queue.wake_all()
            } else {
                queue.wake()
            };
        });
        let (feeder, result) = match feeder {
            Ok(feeder) => (Some(feeder), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // The socket could be taken only once.
        let _ = self.feeder.set(feeder);
        result
    }

    fn feeder(&self) -> Option<&Feeder> {
        self.feeder.get()?.as_ref()
    }

    pub(crate) fn next(&self) -> Next {
        match self.feeder.get() {
            None => Next::Nothing,
            Some(None) => Next::Ended,
            Some(Some(feeder)) => feeder.next(),
        }
    }

    /// Ends accepting; what there is can still be asked for.
    pub(crate) fn stop(&self) {
        if let Some(feeder) = self.feeder() {
            feeder.stop();
        }
    }

    /// How often the acceptor has waited, once it has ended: to whoever asks first.
    pub(crate) fn take_waits(&self) -> u64 {
        self.feeder().map_or(0, Feeder::take_waits)
    }

    /// A waiter that is woken by `bell`. The first worker always wants to be, where the policy
    /// listens to waiters, as a select(2) among those in accept(2) does.
    pub(crate) fn waiter(&self, worker: usize, bell: impl Fn() + Send + Sync + 'static) -> Waiter {
        Waiter::with_bell(&self.queue, self.manner(worker), bell)
    }

    fn manner(&self, worker: usize) -> Manner {
        match (self.queue.policy(), worker) {
            (Policy::AlwaysWake, 0) => Manner::Always,
            _ => Manner::Exclusive,
        }
    }
}

impl std::fmt::Debug for Hall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hall").field("queue", &self.queue).finish_non_exhaustive()
    }
}

fn open(plan: &Plan) -> io::Result<Doors> {
    let socket = listen(plan.address, ListenOptions { reuse_port: false, ..plan.listen })?;
    let_block(&socket)?;
    let address = local_address(socket.as_fd())?;
    let hall = Hall::new(socket, plan.policy);
    let mut doors = Vec::new();
    let mut agents = Vec::new();
    for worker in 0..plan.workers.get() {
        let mut door = Door::of(&HANDOFF, Vec::new());
        door.worker = worker;
        match plan.among {
            Among::Threads => door.hall = Some(Arc::clone(&hall)),
            Among::Processes => {
                let (ours, theirs) = pair()?;
                door.descriptors.push(theirs);
                agents.push(ours);
            }
        }
        doors.push(door);
    }
    let keeper = (plan.among == Among::Processes).then(|| Keeper { hall, agents });
    Ok(Doors { address, doors, keeper })
}

/// Two ends that blocking agents and non-blocking workers can have: whether a call blocks is said
/// with each.
fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Keeper {
    /// Begins to accept, and to hand over.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many threads.
    pub fn start(&self) -> io::Result<()> {
        self.hall.start()?;
        for (worker, agent) in self.agents.iter().enumerate() {
            let (hall, agent) = (Arc::clone(&self.hall), agent.try_clone()?);
            let serve = move || serve(&hall, worker, agent.as_fd());
            sys::process::start_thread(format!("agent {worker}"), serve)?;
        }
        Ok(())
    }

    /// Takes what waits in the backlog, and no more from then on.
    pub fn finish(&self) {
        self.hall.stop();
    }

    /// Whether all that was accepted has been sent to workers, once [`Keeper::finish`] was called.
    /// They are to stop after that.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // In this order: who takes the last one has said so before.
        let is_empty = self.hall.feeder().is_none_or(Feeder::is_empty);
        is_empty && self.hall.handing.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for agent in &self.agents {
            // Ends the wait for its worker's wish. It fails when the other end is closed.
            let _ = rustix::net::shutdown(agent, Shutdown::Both);
        }
    }
}

/// The agent of a worker: waits in its place when it wants a connection, and sends it.
fn serve(hall: &Hall, worker: usize, agent: BorrowedFd<'_>) {
    let mut waiter = Waiter::new(&hall.queue, hall.manner(worker));
    let wish = || rustix::net::recv(agent, &mut [0u8; 1], RecvFlags::empty());
    while let Ok((_, 1..)) = rustix::io::retry_on_intr(wish) {
        loop {
            let look = || {
                hall.handing.fetch_add(1, Ordering::SeqCst);
                match hall.next() {
                    Next::Nothing => {
                        hall.handing.fetch_sub(1, Ordering::SeqCst);
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
            hall.handing.fetch_sub(1, Ordering::SeqCst);
            match next {
                Some(Next::Taken(Err(_))) => thread::sleep(REST),
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
                thread::sleep(REST);
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
