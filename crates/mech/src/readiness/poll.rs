//! `poll`: poll(2) over an array that is kept between the calls.
//!
//! For each entry, the kernel copies 8 bytes in and 2 bytes out and asks the file (`f_op->poll`). If the
//! call has to sleep, the kernel also adds and removes a wait-queue entry for each file. So the cost of a
//! wait grows with the number of *attached* descriptors. Keeping the array saves only its construction.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind};
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest, Readiness};

/// poll(2).
pub(crate) static POLL: Mechanism = Mechanism {
    name: "poll",
    summary: "poll(2) over an array that is kept",
    features: Features::COALESCES.union(Features::REPORTS_HANGUP),
    waits_with: &["ppoll"],
    kind: MechanismKind::Readiness { open: |_| Ok(Box::new(Poll::new())) },
};

struct Poll {
    set: Vec<libc::pollfd>,
    /// The key of each entry of `set`.
    keys: Vec<Key>,
    /// The index in `set` of each descriptor.
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

/// Makes an entry. With an empty interest, the entry has the complement of the descriptor, a negative
/// number, because the kernel ignores negative descriptors (poll(2)). An entry with the descriptor and no
/// bits would still report `POLLHUP` and `POLLERR` at each wait.
fn entry(fd: RawFd, interest: Interest) -> libc::pollfd {
    let fd = if interest.is_empty() { !fd } else { fd };
    libc::pollfd { fd, events: pollfd::bits(interest), revents: 0 }
}

/// The descriptor of an entry that [`entry`] made.
fn descriptor(entry: &libc::pollfd) -> RawFd {
    if entry.fd < 0 { !entry.fd } else { entry.fd }
}
