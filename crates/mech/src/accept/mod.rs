//! Accept distribution: how new connections are shared among workers.
//!
//! One file per strategy, one record each in [`ALL`]. A strategy binds an
//! address and makes a [`ListenerHandle`] for every worker; the worker, a thread or a
//! process, enters by it ([`crate::net::Listener::enter`]) and takes connections
//! from the listener as from any other. What a strategy needs of the dispatch
//! mechanism is data: code outside this folder asks [`Strategy::goes_with`].
//!
//! | strategy | who is woken by a connection | order of idle workers |
//! |---|---|---|
//! | `shared` | all who wait | none: who comes first |
//! | `exclusive` | one who waits | the first to have registered, which gives way after 16; rings take turns |
//! | `blocking` | one who waits | in turn (FIFO) |
//! | `lock` | who holds the lock; its release wakes one who waits for it | in turn, but whoever lets go of it may take it again |
//! | `reuseport` | the worker whose socket the hash names | none: the hash |
//! | `handoff` | whom the wait queue's policy chooses | the policy's |

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bitflags::bitflags;

use crate::mechanism::{Features, Mechanism};
use support::wait_queue::Policy;
use sys::socket::{self, ListenOptions};

mod blocking;
mod exclusive;
mod handoff;
mod lock;
mod reuseport;
mod shared;
mod support;

pub(crate) use handoff::{AcceptQueue, ask, receive};
use support::accept_thread::AcceptCall;
pub(crate) use support::accept_thread::{AcceptThread, Next};
pub use support::wait_queue;

use exclusive::EXCLUSIVE;
use reuseport::REUSEPORT;

bitflags! {
    /// What a strategy can be told beside the address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Settings: u8 {
        /// [`ListenPlan::by_cpu`].
        const BY_CPU = 1;
        /// [`ListenPlan::policy`].
        const WAKE_POLICY = 2;
    }
}

/// What workers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Threads of the process that binds.
    Threads,
    /// Processes that inherit their listener handles from it.
    Processes,
}

/// What a strategy is to do for one address.
#[derive(Clone, Copy, Debug)]
pub struct ListenPlan {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// How many listener handles to make.
    pub workers: NonZeroUsize,
    /// For whom they are.
    pub among: Among,
    /// How sockets are made; whether they share a port is the strategy's to say.
    pub listen: ListenOptions,
    /// The worker of the processor that a connection came in on takes it: for
    /// workers that each stay on the processor of their own number.
    pub by_cpu: bool,
    /// Whom a connection wakes, where that is a wait queue's matter.
    pub policy: Policy,
}

/// What a strategy has made of a [`ListenPlan`].
#[derive(Debug)]
pub struct BoundListeners {
    /// The address as it is bound.
    pub address: SocketAddr,
    /// One for each worker.
    pub handles: Vec<ListenerHandle>,
    /// What the process that binds has to do while there are workers, if anything.
    pub acceptor: Option<Acceptor>,
}

/// Accepts for workers that are processes, and sends them what they ask for.
#[derive(Debug)]
pub struct Acceptor {
    queue: Arc<AcceptQueue>,
    /// This process' ends of the workers' sockets.
    agents: Vec<OwnedFd>,
}

/// A worker's way to new connections, to be entered on its thread. It is made
/// of descriptors, so that a process can inherit it.
#[derive(Debug)]
pub struct ListenerHandle {
    strategy: &'static Strategy,
    descriptors: Vec<OwnedFd>,
    /// Where connections wait, for a worker that is a thread.
    queue: Option<Arc<AcceptQueue>>,
    /// Which of the workers it is for, where that matters.
    worker: usize,
}

/// What there is behind a listener handle.
pub(crate) enum AcceptSource {
    /// A listening socket to wait for; if `exclusive`, others do so too, and a
    /// connection is to wake one of them.
    Socket { socket: OwnedFd, exclusive: bool },
    /// A thread is to take connections by `take`; they come with their first bytes
    /// if the socket `defers`.
    Thread { take: AcceptCall, defers: bool },
    /// A queue that several workers take from.
    AcceptQueue { queue: Arc<AcceptQueue>, worker: usize },
    /// A unix(7) socket that connections come by.
    Channel(OwnedFd),
}

impl ListenerHandle {
    /// The descriptors that the listener handle is made of.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd)
    }

    /// A listener handle made of the descriptors of one of the same strategy, in the order
    /// of [`ListenerHandle::descriptors`].
    #[must_use]
    pub fn of(strategy: &'static Strategy, descriptors: Vec<OwnedFd>) -> ListenerHandle {
        ListenerHandle { strategy, descriptors, queue: None, worker: 0 }
    }

    /// To be called after the end of each process that has entered by this listener handle: what it had been
    /// woken for, and can no longer take, is told to somebody else.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn after_death(&self) -> io::Result<()> {
        self.strategy.after_death.map_or(Ok(()), |tell| tell(self))
    }

    pub(crate) fn open(self) -> io::Result<AcceptSource> {
        let strategy = self.strategy;
        (strategy.enter)(self)
    }

    /// The only descriptor of a listener handle that has one.
    fn socket(mut self) -> io::Result<OwnedFd> {
        match self.descriptors.pop() {
            Some(socket) if self.descriptors.is_empty() => Ok(socket),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "a handle of one descriptor")),
        }
    }
}

impl From<OwnedFd> for ListenerHandle {
    /// A listening, non-blocking socket that nobody else waits for.
    fn from(socket: OwnedFd) -> ListenerHandle {
        ListenerHandle::of(&REUSEPORT, vec![socket])
    }
}

/// One strategy as data.
pub struct Strategy {
    /// The one spelling: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What a dispatch mechanism must have.
    pub needs: Features,
    /// What a dispatch mechanism must not have.
    pub excludes: Features,
    /// What it can be told.
    pub settings: Settings,
    probe: fn() -> io::Result<()>,
    open: fn(&ListenPlan) -> io::Result<BoundListeners>,
    enter: fn(ListenerHandle) -> io::Result<AcceptSource>,
    /// What there is to do after a death where the kernel does not do all of it.
    after_death: Option<fn(&ListenerHandle) -> io::Result<()>>,
}

impl Strategy {
    /// Binds the address and makes the listener handles.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` (ports below 1024), `EMFILE`.
    pub fn open(&self, plan: &ListenPlan) -> io::Result<BoundListeners> {
        (self.open)(plan)
    }

    /// Whether workers that wait by `mechanism` can come to connections this way.
    ///
    /// # Errors
    /// The reason why not, in words for people.
    pub fn goes_with(&self, mechanism: &Mechanism) -> Result<(), String> {
        let name = mechanism.name;
        if !mechanism.features.contains(self.needs) {
            return Err(format!(
                "{name} cannot be one of several waiters of whom a connection wakes only one"
            ));
        }
        if mechanism.features.intersects(self.excludes) {
            return Err(format!(
                "under {name} the events of a socket go to one worker alone, whoever else waits"
            ));
        }
        Ok(())
    }

    /// Whether this kernel, in this process, offers it.
    ///
    /// # Errors
    /// The reason why not, in words for people: what was tried and what the
    /// kernel said.
    pub fn probe(&self) -> Result<(), String> {
        (self.probe)().map_err(|error| format!("cannot be set up: {error}"))
    }
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strategy").field("name", &self.name).finish()
    }
}

/// Every strategy, in the order that people list them.
pub static ALL: &[&Strategy] =
    &[&shared::SHARED, &EXCLUSIVE, &blocking::BLOCKING, &lock::LOCK, &REUSEPORT, &handoff::HANDOFF];

/// The strategy with that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Strategy> {
    ALL.iter().copied().find(|strategy| strategy.name == name)
}

/// What `auto` takes for so many workers that wait by `mechanism` (measured: docs/accept.md).
///
/// One worker has a socket to itself. Several share one and are woken in turn, so that none has to
/// wait for one that stands still, if their mechanism can do that by itself; a completion ring, which
/// then pays a request per connection, and the others have a socket each.
#[must_use]
pub fn auto(workers: NonZeroUsize, mechanism: &Mechanism) -> &'static Strategy {
    let alone = workers.get() == 1 || mechanism.features.contains(Features::COMPLETION);
    if alone || EXCLUSIVE.goes_with(mechanism).is_err() || EXCLUSIVE.probe().is_err() {
        &REUSEPORT
    } else {
        &EXCLUSIVE
    }
}

/// One socket for all workers: each listener handle has a duplicate of it.
fn one_socket(plan: &ListenPlan, strategy: &'static Strategy) -> io::Result<BoundListeners> {
    let listen = ListenOptions { reuse_port: false, ..plan.listen };
    let socket = socket::listen(plan.address, listen)?;
    let address = socket::local_address(socket.as_fd())?;
    let handle = |_| Ok(ListenerHandle::of(strategy, vec![socket.try_clone()?]));
    let handles = (0..plan.workers.get()).map(handle).collect::<io::Result<_>>()?;
    Ok(BoundListeners { address, handles, acceptor: None })
}
