//! `devepoll`: /dev/epoll, the first epoll, where a kernel has it: the module of `kernel/devepoll` (docs/kernel.md).
//!
//! Libenzi's device of 2001 had the wake-up of a file itself write the result, into memory that the process has mapped. It
//! keeps two arrays: files write into one while the process reads the other, and `ioctl(EP_POLL)` exchanges them. So a wait
//! asks no file and copies no result. What is reported are changes: a descriptor that was ready before it was attached is
//! not reported ([`Features::MISSES_EARLIER`]). epoll(7), which Linux merged in 2002, has a list in the place of the arrays,
//! and asks the files on it.
//!
//! A kernel without the device has no such mechanism. It is no model: edge-triggered epoll (`epoll-et`) is what became of
//! the device, and is listed under its own name.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{Features, Mechanism, MechanismKind};
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest, Readiness};

mod device;

use device::EpollDevice;
pub(crate) use device::PATH;

/// The /dev/epoll mechanism.
pub(crate) static DEVEPOLL: Mechanism = Mechanism {
    name: "devepoll",
    summary: "/dev/epoll, the first epoll: results in mapped memory, by a kernel module",
    features: Features::EDGE
        .union(Features::KERNEL_SET)
        .union(Features::MISSES_EARLIER)
        .union(Features::COALESCES),
    waits_with: &["ioctl"],
    kind: MechanismKind::Readiness { open: |_| Ok(Box::new(DevEpoll::open()?)) },
};

/// What a descriptor is attached for, as the device's author had it. A wake-up that names no events counts as
/// `POLLIN` and `POLLOUT`.
const EVENTS: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP;

/// In the events of a written entry: takes the descriptor out of the set. `DEVEPOLL_REMOVE` of devepoll.h.
const POLLREMOVE: i16 = 0x1000;

/// The mechanism: a device, and the key of each descriptor.
struct DevEpoll {
    device: EpollDevice,
    keys: Descriptors<Key>,
}

impl DevEpoll {
    /// Opens a device with room for as many descriptors as this process may have now, 131,072 at most.
    fn open() -> io::Result<DevEpoll> {
        let slots = drover_sys::process::open_files_limit().soft.unwrap_or(u64::MAX);
        Ok(DevEpoll { device: EpollDevice::open(slots)?, keys: Descriptors::new() })
    }

    fn write(&mut self, fd: BorrowedFd<'_>, events: i16) -> io::Result<()> {
        self.device.write(&[libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }])
    }
}

impl Readiness for DevEpoll {
    /// `ENOSPC`: the device has no room for another descriptor.
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, _interest: Interest) -> io::Result<()> {
        self.keys.insert(fd.as_raw_fd(), key)?;
        let written = self.write(fd, EVENTS);
        if written.is_err() {
            self.keys.remove(fd.as_raw_fd())?;
        }
        written
    }

    fn want(&mut self, _fd: BorrowedFd<'_>, _key: Key, _interest: Interest) -> io::Result<()> {
        Ok(())
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        self.keys.remove(fd.as_raw_fd())?;
        self.write(fd, POLLREMOVE)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        let mut batch = Batch { syscalls: 1, ..Batch::default() };
        for entry in self.device.poll(timeout)? {
            match self.keys.get(entry.fd) {
                Some(&key) => events.push(Event { key, ready: pollfd::ready(entry.revents) }),
                // Closed without detaching, and open as another descriptor.
                None => batch.stale += 1,
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
