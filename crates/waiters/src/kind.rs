//! The ways in which a thread or a process waits for connections. Each has a record in [`ALL`].

use drover_mech::accept::wait_queue::Policy;

use crate::accept_ring::AcceptRing;

/// A way of waiting for connections.
#[derive(Debug)]
pub struct WaiterKind {
    /// The kind's name in flags, tables and legends.
    pub name: &'static str,
    /// What the kind does, in one line.
    pub summary: &'static str,
    /// Whether the kind is a model, in user space, of a kernel that is no longer in use.
    pub model: bool,
    /// Whether waiters of this kind can watch several descriptors of the socket.
    pub watches: bool,
    pub(crate) mode: WaitMode,
}

/// How a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMode {
    Select,
    Poll,
    /// All waiters share one epoll instance.
    EpollShared,
    /// Every waiter has an epoll instance of its own.
    Epoll {
        exclusive: bool,
    },
    Accept,
    /// accept(2) by one waiter at a time; the others wait for a lock.
    Lock,
    /// Every waiter has a listening socket of its own.
    ReusePort,
    Uring,
    /// Half of the waiters wait in select(2) and never accept. The other half wait in accept(2).
    SelectAndAccept,
    /// A wait queue in user space.
    Model {
        policy: Policy,
        /// How many times each connection wakes the queue.
        wakes: u32,
    },
}

/// Every kind: first the kinds that today's kernels have, then the models.
pub static ALL: &[WaiterKind] = &[
    WaiterKind::watching("select", "select(2), then accept(2)", WaitMode::Select),
    WaiterKind::watching("poll", "poll(2), then accept(2)", WaitMode::Poll),
    WaiterKind::watching(
        "epoll-shared",
        "one epoll instance for all, then accept(2)",
        WaitMode::EpollShared,
    ),
    WaiterKind::watching(
        "epoll",
        "an epoll instance for each, then accept(2)",
        WaitMode::Epoll { exclusive: false },
    ),
    WaiterKind::watching(
        "exclusive",
        "an epoll instance for each, with EPOLLEXCLUSIVE (Linux 4.5)",
        WaitMode::Epoll { exclusive: true },
    ),
    WaiterKind::new(
        "blocking",
        "accept(2) that blocks: exclusive since Linux 2.3",
        WaitMode::Accept,
    ),
    WaiterKind::new("lock", "accept(2) under a lock: one at a time", WaitMode::Lock),
    WaiterKind::new(
        "reuseport",
        "accept(2) on a socket for each (SO_REUSEPORT)",
        WaitMode::ReusePort,
    ),
    WaiterKind::new("uring", "accept requests of io_uring, one at a time", WaitMode::Uring),
    WaiterKind::new(
        "select+blocking",
        "half of them select(2) and look on, the others accept(2)",
        WaitMode::SelectAndAccept,
    ),
    WaiterKind::model(
        "wake-all",
        "a wait queue that wakes everybody: Linux 2.2",
        Policy::WakeAll,
        1,
    ),
    WaiterKind::model(
        "wake-all-3",
        "a wait queue that wakes everybody, three times for each connection: Linux 2.2 with its callbacks",
        Policy::WakeAll,
        3,
    ),
    WaiterKind::model(
        "task-exclusive",
        "a wait queue that wakes up to the first that takes turns",
        Policy::TaskExclusive,
        1,
    ),
    WaiterKind::model("wake-one", "a wait queue whose waker wakes one", Policy::WakeOne, 1),
    WaiterKind::model(
        "always-wake",
        "a wait queue whose waker wakes one, and all that carry a bit: half of them",
        Policy::AlwaysWake,
        1,
    ),
];

/// The kind with that [`WaiterKind::name`].
#[must_use]
pub fn by_name(name: &str) -> Option<&'static WaiterKind> {
    ALL.iter().find(|kind| kind.name == name)
}

impl WaiterKind {
    const fn new(name: &'static str, summary: &'static str, mode: WaitMode) -> WaiterKind {
        WaiterKind { name, summary, model: false, watches: false, mode }
    }

    const fn watching(name: &'static str, summary: &'static str, mode: WaitMode) -> WaiterKind {
        WaiterKind { watches: true, ..WaiterKind::new(name, summary, mode) }
    }

    const fn model(
        name: &'static str,
        summary: &'static str,
        policy: Policy,
        wakes: u32,
    ) -> WaiterKind {
        let mode = WaitMode::Model { policy, wakes };
        WaiterKind { model: true, ..WaiterKind::new(name, summary, mode) }
    }

    /// Checks that this kernel lets this process use the kind.
    ///
    /// # Errors
    /// The reason why not, as a message for the user.
    pub fn probe(&self) -> Result<(), String> {
        if self.mode != WaitMode::Uring {
            return Ok(());
        }
        AcceptRing::open().map(drop).map_err(|error| error.to_string())
    }

    /// How many of `waiters` waiters are onlookers: waiters that every connection wakes and that take no
    /// connection.
    #[must_use]
    pub fn onlookers(&self, waiters: u32) -> u32 {
        match self.mode {
            WaitMode::SelectAndAccept | WaitMode::Model { policy: Policy::AlwaysWake, .. } => {
                waiters / 2
            }
            _ => 0,
        }
    }

    /// Whether waiters of this kind may be processes. A model's wait queue is in user space, and only threads
    /// of one process can share it.
    #[must_use]
    pub fn may_be_processes(&self) -> bool {
        !self.model
    }

    /// Whether waiters of this kind may be busy while connections come ([`GroupOptions::busy`]). Waiters of a
    /// model are on the wait queue only while they wait, so a model has no busy waiters.
    ///
    /// [`GroupOptions::busy`]: crate::group::GroupOptions::busy
    #[must_use]
    pub fn may_be_busy(&self) -> bool {
        !self.model
    }

    /// Whether the listening socket is blocking: accept(2) waits for a connection.
    pub(crate) fn blocks(&self) -> bool {
        use WaitMode::{Accept, Lock, ReusePort, SelectAndAccept};
        self.model || matches!(self.mode, Accept | Lock | ReusePort | SelectAndAccept)
    }
}
