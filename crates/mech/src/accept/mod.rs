//! Accept distribution: how new connections are shared among workers.
//!
//! Each strategy has a file in this folder and a record in [`ALL`]. A strategy binds an
//! address and makes a [`ListenerHandle`] for every worker. A worker is a thread or a
//! process; it turns its handle into a listener ([`crate::net::Listener::enter`]) and
//! accepts connections from that listener. What a strategy needs of the dispatch
//! mechanism is data: code outside this folder asks [`Strategy::goes_with`].
//!
//! | strategy | whom a connection wakes | which idle worker is first |
//! |---|---|---|
//! | `shared` | all waiting workers | no order: all workers race for the connection |
//! | `exclusive` | one waiting worker | epoll: the worker that registered first, until it registers anew after 16 connections; io_uring: workers take turns |
//! | `blocking` | one waiting worker | the worker that has waited longest (FIFO) |
//! | `lock` | the holder of the lock; releasing the lock wakes one waiter | the worker that has waited longest, unless the releasing worker locks again before it |
//! | `reuseport` | the worker whose socket the hash selects | no order: the hash decides |
//! | `handoff` | the workers that the wait queue's policy selects | the policy decides |

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bitflags::bitflags;

use crate::mechanism::{Features, Mechanism};
use drover_sys::socket;
pub use drover_sys::socket::{Address, ListenOptions};
use support::wait_queue::Policy;

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
    /// Which optional fields of [`ListenPlan`] a strategy obeys.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct ObeyedFields: u8 {
        /// The strategy obeys [`ListenPlan::by_cpu`].
        const BY_CPU = 1;
        /// The strategy obeys [`ListenPlan::policy`].
        const WAKE_POLICY = 2;
        /// The strategy shares several sockets of [`ListenPlan::passed`] out among the workers. The others have all
        /// workers accept from each of them.
        const SEVERAL_PASSED = 4;
    }
}

/// Whether the workers are threads or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Threads of the process that binds the address.
    Threads,
    /// Processes that inherit their listener handles from the process that binds the address.
    Processes,
}

/// What a strategy is to do for one address.
#[derive(Clone, Debug)]
pub struct ListenPlan {
    /// Where to listen. With port 0 the kernel chooses a free port. At a path (unix(7)) the caller listens, and passes
    /// the socket.
    pub address: Address,
    /// Sockets that listen at `address` already: from a service manager, or from the workers that these ones succeed.
    /// None: the strategy binds.
    pub passed: Vec<Arc<OwnedFd>>,
    /// How many workers there are. Each gets one listener handle.
    pub workers: NonZeroUsize,
    /// Whether the workers are threads or processes.
    pub among: Among,
    /// The options of the listening sockets. The strategy itself sets `reuse_port`.
    pub listen: ListenOptions,
    /// Whether worker `n` gets the connections whose packets processor `n` handles. Useful only if
    /// worker `n` is pinned to processor `n`. Only `reuseport` obeys.
    pub by_cpu: bool,
    /// Which waiting workers a connection wakes. Only `handoff` obeys.
    pub policy: Policy,
}

impl ListenPlan {
    /// A plan for `workers` threads that listen at `address`, with the usual options.
    #[must_use]
    pub fn new(address: impl Into<SocketAddr>, workers: NonZeroUsize) -> ListenPlan {
        ListenPlan {
            address: Address::Ip(address.into()),
            passed: Vec::new(),
            workers,
            among: Among::Threads,
            listen: ListenOptions::default(),
            by_cpu: false,
            policy: Policy::TaskExclusive,
        }
    }

    /// The only socket that listens at the address.
    fn socket(&self) -> io::Result<OwnedFd> {
        match self.passed.first() {
            Some(socket) => socket::adopt(socket.as_fd(), self.listen.defer),
            None => {
                let options = ListenOptions { reuse_port: false, ..self.listen };
                socket::listen(self.ip()?, options)
            }
        }
    }

    /// The address to bind.
    ///
    /// # Errors
    /// `InvalidInput`: it is a path, whose socket was to be passed.
    fn ip(&self) -> io::Result<SocketAddr> {
        self.address.ip().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

/// What a strategy has made of a [`ListenPlan`].
#[derive(Debug)]
pub struct BoundListeners {
    /// The bound address, with the port that the kernel chose if port 0 was asked for.
    pub address: Address,
    /// At least one listener handle for each worker: handle `n` is for worker `n % workers`.
    pub handles: Vec<ListenerHandle>,
    /// The sockets that listen at the address, for the workers that succeed these ones ([`ListenPlan::passed`]).
    pub sockets: Vec<OwnedFd>,
    /// The parts of the strategy that run in the process that bound the address, for as long as there
    /// are workers. None unless the strategy is `handoff` and the workers are processes.
    pub acceptors: Vec<Acceptor>,
}

/// Accepts connections on behalf of workers that are processes, and sends each worker a connection
/// when it asks for one.
#[derive(Debug)]
pub struct Acceptor {
    queue: Arc<AcceptQueue>,
    /// One unix(7) socket for each worker: the end that stays in this process.
    agents: Vec<OwnedFd>,
}

/// The source of new connections for one worker. The worker turns the handle into a listener on the
/// thread that accepts ([`crate::net::Listener::enter`]).
///
/// For a worker that is a process, the handle consists of descriptors only, so that the process can
/// inherit the handle.
#[derive(Debug)]
pub struct ListenerHandle {
    strategy: &'static Strategy,
    descriptors: Vec<OwnedFd>,
    /// The queue of accepted connections. Only `handoff` has one, and only for workers that are threads.
    queue: Option<Arc<AcceptQueue>>,
    /// The number of the worker, from 0. Only `handoff` reads this number.
    worker: usize,
    /// The number of the address that connections come in at.
    address: u16,
}

/// How a worker gets new connections, made from its [`ListenerHandle`].
pub(crate) enum AcceptSource {
    /// The worker waits for a listening socket by its dispatch mechanism. With `exclusive`, several
    /// workers wait for this socket and a connection must wake only one worker.
    Socket { socket: OwnedFd, exclusive: bool },
    /// A thread of the worker's own accepts by the blocking call `take`. `defers`: the socket has
    /// `TCP_DEFER_ACCEPT`, so that the request's first bytes are there when a connection is accepted.
    Thread { take: AcceptCall, defers: bool },
    /// A queue that several workers of this process take accepted connections from.
    AcceptQueue { queue: Arc<AcceptQueue>, worker: usize },
    /// A unix(7) socket through which another process sends accepted connections (`SCM_RIGHTS`).
    Channel(OwnedFd),
}

impl ListenerHandle {
    /// The descriptors that this listener handle consists of. A supervisor passes these descriptors to
    /// the worker's process, which calls [`ListenerHandle::of`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd)
    }

    /// Makes a listener handle from descriptors. A worker process calls this function with the
    /// descriptors that it inherited.
    ///
    /// `descriptors` must come from [`ListenerHandle::descriptors`] of a handle that `strategy` made,
    /// in the order of that method. A wrong number of descriptors is an error when the worker enters.
    #[must_use]
    pub fn of(strategy: &'static Strategy, descriptors: Vec<OwnedFd>) -> ListenerHandle {
        ListenerHandle { strategy, descriptors, queue: None, worker: 0, address: 0 }
    }

    /// The same handle, of the address with this number: several handles of a worker may be of one address. Its connections are told
    /// apart by it ([`crate::net::Conn::listener`]).
    #[must_use]
    pub fn at(self, address: u16) -> ListenerHandle {
        ListenerHandle { address, ..self }
    }

    /// The number of the address, 0 unless [`ListenerHandle::at`] has set it.
    #[must_use]
    pub fn address(&self) -> u16 {
        self.address
    }

    /// Repairs the strategy's shared state after the death of a worker process. The supervisor must
    /// call this method whenever a process that used this handle has ended.
    ///
    /// Only `lock` needs repair. Two workers can die one after the other: the holder of the accept lock,
    /// and, before it runs, the waiter that the kernel wakes at the holder's death. The lock is then
    /// free while all others sleep. This method wakes one of them.
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

    /// The descriptor of a listener handle that consists of exactly one descriptor.
    ///
    /// # Errors
    /// `InvalidInput`: the handle consists of none or of several.
    fn socket(mut self) -> io::Result<OwnedFd> {
        match self.descriptors.pop() {
            Some(socket) if self.descriptors.is_empty() => Ok(socket),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "a handle of one descriptor")),
        }
    }
}

impl From<OwnedFd> for ListenerHandle {
    /// Makes a handle from a listening, non-blocking socket that no other worker waits for.
    fn from(socket: OwnedFd) -> ListenerHandle {
        ListenerHandle::of(&REUSEPORT, vec![socket])
    }
}

/// A strategy as data.
pub struct Strategy {
    /// The strategy's name: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What the strategy does, in one line.
    pub summary: &'static str,
    /// The features that a dispatch mechanism must have.
    pub needs: Features,
    /// The features that a dispatch mechanism must not have.
    pub excludes: Features,
    /// Which optional fields of [`ListenPlan`] the strategy obeys.
    pub settings: ObeyedFields,
    /// Whether threads block in accept(2), so that the strategy clears `O_NONBLOCK`. All duplicates of a socket share
    /// that flag: workers of a strategy that blocks and of one that does not cannot accept from one socket at a time.
    pub blocks: bool,
    probe: fn() -> io::Result<()>,
    open: fn(&ListenPlan) -> io::Result<BoundListeners>,
    enter: fn(ListenerHandle) -> io::Result<AcceptSource>,
    /// See [`ListenerHandle::after_death`]. `None`: nothing needs repair after a worker's death.
    after_death: Option<fn(&ListenerHandle) -> io::Result<()>>,
}

impl Strategy {
    /// Binds the address and makes the listener handles.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` (ports below 1024), `EMFILE`.
    pub fn open(&self, plan: &ListenPlan) -> io::Result<BoundListeners> {
        let mut first = plan.clone();
        if !self.settings.contains(ObeyedFields::SEVERAL_PASSED) {
            first.passed.truncate(1);
        }
        let mut all = (self.open)(&first)?;
        for socket in plan.passed.iter().skip(first.passed.len()) {
            // As if it listened at another address.
            let passed = vec![Arc::clone(socket)];
            let made = (self.open)(&ListenPlan { passed, ..plan.clone() })?;
            all.handles.extend(made.handles);
            all.sockets.extend(made.sockets);
            all.acceptors.extend(made.acceptors);
        }
        Ok(all)
    }

    /// Checks that workers that wait by `mechanism` can use this strategy.
    ///
    /// # Errors
    /// The reason why the two do not go together, as a message for the user.
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

    /// Checks that `workers` workers can accept from one unix(7) socket, of which there cannot be several at a path.
    ///
    /// # Errors
    /// The reason why not, as a message for the user.
    pub fn goes_with_unix_sockets(&self, workers: NonZeroUsize) -> Result<(), String> {
        if self.settings.contains(ObeyedFields::SEVERAL_PASSED) && workers.get() > 1 {
            return Err(format!(
                "each of {workers} workers needs a socket of its own, and a unix socket cannot be bound twice"
            ));
        }
        Ok(())
    }

    /// Checks that this kernel lets this process use the strategy, by setting up a part of it.
    ///
    /// # Errors
    /// What was tried and what the kernel answered, as a message for the user.
    pub fn probe(&self) -> Result<(), String> {
        (self.probe)().map_err(|error| format!("cannot be set up: {error}"))
    }
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strategy").field("name", &self.name).finish()
    }
}

/// Every strategy, in the order in which help texts and charts list them.
pub static ALL: &[&Strategy] =
    &[&shared::SHARED, &EXCLUSIVE, &blocking::BLOCKING, &lock::LOCK, &REUSEPORT, &handoff::HANDOFF];

/// The strategy with that [`Strategy::name`].
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Strategy> {
    ALL.iter().copied().find(|strategy| strategy.name == name)
}

/// The strategy that `auto` means for `workers` workers that wait by `mechanism`. docs/accept.md has
/// the measurements.
///
/// - `reuseport` for a single worker: no other worker shares its socket.
/// - `exclusive` for several workers whose readiness mechanism supports exclusive waiting: connections
///   do not wait behind a worker that is stuck.
/// - `reuseport` for completion rings, where `exclusive` costs one accept request per connection, and
///   for mechanisms without exclusive waiting.
#[must_use]
pub fn auto(workers: NonZeroUsize, mechanism: &Mechanism) -> &'static Strategy {
    let alone = workers.get() == 1 || mechanism.features.contains(Features::COMPLETION);
    if alone || EXCLUSIVE.goes_with(mechanism).is_err() || EXCLUSIVE.probe().is_err() {
        &REUSEPORT
    } else {
        &EXCLUSIVE
    }
}

/// The strategy that `auto` means where all workers have one socket, which was bound before ([`ListenPlan::passed`]):
/// [`auto`]'s unless that is `reuseport`; then the first of `exclusive`, `shared` and `blocking` that goes with the
/// mechanism, as `blocking` always does.
#[must_use]
pub fn auto_for_one_socket(workers: NonZeroUsize, mechanism: &Mechanism) -> &'static Strategy {
    let usual = auto(workers, mechanism);
    if workers.get() == 1 || usual.name != REUSEPORT.name {
        return usual;
    }
    let goes = |it: &&Strategy| it.goes_with(mechanism).is_ok() && it.probe().is_ok();
    [&EXCLUSIVE, &shared::SHARED].into_iter().find(goes).unwrap_or(&blocking::BLOCKING)
}

/// Whether two kinds of workers, each by its mechanism and strategy, can accept from the same sockets at the same time. If
/// not, the ones must have left the sockets ([`crate::net::Remote::retire`]) before the others are opened.
#[must_use]
pub fn can_share(
    (mechanism, strategy): (&Mechanism, &Strategy),
    (other_mechanism, other_strategy): (&Mechanism, &Strategy),
) -> bool {
    let owns = |mechanism: &Mechanism| mechanism.features.contains(Features::ONE_OWNER);
    strategy.blocks == other_strategy.blocks && !owns(mechanism) && !owns(other_mechanism)
}

/// Binds one socket for all workers. Each listener handle gets a duplicate of the socket's descriptor.
fn one_socket(plan: &ListenPlan, strategy: &'static Strategy) -> io::Result<BoundListeners> {
    let socket = plan.socket()?;
    let address = socket::bound_address(socket.as_fd())?;
    let handle = |_| Ok(ListenerHandle::of(strategy, vec![socket.try_clone()?]));
    let handles = (0..plan.workers.get()).map(handle).collect::<io::Result<_>>()?;
    Ok(BoundListeners { address, handles, sockets: vec![socket], acceptors: Vec::new() })
}
