//! Dispatch: how a worker learns which connections need it.
//!
//! One file per mechanism, one contract for all of them ([`Readiness`]), one
//! record each in [`ALL`]. The conformance suite in `tests/conformance` runs
//! every case over every record.
//!
//! What a mechanism can and cannot do is data ([`Features`]): code outside
//! this folder asks for a feature, never for a name.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bitflags::bitflags;
use rustix::event::Timespec;

use crate::key::Key;
use sys::process::on_own_thread;
use sys::waker::Waker;

mod descriptors;
mod devpoll;
mod dispatcher;
mod epoll;
mod poll;
mod pollfd;
mod rtsig;
mod rtsig_batch;
mod rtsig_per_fd;
mod select;
mod signal_queue;
mod signal_reader;
mod uring;
mod uring_poll;

pub use devpoll::{DevPoll, DevPollModel, POLLREMOVE, PollFd};
pub use dispatcher::Dispatcher;

bitflags! {
    /// What the owner of a descriptor wants to be told about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Interest: u8 {
        /// A read (or accept) would not block.
        const READABLE = 1;
        /// A write (or the end of a connect) would not block.
        const WRITABLE = 2;
    }
}

bitflags! {
    /// What a mechanism reports of a descriptor.
    ///
    /// `HANGUP` and `ERROR` never come alone: a mechanism that sees them sets
    /// `READABLE` too (a read would not block; it returns 0 or the error), and
    /// `WRITABLE` where a write would fail at once. Owners that look at the first
    /// two bits only miss nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Ready: u8 {
        /// A read (or accept) would not block.
        const READABLE = 1;
        /// A write (or the end of a connect) would not block.
        const WRITABLE = 2;
        /// The peer has closed its sending side, or the connection is gone.
        /// Without [`Features::REPORTS_HANGUP`] it may be missing.
        const HANGUP = 4;
        /// An error is pending on the descriptor (`SO_ERROR`).
        const ERROR = 8;
    }
}

bitflags! {
    /// What a mechanism does, as far as its user has to know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u16 {
        /// Reports each *change*, once: after an event the owner must go on
        /// until `EAGAIN` (or a short transfer) before it waits again. Both
        /// directions are watched from [`Readiness::attach`] on and
        /// [`Readiness::want`] does nothing. Without this bit the mechanism
        /// reports the *state* at each wait.
        const EDGE = 1 << 0;
        /// An event disables its registration: [`Readiness::want`] must be
        /// called before each wait that should report the descriptor again.
        const REARM = 1 << 1;
        /// The interest set lives in the kernel: a wait costs nothing for
        /// descriptors that have no event.
        const KERNEL_SET = 1 << 2;
        /// What became ready before `attach` is not reported: the owner must
        /// try once itself, until `EAGAIN` even after a short read, which may
        /// have an end of stream behind it.
        const MISSES_EARLIER = 1 << 3;
        /// Several events of one descriptor come out as one.
        const COALESCES = 1 << 4;
        /// The kernel's queue of events is bounded and can overflow; the
        /// mechanism then recovers by polling every attached descriptor.
        const CAN_OVERFLOW = 1 << 5;
        /// Each event costs a system call of its own.
        const PER_EVENT_SYSCALL = 1 << 6;
        /// Tells a half-close apart from data ([`Ready::HANGUP`]).
        const REPORTS_HANGUP = 1 << 7;
        /// Can be one of several waiters on a shared listener without waking
        /// all of them ([`Readiness::attach_exclusive`]; a completion mechanism
        /// accepts one connection per request).
        const EXCLUSIVE = 1 << 8;
        /// Events are delivered to the thread that made the mechanism; no other
        /// can use it.
        const THREAD_BOUND = 1 << 9;
        /// A user-space model of an interface that this kernel does not have;
        /// every table and chart says so.
        const MODEL = 1 << 10;
        /// Reports transfers that the kernel has made ([`Kind::Completion`]).
        const COMPLETION = 1 << 11;
        /// The events of an open file go to one waiter: the last one that attached
        /// it, in whatever process (`F_SETOWN` is the file's). Several workers
        /// cannot wait for one listening socket.
        const ONE_OWNER = 1 << 12;
    }
}

impl Features {
    /// Whether a read that returned less than it asked for still has to be
    /// followed by one that returns `EAGAIN` before waiting.
    ///
    /// A later arrival raises a new event by itself; what can be lost is an
    /// end-of-stream that was folded into the same event as the data. State
    /// mechanisms report it at the next wait, hang-up-reporting ones have told
    /// it already, and uncoalesced queues hold an event of its own for it. (An
    /// owner that folds two such events into one bit before it reads has to
    /// confirm all the same.)
    #[must_use]
    pub const fn must_confirm_short_read(self) -> bool {
        self.contains(Features::EDGE)
            && self.contains(Features::COALESCES)
            && !self.contains(Features::REPORTS_HANGUP)
    }
}

/// One report: what a descriptor is ready for, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key given to [`Readiness::attach`].
    pub key: Key,
    /// What the descriptor is ready for; never empty.
    pub ready: Ready,
}

/// What one call of [`Readiness::wait`] did, beside its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// System calls made.
    pub syscalls: u32,
    /// The kernel's queue had overflowed, and (unless
    /// [`Options::ignore_overflow`]) the interest set was polled to recover what
    /// was lost.
    pub overflowed: bool,
    /// Kernel events that were folded into another event of this batch.
    pub coalesced: u32,
    /// Kernel events that were dropped because their descriptor has another
    /// owner by now.
    pub stale: u32,
    /// A [`Waker`] ended the wait.
    pub woken: bool,
}

/// The contract of a dispatch mechanism.
///
/// One value per worker, used by one thread, and created on that thread (see
/// [`Features::THREAD_BOUND`]). Every method is one or more system calls or a
/// change of user memory; `dyn` costs nothing measurable beside either.
///
/// Rules of the house, which the conformance suite holds every mechanism to:
/// - an event may be *spurious* (the read it announces returns `EAGAIN`), never
///   *missing*, and never reported under a key that was not attached to that
///   descriptor when the event happened;
/// - `detach` comes before `close(2)`, always;
/// - after `detach` no event with that key is reported, not even from a queue
///   that held it before.
pub trait Readiness {
    /// Registers `fd` under `key`. With [`Features::EDGE`] both directions are
    /// watched whatever `interest` says.
    ///
    /// # Errors
    /// `EEXIST` if `fd` is attached already; `EBADF`; `EPERM` for descriptors
    /// that the mechanism cannot wait for (regular files under epoll);
    /// `ENOSPC`/`ENOMEM` when a kernel table is full.
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()>;

    /// Registers a listening socket that others wait for as well, for reading:
    /// a connection wakes one of them that waits, if one does. [`Readiness::want`]
    /// does not apply to it: detach it while it should not be reported.
    ///
    /// # Errors
    /// As `attach`; `Unsupported` without [`Features::EXCLUSIVE`].
    fn attach_exclusive(&mut self, _fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Replaces the interest of an attached descriptor and re-arms it under
    /// [`Features::REARM`]. An empty interest keeps it attached; at most a hang-up
    /// or an error is then reported, once.
    ///
    /// # Errors
    /// `ENOENT` if `fd` is not attached; with [`Features::EDGE`] that may pass
    /// unnoticed.
    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()>;

    /// Forgets a descriptor, before it is closed.
    ///
    /// # Errors
    /// `ENOENT` if `fd` is not attached; `EPERM` from some if it cannot be.
    fn detach(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()>;

    /// Waits until an attached descriptor is ready, a [`Waker`] wakes this
    /// mechanism or `timeout` has passed (`None`: no limit; zero: look and
    /// return), and appends what happened to `events`.
    ///
    /// Returns early and empty when a signal handler ran (`EINTR`).
    ///
    /// # Errors
    /// Only what the kernel says of the call itself: `ENOMEM`, or `EINVAL`
    /// where more descriptors are attached than `RLIMIT_NOFILE` lets it wait for.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch>;

    /// A waker that ends this mechanism's `wait` by its own means, for
    /// mechanisms that an eventfd cannot wake. `None`: attach an eventfd, as
    /// [`Dispatcher`] does.
    ///
    /// # Errors
    /// What the kernel says when the waker is made.
    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(None)
    }
}

/// What a mechanism needs to know before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many events one wait returns at most, where the kernel call takes
    /// such a number.
    pub events_per_wait: usize,
    /// Do *not* recover the events that an overflow of the kernel's queue has
    /// lost: the deliberately wrong server of the overflow experiment. Only
    /// mechanisms with [`Features::CAN_OVERFLOW`] look at it.
    pub ignore_overflow: bool,
    /// Room in the queue that an io_uring reports in; 16 bytes each. What does
    /// not fit waits in the kernel, but ends the request that reports it, which
    /// has to be made anew.
    pub completions: u32,
    /// How many buffers a completion mechanism lends the kernel at most for what
    /// may arrive during one turn: a power of two, 2 to 32,768. What arrives when
    /// none is left waits in its socket.
    pub receive_buffers: u16,
    /// Which parts of the /dev/poll patch `devpoll` models beside the interest set. Only it looks at them.
    pub devpoll: DevPollModel,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            events_per_wait: 512,
            ignore_overflow: false,
            completions: 4096,
            receive_buffers: 1024,
            devpoll: DevPollModel::empty(),
        }
    }
}

/// One mechanism as data: its only name, its features, how to make it.
pub struct Mechanism {
    /// The one spelling: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What its user has to know.
    pub features: Features,
    /// The system calls that it waits with, and no others.
    pub waits_with: &'static [&'static str],
    /// How it is put to work.
    pub kind: Kind,
}

/// The two ways in which a kernel can be waited on.
#[derive(Clone, Copy)]
pub enum Kind {
    /// It tells what would not block, and the owner makes the transfer.
    Readiness {
        /// Makes one for the calling thread.
        open: fn(&Options) -> io::Result<Box<dyn Readiness>>,
    },
    /// It makes the transfers itself and tells what it has done: only
    /// [`crate::net`] can put it to work.
    Completion {
        /// Tries everything that it needs.
        probe: fn() -> io::Result<()>,
    },
}

impl Mechanism {
    /// Makes one for the calling thread.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported` of a completion mechanism.
    pub fn open(&self, options: &Options) -> io::Result<Box<dyn Readiness>> {
        match self.kind {
            Kind::Readiness { open } => open(options),
            Kind::Completion { .. } => {
                let reason = format!("{} reports completions, not readiness", self.name);
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
        }
    }

    /// Whether it is the model of /dev/poll, which [`Options::devpoll`] is for.
    #[must_use]
    pub fn models_devpoll(&self) -> bool {
        std::ptr::eq(self, &devpoll::DEVPOLL)
    }

    /// Whether this kernel, in this process, can use the mechanism.
    ///
    /// Tries on a thread of its own, because a mechanism leaves traces: blocked
    /// signals while it lives, and a ring that has been closed interrupts its
    /// thread once more, in whatever call that is.
    ///
    /// # Errors
    /// The reason why not, in words for people: what was tried and what the
    /// kernel said.
    pub fn probe(&self) -> Result<(), String> {
        let trial = || {
            if let Kind::Completion { probe } = self.kind {
                return probe().map_err(|error| format!("cannot be set up: {error}"));
            }
            let mut mechanism = self
                .open(&Options::default())
                .map_err(|error| format!("cannot be set up: {error}"))?;
            mechanism
                .wait(Some(Duration::ZERO), &mut Vec::new())
                .map_err(|error| format!("cannot wait: {error}"))?;
            Ok(())
        };
        on_own_thread(trial).unwrap_or_else(|error| Err(format!("cannot be tried out: {error}")))
    }
}

impl std::fmt::Debug for Mechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mechanism")
            .field("name", &self.name)
            .field("features", &self.features)
            .finish()
    }
}

/// Every mechanism, in the order that people list them: oldest first.
pub static ALL: &[&Mechanism] = &[
    &select::SELECT,
    &poll::POLL,
    &devpoll::DEVPOLL,
    &rtsig::RTSIG,
    &rtsig_batch::RTSIG_BATCH,
    &rtsig_per_fd::RTSIG_PER_FD,
    &epoll::EPOLL,
    &epoll::EPOLL_ET,
    &epoll::EPOLL_ONESHOT,
    &uring_poll::URING_POLL,
    &uring::URING,
];

/// The mechanism with that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Mechanism> {
    ALL.iter().copied().find(|mechanism| mechanism.name == name)
}

/// What a server or a client of so many workers takes that is told to choose: the first usable one of
/// those that measure best (see docs/performance.md and docs/load.md), none of which is ever a model.
#[must_use]
pub fn auto(workers: usize) -> Option<&'static Mechanism> {
    rings(workers).ok().or_else(auto_of_readiness)
}

/// The mechanism of [`auto`] where so many workers can have a fast ring each.
///
/// # Errors
/// The reason why not, in words for people.
pub fn rings(workers: usize) -> Result<&'static Mechanism, String> {
    // See `Mechanism::probe`.
    on_own_thread(|| uring::try_out(workers))
        .and_then(|tried| tried)
        .map(|()| &uring::URING)
        .map_err(|error| error.to_string())
}

/// The same for those who look at all of long messages, or read slowly: a ring receives what comes
/// into buffers that its connections share, and it is copied from there.
#[must_use]
pub fn auto_of_readiness() -> Option<&'static Mechanism> {
    ["epoll-et", "epoll", "poll"]
        .into_iter()
        .filter_map(by_name)
        .find(|mechanism| mechanism.probe().is_ok())
}

/// A time-out as the kernel takes it; one too long for it is for ever all the
/// same.
fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
