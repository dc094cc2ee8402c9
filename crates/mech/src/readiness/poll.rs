//! `poll`: poll(2) over one array that is kept between the calls.
//!
//! The kernel copies 8 bytes per descriptor in and 2 out, asks each file, and,
//! if it has to sleep, adds one wait-queue entry per file and takes it off
//! again: every wait costs in the number of *attached* descriptors. What the
//! kept array saves is building it anew.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{Features, Kind, Mechanism};
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest, Readiness};

/// poll(2).
pub(crate) static POLL: Mechanism = Mechanism {
    name: "poll",
    summary: "poll(2) over an array that is kept",
    features: Features::COALESCES.union(Features::REPORTS_HANGUP),
    waits_with: &["ppoll"],
    kind: Kind::Readiness { open: |_| Ok(Box::new(Poll::new())) },
};

struct Poll {
    set: Vec<libc::pollfd>,
    /// The key of each entry of `set`.
    keys: Vec<Key>,
    /// Where in `set` a descriptor is.
    positions: Descriptors<usize>,
}

impl Poll {
    fn new() -> Poll {
        Poll { set: Vec::new(), keys: Vec::new(), positions: Descriptors::new() }
    }
}

impl Readiness for Poll {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        self.positions.insert(fd.as_raw_fd(), self.set.len())?;
        self.set.push(entry(fd.as_raw_fd(), interest));
        self.keys.push(key);
        Ok(())
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        let at = *self.positions.get_mut(fd.as_raw_fd())?;
        self.set[at] = entry(fd.as_raw_fd(), interest);
        self.keys[at] = key;
        Ok(())
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        let at = self.positions.remove(fd.as_raw_fd())?;
        self.set.swap_remove(at);
        self.keys.swap_remove(at);
        if let Some(moved) = self.set.get(at) {
            *self.positions.get_mut(descriptor(moved))? = at;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let count = pollfd::wait(&mut self.set, timeout)?;
        let reported = self.set.iter().zip(&self.keys).filter(|(entry, _)| entry.revents != 0);
        events.extend(
            reported
                .take(count)
                .map(|(entry, &key)| Event { key, ready: pollfd::ready(entry.revents) }),
        );
        Ok(Batch { syscalls: 1, ..Batch::default() })
    }
}

/// Without interest the descriptor is entered as its complement: the kernel
/// skips negative ones, where it would report `POLLHUP` and `POLLERR` of an
/// entry without bits at each wait.
fn entry(fd: RawFd, interest: Interest) -> libc::pollfd {
    let fd = if interest.is_empty() { !fd } else { fd };
    libc::pollfd { fd, events: pollfd::bits(interest), revents: 0 }
}

/// The inverse of [`entry`].
fn descriptor(entry: &libc::pollfd) -> RawFd {
    if entry.fd < 0 { !entry.fd } else { entry.fd }
}
