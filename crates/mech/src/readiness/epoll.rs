//! `epoll`, `epoll-et`, `epoll-oneshot`: epoll(7), three ways to register.
//!
//! The three are one file because the kernel object is one; they differ in a
//! flag and in when `EPOLL_CTL_MOD` is called:
//! - level-triggered entries are put *back* on the ready list at each report and
//!   polled again at the next wait, one extra `f_op->poll` per event;
//! - edge-triggered ones are registered once, for both directions, and never
//!   modified;
//! - one-shot ones are disabled by their event and cost one `EPOLL_CTL_MOD` to
//!   re-arm: what several threads on one instance need.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::key::Key;
use crate::mechanism::{Features, Kind, Mechanism, Options};
use crate::readiness::{Batch, Event, Interest, Readiness, Ready, timespec};

/// Level-triggered epoll.
pub(crate) static EPOLL: Mechanism = Mechanism {
    name: "epoll",
    summary: "epoll(7), level-triggered",
    features: Features::KERNEL_SET
        .union(Features::COALESCES)
        .union(Features::REPORTS_HANGUP)
        .union(Features::EXCLUSIVE),
    waits_with: &["epoll_pwait2"],
    kind: Kind::Readiness { open: |options| Epoll::open(options, epoll::EventFlags::empty()) },
};

/// Edge-triggered epoll.
pub(crate) static EPOLL_ET: Mechanism = Mechanism {
    name: "epoll-et",
    summary: "epoll(7), edge-triggered: registered once, no epoll_ctl per wait",
    features: EPOLL.features.union(Features::EDGE),
    waits_with: EPOLL.waits_with,
    kind: Kind::Readiness { open: |options| Epoll::open(options, epoll::EventFlags::ET) },
};

/// One-shot epoll.
pub(crate) static EPOLL_ONESHOT: Mechanism = Mechanism {
    name: "epoll-oneshot",
    summary: "epoll(7), one-shot: re-armed after each event",
    features: EPOLL.features.union(Features::REARM).difference(Features::EXCLUSIVE),
    waits_with: EPOLL.waits_with,
    kind: Kind::Readiness { open: |options| Epoll::open(options, epoll::EventFlags::ONESHOT) },
};

struct Epoll {
    instance: OwnedFd,
    mode: epoll::EventFlags,
    buffer: Vec<MaybeUninit<epoll::Event>>,
}

impl Epoll {
    fn open(options: &Options, mode: epoll::EventFlags) -> io::Result<Box<dyn Readiness>> {
        Ok(Box::new(Epoll {
            instance: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            mode,
            buffer: vec![MaybeUninit::uninit(); options.events_per_wait.max(1)],
        }))
    }

    fn edge(&self) -> bool {
        self.mode.contains(epoll::EventFlags::ET)
    }
}

impl Readiness for Epoll {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        let interest = if self.edge() { Interest::all() } else { interest };
        Ok(epoll::add(&self.instance, fd, data(key), flags(interest, self.mode))?)
    }

    /// `EPOLLEXCLUSIVE` can only be added, and goes with few other flags (epoll_ctl(2)). A listening
    /// socket is never writable: `EPOLLOUT` stands here so that [`sys::socket::wake_waiter`] is
    /// heard.
    fn attach_exclusive(&mut self, fd: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        if self.mode.contains(epoll::EventFlags::ONESHOT) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let flags = epoll::EventFlags::EXCLUSIVE
            | epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | (self.mode & epoll::EventFlags::ET);
        Ok(epoll::add(&self.instance, fd, data(key), flags)?)
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        if self.edge() {
            return Ok(());
        }
        Ok(epoll::modify(&self.instance, fd, data(key), flags(interest, self.mode))?)
    }

    /// Needed even where close(2) follows: a registration belongs to the open
    /// file, and lives on while a duplicate of the descriptor does.
    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        Ok(epoll::delete(&self.instance, fd)?)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let timeout = timeout.map(timespec);
        let (reported, _) =
            match epoll::wait(&self.instance, &mut self.buffer[..], timeout.as_ref()) {
                Ok(reported) => reported,
                Err(rustix::io::Errno::INTR) => (&mut [][..], &mut [][..]),
                Err(error) => return Err(error.into()),
            };
        events.extend(reported.iter().map(|event| Event {
            key: Key::from_bits(event.data.u64()),
            ready: ready(event.flags),
        }));
        Ok(Batch { syscalls: 1, ..Batch::default() })
    }
}

fn data(key: Key) -> epoll::EventData {
    epoll::EventData::new_u64(key.to_bits())
}

/// `EPOLLRDHUP` is asked for only together with reading, because a
/// level-triggered half-close would otherwise be reported without end. The
/// kernel reports `EPOLLERR` and `EPOLLHUP` even of an empty interest;
/// edge-triggered, it does so once.
fn flags(interest: Interest, mode: epoll::EventFlags) -> epoll::EventFlags {
    let mut flags = mode;
    if interest.is_empty() {
        flags |= epoll::EventFlags::ET;
    }
    if interest.contains(Interest::READABLE) {
        flags |= epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
    }
    if interest.contains(Interest::WRITABLE) {
        flags |= epoll::EventFlags::OUT;
    }
    flags
}

fn ready(flags: epoll::EventFlags) -> Ready {
    let mut ready = Ready::empty();
    if flags.contains(epoll::EventFlags::IN) {
        ready |= Ready::READABLE;
    }
    if flags.contains(epoll::EventFlags::OUT) {
        ready |= Ready::WRITABLE;
    }
    if flags.contains(epoll::EventFlags::RDHUP) {
        ready |= Ready::HANGUP | Ready::READABLE;
    }
    if flags.contains(epoll::EventFlags::HUP) {
        ready |= Ready::HANGUP | Ready::READABLE | Ready::WRITABLE;
    }
    if flags.contains(epoll::EventFlags::ERR) {
        ready |= Ready::ERROR | Ready::READABLE | Ready::WRITABLE;
    }
    ready
}
