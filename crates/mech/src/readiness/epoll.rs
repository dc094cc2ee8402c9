//! `epoll`, `epoll-et`, `epoll-oneshot`: epoll(7) with three kinds of registration.
//!
//! The three mechanisms use one kernel object, and differ in a flag and in when they call `EPOLL_CTL_MOD`:
//! - level-triggered (`epoll`): the kernel puts a reported entry *back* on the ready list and asks its file
//!   again at the next wait (`ep_send_events`): one extra `f_op->poll` per event;
//! - edge-triggered (`epoll-et`, `EPOLLET`): a descriptor is registered once, for both directions, and its
//!   registration never changes;
//! - one-shot (`epoll-oneshot`, `EPOLLONESHOT`): an event disables the registration, and an
//!   `EPOLL_CTL_MOD` arms it again. Several threads that share one instance need this.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;

use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind, MechanismOptions};
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
    kind: MechanismKind::Readiness {
        open: |options| Epoll::open(options, epoll::EventFlags::empty()),
    },
};

/// Edge-triggered epoll.
pub(crate) static EPOLL_ET: Mechanism = Mechanism {
    name: "epoll-et",
    summary: "epoll(7), edge-triggered: registered once, no epoll_ctl per wait",
    features: EPOLL.features.union(Features::EDGE),
    waits_with: EPOLL.waits_with,
    kind: MechanismKind::Readiness { open: |options| Epoll::open(options, epoll::EventFlags::ET) },
};

/// One-shot epoll.
pub(crate) static EPOLL_ONESHOT: Mechanism = Mechanism {
    name: "epoll-oneshot",
    summary: "epoll(7), one-shot: re-armed after each event",
    features: EPOLL.features.union(Features::REARM).difference(Features::EXCLUSIVE),
    waits_with: EPOLL.waits_with,
    kind: MechanismKind::Readiness {
        open: |options| Epoll::open(options, epoll::EventFlags::ONESHOT),
    },
};

struct Epoll {
    instance: OwnedFd,
    mode: epoll::EventFlags,
    buffer: Vec<MaybeUninit<epoll::Event>>,
}

impl Epoll {
    fn open(options: &MechanismOptions, mode: epoll::EventFlags) -> io::Result<Box<dyn Readiness>> {
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

    /// Registers with `EPOLLEXCLUSIVE` (Linux 4.5). `EPOLL_CTL_MOD` cannot be used for such a registration,
    /// and only `EPOLLIN`, `EPOLLOUT`, `EPOLLWAKEUP` and `EPOLLET` may be combined with the flag
    /// (epoll_ctl(2)). A listening socket is never writable; `EPOLLOUT` is there because
    /// [`drover_sys::socket::wake_waiter`] wakes only workers that asked for writability.
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

    /// Needed even if close(2) follows: a registration belongs to the open file, and stays while another
    /// process or thread has a duplicate of the descriptor open (epoll(7)).
    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        Ok(epoll::delete(&self.instance, fd)?)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let timeout = timeout.map(timespec);
        let (reported, _) =
            match epoll::wait(&self.instance, &mut self.buffer[..], timeout.as_ref()) {
                Ok(reported) => reported,
                Err(rustix::io::Errno::INTR) => (&mut [][..], &mut [][..]),
                Err(rustix::io::Errno::NOSYS) => {
                    let reason = "epoll_pwait2(2) is missing (Linux 5.11)";
                    return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
                }
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

/// The kernel's flags for an interest.
///
/// `EPOLLRDHUP` is set only together with `EPOLLIN`: a level-triggered registration would report a half-close
/// at each wait, even to an owner that does not read. The kernel reports `EPOLLERR` and `EPOLLHUP` for an
/// empty interest too; `EPOLLET` limits these reports to one.
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
