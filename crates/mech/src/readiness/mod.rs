//! Readiness mechanisms: they report which descriptors can be read or written without blocking.
//!
//! This page has the contract [`Readiness`]. Each other file in this folder holds a mechanism that
//! [`crate::mechanisms::ALL`] lists; `support/` has what several mechanisms share. The conformance suite in
//! `tests/conformance` runs every case over every mechanism.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bitflags::bitflags;
pub use drover_sys::waker::Waker;
use rustix::event::Timespec;

use crate::key::Key;
#[cfg(doc)]
use crate::mechanism::{Features, MechanismOptions};

pub(crate) mod devepoll;
pub mod devpoll;
pub(crate) mod epoll;
pub(crate) mod poll;
pub(crate) mod rtsig;
pub(crate) mod select;
pub(crate) mod support;
pub(crate) mod uring_poll;

pub use support::dispatcher::Dispatcher;

bitflags! {
    /// The events that the owner of a descriptor wants reported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Interest: u8 {
        /// A read (or accept) would not block.
        const READABLE = 1;
        /// A write (or the end of a connect) would not block.
        const WRITABLE = 2;
    }
}

bitflags! {
    /// The events that a mechanism reports for a descriptor.
    ///
    /// `HANGUP` and `ERROR` never come alone. A mechanism that sees one of them also sets `READABLE`, because
    /// a read then returns 0 or the error without blocking, and `WRITABLE` if a write would fail at once.
    /// So an owner may ignore `HANGUP` and `ERROR`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Ready: u8 {
        /// A read (or accept) would not block.
        const READABLE = 1;
        /// A write (or the end of a connect) would not block.
        const WRITABLE = 2;
        /// The peer has closed its sending side, or the connection is gone.
        /// A mechanism without [`Features::REPORTS_HANGUP`] may leave this bit out.
        const HANGUP = 4;
        /// An error is pending on the descriptor (`SO_ERROR`).
        const ERROR = 8;
    }
}

/// One report: a descriptor, named by its key, and what it is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key given to [`Readiness::attach`].
    pub key: Key,
    /// What the descriptor is ready for; never empty.
    pub ready: Ready,
}

/// What one call of [`Readiness::wait`] did, apart from its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// How many system calls were made.
    pub syscalls: u32,
    /// Whether the kernel's queue had overflowed. Unless [`MechanismOptions::ignore_overflow`], all attached
    /// descriptors were then polled to recover the lost events.
    pub overflowed: bool,
    /// How many kernel events were merged into another event of this batch.
    pub coalesced: u32,
    /// How many kernel events were dropped because their descriptor has another owner now.
    pub stale: u32,
    /// Whether a [`Waker`] ended the wait.
    pub woken: bool,
}

/// The contract of a dispatch mechanism.
///
/// Each worker has a value of its own, made on the worker's thread (see [`Features::THREAD_BOUND`]) and used
/// only there. `dyn` costs nothing measurable: waiting and most other methods make system calls.
///
/// The conformance suite checks these rules for every mechanism:
/// - an event may be *spurious*: the announced read returns `EAGAIN`;
/// - no event is *missing*;
/// - an event is reported only under the key that the descriptor had when the event happened;
/// - the owner calls `detach` before `close(2)`;
/// - after `detach`, no event with that key is reported, not even one that was queued before.
pub trait Readiness {
    /// Registers `fd` under `key`. A mechanism with [`Features::EDGE`] ignores `interest` and always watches
    /// both directions.
    ///
    /// # Errors
    /// `EEXIST`: `fd` is attached already. `EBADF`. `EPERM`: the mechanism cannot wait for this kind of
    /// file, for example epoll for a regular file. `ENOSPC`, `ENOMEM`: a kernel table is full.
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()>;

    /// Registers a listening socket that several workers wait for. A connection wakes one waiting worker.
    /// [`Readiness::want`] cannot be used for this socket: the owner detaches the socket while it wants no
    /// events.
    ///
    /// # Errors
    /// As [`Readiness::attach`]. `Unsupported` without [`Features::EXCLUSIVE`].
    fn attach_exclusive(&mut self, _fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Replaces the interest of an attached descriptor. With [`Features::REARM`], also arms the descriptor
    /// again after an event. With an empty interest the descriptor stays attached, and at most one hang-up
    /// or error is reported.
    ///
    /// # Errors
    /// `ENOENT`: `fd` is not attached. A mechanism with [`Features::EDGE`] may return `Ok` instead.
    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()>;

    /// Removes a descriptor. The owner calls this method before close(2).
    ///
    /// # Errors
    /// `ENOENT`: `fd` is not attached. Some mechanisms return `EPERM` for a file that they cannot wait for.
    fn detach(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()>;

    /// Waits until an attached descriptor is ready, a [`Waker`] wakes this mechanism, or `timeout` has
    /// passed. Appends the events to `events`. Without a `timeout` there is no limit; with a zero
    /// `timeout` the call does not block. Returns without events when a signal handler ran (`EINTR`).
    ///
    /// # Errors
    /// `ENOMEM`. `EINVAL`: more descriptors are attached than `RLIMIT_NOFILE` allows (poll(2)).
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch>;

    /// The waker of a mechanism that an eventfd cannot wake: signal mechanisms. `None`: [`Dispatcher`]
    /// attaches an eventfd instead.
    ///
    /// # Errors
    /// The kernel's answer when the waker is made.
    fn own_waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(None)
    }
}

/// A time-out as `struct timespec`. A time-out with too many seconds becomes the longest possible one.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}
