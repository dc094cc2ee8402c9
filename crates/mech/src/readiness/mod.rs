//! Readiness: mechanisms that tell which descriptors would not block.
//!
//! One file per mechanism, and one contract for all of them: [`Readiness`], on this page. A file beside this one holds
//! a mechanism that [`crate::mechanisms::ALL`] lists; what several of them share is in `support/`. The conformance suite
//! in `tests/conformance` runs every case over every mechanism.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bitflags::bitflags;
use rustix::event::Timespec;
use sys::waker::Waker;

use crate::key::Key;
#[cfg(doc)]
use crate::mechanism::{Features, Options};

pub mod devpoll;
pub(crate) mod epoll;
pub(crate) mod poll;
pub(crate) mod rtsig;
pub(crate) mod rtsig_batch;
pub(crate) mod rtsig_per_fd;
pub(crate) mod select;
pub(crate) mod support;
pub(crate) mod uring_poll;

pub use support::dispatcher::Dispatcher;

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

/// A time-out as the kernel takes it. One that has too many seconds becomes the longest there is.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
