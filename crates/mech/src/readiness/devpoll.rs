//! `devpoll`: a model of /dev/poll in user space, and a mechanism that uses the model.
//!
//! /dev/poll keeps the interest set in the kernel: write(2) to the device changes the set, and ioctl(2) returns
//! the ready entries. Provos and Lever ported the device from Solaris to Linux 2.2. A port to Linux 2.4.6 was
//! posted to linux-kernel on 11 July 2001 and never merged: "the patch" in this file. [`DevPoll`] has the
//! device's calls, over an array and poll(2).
//!
//! The model and the patch both have: adding, replacing and removing by write; a result area; a wait that asks
//! *every* file in the set and adds a wait-queue entry for each. One difference: at each wait the model copies
//! 8 bytes per entry into the kernel, and the device copied none.
//!
//! Three other parts of the patch can be switched on ([`DevPollModel`]): driver hints, by which the device
//! skipped files that had not changed; a walk over the 8192 buckets of a hash table at each scan; and a lock
//! in the place of the big kernel lock, held during each scan. With any of these parts, the model separates
//! scan and sleep, as the patch did: a scan is a poll(2) that does not block, and the sleep waits for a change.
//! [`DevPollModel::READY_LIST`], which the patch had not, asks the files of a list alone. The model's hints are such a list,
//! so that both cost the same here; the kernel's device (`kernel/devpoll`) looks for hints at every file of the set.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{DevPollModel, Features, Mechanism, MechanismKind, MechanismOptions};
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest, Readiness};
use crate::thread_pool::lock;

mod device;
mod hints;
mod table;

use device::KernelDevice;
pub(crate) use device::PATH;
use hints::Hints;
use table::HashTable;

/// The /dev/poll model.
pub(crate) static DEVPOLL: Mechanism = Mechanism {
    name: "devpoll",
    summary: "/dev/poll, a model on poll(2): Linux never merged the device",
    features: Features::COALESCES.union(Features::REPORTS_HANGUP).union(Features::MODEL),
    waits_with: &["ppoll"],
    kind: MechanismKind::Readiness { open: |options| Ok(Box::new(Device::open(options)?)) },
};

/// An entry written to, or returned by, a [`DevPoll`].
pub type PollFd = libc::pollfd;

/// A bit in `events` of a written entry: removes the descriptor from the set. The value is that of the patch;
/// Solaris has 0x0800.
pub const POLLREMOVE: i16 = 0x1000;

/// The lock that all devices share, with [`DevPollModel::LOCK`]. The patch took the big kernel lock.
static GLOBAL: Mutex<()> = Mutex::new(());

/// The model of an open /dev/poll: an interest set and a result area.
///
/// ```
/// use drover_mech::readiness::devpoll::{DevPoll, POLLREMOVE, PollFd};
/// use std::os::fd::AsRawFd;
///
/// let (reader, writer) = std::io::pipe()?;
/// let entry = |events| PollFd { fd: reader.as_raw_fd(), events, revents: 0 };
/// let mut device = DevPoll::open(64);
/// device.write(&[entry(libc::POLLIN)])?;
/// drop(writer);
/// let ready = device.poll(64, None)?;
/// assert_eq!((ready.len(), ready[0].revents), (1, libc::POLLHUP));
/// device.write(&[entry(POLLREMOVE)])?;
/// assert_eq!(device.is_polled(reader.as_raw_fd()), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DevPoll {
    /// The interest set.
    set: Vec<PollFd>,
    /// The index in `set` of each descriptor.
    positions: Descriptors<usize>,
    /// The result area. The device maps its result area into the process.
    area: Vec<PollFd>,
    /// How many results fit into the area.
    area_size: usize,
    /// The index in `set` at which the next collection of results begins.
    next: usize,
    model: DevPollModel,
    /// Reports changes of descriptors. `None` if `model` is empty.
    hints: Option<Hints>,
    /// The hash table that each scan walks over, with [`DevPollModel::WALK`].
    table: Option<HashTable>,
}

impl DevPoll {
    /// Opens a device with a result area for `area_size` entries: open(2), `ioctl(DP_ALLOC)` and mmap(2).
    #[must_use]
    pub fn open(area_size: usize) -> DevPoll {
        DevPoll {
            set: Vec::new(),
            positions: Descriptors::new(),
            area: Vec::with_capacity(area_size),
            area_size,
            next: 0,
            model: DevPollModel::empty(),
            hints: None,
            table: None,
        }
    }

    /// Opens a device like [`DevPoll::open`], with these further parts of the patch.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`: the epoll instance that reports changes cannot be made.
    pub fn open_model(area_size: usize, model: DevPollModel) -> io::Result<DevPoll> {
        Ok(DevPoll {
            model,
            hints: if model.is_empty() { None } else { Some(Hints::new()?) },
            table: model.contains(DevPollModel::WALK).then(HashTable::new),
            ..DevPoll::open(area_size)
        })
    }

    /// write(2): adds each entry to the set. For a descriptor in the set, *replaces* its `events`, as the patch
    /// does; Solaris ORs the old and the new ones. An entry with [`POLLREMOVE`] removes its descriptor, if it
    /// is in the set.
    ///
    /// # Errors
    /// `EBADF`: an entry has a negative descriptor. The entries before it have been written. A descriptor that
    /// is not open is no error: the next scan drops it.
    pub fn write(&mut self, entries: &[PollFd]) -> io::Result<()> {
        for &PollFd { fd, events, .. } in entries {
            if fd < 0 {
                return Err(Errno::BADF.into());
            }
            if events & POLLREMOVE != 0 {
                self.remove(fd);
                continue;
            } else if let Ok(&mut at) = self.positions.get_mut(fd) {
                self.set[at].events = events;
            } else {
                self.positions.insert(fd, self.set.len())?;
                self.set.push(PollFd { fd, events, revents: 0 });
                if let Some(table) = &mut self.table {
                    table.insert(fd);
                }
            }
            if let Some(hints) = &mut self.hints {
                hints.written(fd)?;
            }
        }
        Ok(())
    }

    /// `ioctl(DP_POLL)`: waits until an entry is ready or `timeout` has passed (`None`: no limit). Returns the
    /// ready entries in the result area: at most `dp_nfds`, and at most as many as fit into the area. If more
    /// entries are ready, the next call begins with them. Returns no entries after a signal handler ran.
    ///
    /// A descriptor in the set that was closed without [`POLLREMOVE`] is dropped from the set silently.
    ///
    /// # Errors
    /// As ppoll(2). `EINVAL`: the set is larger than `RLIMIT_NOFILE`. `ENOMEM`.
    pub fn poll(&mut self, dp_nfds: usize, timeout: Option<Duration>) -> io::Result<&[PollFd]> {
        let limit = dp_nfds.min(self.area_size);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.area.clear();
        if !self.model.is_empty() {
            return self.poll_apart(limit, timeout, deadline);
        }
        let mut rest = timeout;
        while pollfd::wait(&mut self.set, rest)? > 0 {
            let dropped = self.drop_closed();
            self.collect(limit);
            if !self.area.is_empty() || !dropped {
                break;
            }
            rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
        Ok(&self.area)
    }

    /// `ioctl(DP_ISPOLLED)`: the `events` of a descriptor; `None` if it is not in the set.
    #[must_use]
    pub fn is_polled(&self, fd: RawFd) -> Option<i16> {
        self.positions.get(fd).map(|&at| self.set[at].events)
    }

    /// [`DevPoll::poll`] for a model that separates scan and sleep.
    fn poll_apart(
        &mut self,
        limit: usize,
        timeout: Option<Duration>,
        deadline: Option<Instant>,
    ) -> io::Result<&[PollFd]> {
        let mut rest = timeout;
        loop {
            let scanned = {
                let _guard = self.model.contains(DevPollModel::LOCK).then(|| lock(&GLOBAL));
                self.scan(limit)?
            };
            if scanned == Scanned::Ready {
                break;
            }
            if scanned == Scanned::Nothing {
                let Some(hints) = &self.hints else { break };
                if rest.is_some_and(|rest| rest.is_zero()) || !hints.sleep(rest)? {
                    break;
                }
            }
            rest = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
        Ok(&self.area)
    }

    /// Asks the descriptors without blocking, and puts the ready entries into the area.
    fn scan(&mut self, limit: usize) -> io::Result<Scanned> {
        if let Some(table) = &self.table {
            table.walk();
        }
        let Some(hints) = &mut self.hints else { return Ok(Scanned::Nothing) };
        // The hints are taken before the descriptors are asked, so that a later change ends the sleep.
        hints.take()?;
        let marked = hints.take_marked();
        let dropped = if self.model.intersects(DevPollModel::HINTS | DevPollModel::READY_LIST) {
            self.ask_marked(&marked, limit)?
        } else if pollfd::wait(&mut self.set, Some(Duration::ZERO))? > 0 {
            let dropped = self.drop_closed();
            self.collect(limit);
            dropped
        } else {
            false
        };
        Ok(match (self.area.is_empty(), dropped) {
            (false, _) => Scanned::Ready,
            (true, true) => Scanned::Dropped,
            (true, false) => Scanned::Nothing,
        })
    }

    /// Asks the marked descriptors. Ready descriptors stay marked. Ready descriptors that do not fit into the
    /// area are the first of the next scan. Returns whether a closed descriptor was dropped.
    fn ask_marked(&mut self, marked: &[RawFd], limit: usize) -> io::Result<bool> {
        let entry_of = |fd: &RawFd| Some(self.set[*self.positions.get(*fd)?]);
        let mut asked: Vec<PollFd> = marked.iter().filter_map(entry_of).collect();
        pollfd::wait(&mut asked, Some(Duration::ZERO))?;
        let mut dropped = false;
        let mut ready = Vec::new();
        for entry in asked.into_iter().filter(|entry| entry.revents != 0) {
            if entry.revents & libc::POLLNVAL != 0 {
                self.remove(entry.fd);
                dropped = true;
            } else {
                ready.push(entry);
            }
        }
        let (now, later) = ready.split_at(limit.min(ready.len()));
        self.area.extend_from_slice(now);
        if let Some(hints) = &mut self.hints {
            later.iter().chain(now).for_each(|entry| hints.mark(entry.fd));
        }
        Ok(dropped)
    }

    fn remove(&mut self, fd: RawFd) {
        if let Ok(at) = self.positions.remove(fd) {
            if let Some(hints) = &self.hints {
                hints.removed(fd);
            }
            if let Some(table) = &mut self.table {
                table.remove(fd);
            }
            self.set.swap_remove(at);
            if let Some(moved) = self.set.get(at)
                && let Ok(position) = self.positions.get_mut(moved.fd)
            {
                *position = at;
            }
        }
    }

    /// Drops closed descriptors from the set. Returns whether there were any.
    fn drop_closed(&mut self) -> bool {
        let closed = |entry: &&PollFd| entry.revents & libc::POLLNVAL != 0;
        let closed: Vec<RawFd> = self.set.iter().filter(closed).map(|entry| entry.fd).collect();
        closed.iter().for_each(|&fd| self.remove(fd));
        !closed.is_empty()
    }

    /// Copies up to `limit` ready entries into the area. The next call continues behind the last of them.
    fn collect(&mut self, limit: usize) {
        let len = self.set.len();
        let start = self.next.min(len);
        let order = (start..len).chain(0..start);
        let ready = order.filter(|&at| self.set[at].revents != 0).take(limit);
        for at in ready {
            self.area.push(self.set[at]);
            self.next = at + 1;
        }
    }
}

/// The result of [`DevPoll::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scanned {
    /// The area has ready entries.
    Ready,
    /// No entry is ready, and closed descriptors were dropped from the set.
    Dropped,
    /// No entry is ready.
    Nothing,
}

/// Whether this kernel has the device. If not, the mechanism uses the model.
#[must_use]
pub fn is_real() -> bool {
    device::exists()
}

/// The mechanism: a device, and the key of each descriptor.
struct Device {
    device: ModelOrKernel,
    keys: Descriptors<Key>,
}

/// The device of the kernel, or its model, with the same calls.
#[derive(Debug)]
enum ModelOrKernel {
    Model(DevPoll),
    Kernel(KernelDevice),
}

impl ModelOrKernel {
    /// The kernel's device, where there is one.
    fn open(area_size: usize, model: DevPollModel) -> io::Result<ModelOrKernel> {
        Ok(match is_real() {
            true => ModelOrKernel::Kernel(KernelDevice::open(area_size, model)?),
            false => ModelOrKernel::Model(DevPoll::open_model(area_size, model)?),
        })
    }

    fn write(&mut self, entries: &[PollFd]) -> io::Result<()> {
        match self {
            ModelOrKernel::Model(model) => model.write(entries),
            ModelOrKernel::Kernel(device) => device.write(entries),
        }
    }

    fn poll(&mut self, dp_nfds: usize, timeout: Option<Duration>) -> io::Result<&[PollFd]> {
        match self {
            ModelOrKernel::Model(model) => model.poll(dp_nfds, timeout),
            ModelOrKernel::Kernel(device) => device.poll(dp_nfds, timeout),
        }
    }
}

impl Device {
    fn open(options: &MechanismOptions) -> io::Result<Device> {
        let device = ModelOrKernel::open(options.events_per_wait.max(1), options.devpoll)?;
        Ok(Device { device, keys: Descriptors::new() })
    }

    /// Writes the interest of a descriptor. An empty interest removes the descriptor from the device, which
    /// would otherwise report `POLLHUP` and `POLLERR` at each wait.
    fn write(&mut self, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        let events = if interest.is_empty() { POLLREMOVE } else { pollfd::bits(interest) };
        self.device.write(&[PollFd { fd: fd.as_raw_fd(), events, revents: 0 }])
    }
}

impl Readiness for Device {
    fn attach(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        self.keys.insert(fd.as_raw_fd(), key)?;
        self.write(fd, interest)
    }

    fn want(&mut self, fd: BorrowedFd<'_>, key: Key, interest: Interest) -> io::Result<()> {
        *self.keys.get_mut(fd.as_raw_fd())? = key;
        self.write(fd, interest)
    }

    fn detach(&mut self, fd: BorrowedFd<'_>, _key: Key) -> io::Result<()> {
        self.keys.remove(fd.as_raw_fd())?;
        self.write(fd, Interest::empty())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<Batch> {
        for entry in self.device.poll(usize::MAX, timeout)? {
            let ready = pollfd::ready(entry.revents);
            events.extend(self.keys.get(entry.fd).map(|&key| Event { key, ready }));
        }
        Ok(Batch { syscalls: 1, ..Batch::default() })
    }
}

#[cfg(test)]
mod tests;
