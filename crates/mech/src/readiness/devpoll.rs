//! `devpoll`: a model of /dev/poll in user space, and the mechanism over it.
//!
//! /dev/poll keeps the interest set in the kernel: writes to the device change
//! it, an ioctl returns the entries that are ready. Provos and Lever ported it
//! from Solaris to Linux 2.2; a port to 2.4.6 was posted to linux-kernel on
//! 11 July 2001; it was never merged. [`DevPoll`] has the same calls over one
//! kept array and poll(2).
//!
//! What the model shares with the patch: adding, replacing and removing by
//! write, a result area, and a wait that asks *every* file in the set and adds
//! a wait-queue entry for each. What it does not share: it copies 8 bytes per
//! entry into the kernel at each wait, which the device did not have to. Three
//! other parts of the patch can be switched on ([`DevPollModel`]): driver hints,
//! which let the device skip files that have not changed; the walk over the 8192
//! buckets of a hash table at each scan; and the big kernel lock, held meanwhile.
//! With any of them the model scans apart from its sleep, as the patch did: a
//! scan is then a poll(2) that does not wait, and the sleep a wait for a change.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::support::descriptors::Descriptors;
use crate::key::Key;
use crate::mechanism::{DevPollModel, Features, Kind, Mechanism, Options};
use crate::readiness::support::pollfd;
use crate::readiness::{Batch, Event, Interest, Readiness};
use crate::thread_pool::lock;

mod hints;
mod table;

use hints::Hints;
use table::HashTable;

/// The /dev/poll model.
pub(crate) static DEVPOLL: Mechanism = Mechanism {
    name: "devpoll",
    summary: "/dev/poll, a model on poll(2): Linux never merged the device",
    features: Features::COALESCES.union(Features::REPORTS_HANGUP).union(Features::MODEL),
    waits_with: &["ppoll"],
    kind: Kind::Readiness { open: |options| Ok(Box::new(Device::open(options)?)) },
};

/// An entry written to, or returned by, a [`DevPoll`].
pub type PollFd = libc::pollfd;

/// In `events` of a written entry: take the descriptor out of the set. The value
/// is the Linux patch's (Solaris has 0x0800).
pub const POLLREMOVE: i16 = 0x1000;

/// The lock of all devices; the patch took the big kernel lock.
static GLOBAL: Mutex<()> = Mutex::new(());

/// The model of an open /dev/poll: an interest set and a result area.
///
/// ```
/// use mech::readiness::devpoll::{DevPoll, POLLREMOVE, PollFd};
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
    set: Vec<PollFd>,
    /// Where in `set` a descriptor is.
    positions: Descriptors<usize>,
    /// What the device maps into the process.
    area: Vec<PollFd>,
    /// How many results fit into the area.
    area_size: usize,
    /// Where the next scan for results begins.
    next: usize,
    model: DevPollModel,
    /// What tells of changes, where scans are apart from the sleep.
    hints: Option<Hints>,
    /// What scans walk over, if they do.
    table: Option<HashTable>,
}

impl DevPoll {
    /// open(2), then `DP_ALLOC` and mmap(2) of a result area for `area_size`
    /// entries.
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

    /// The same, with these parts of the patch.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`: changes are told by an epoll instance.
    pub fn open_model(area_size: usize, model: DevPollModel) -> io::Result<DevPoll> {
        Ok(DevPoll {
            model,
            hints: if model.is_empty() { None } else { Some(Hints::new()?) },
            table: model.contains(DevPollModel::WALK).then(HashTable::new),
            ..DevPoll::open(area_size)
        })
    }

    /// write(2): adds each entry to the set, or *replaces* the `events` of its
    /// descriptor (Solaris ORs them), or with [`POLLREMOVE`] takes it out (no
    /// error if it is not in).
    ///
    /// # Errors
    /// `EBADF` at a negative descriptor; the entries before it have been
    /// written. One that is not open is dropped by the next scan.
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

    /// `ioctl(DP_POLL)`: waits until an entry is ready or `timeout` has passed
    /// (`None`: no limit) and returns the ready ones in the result area, at
    /// most `dp_nfds` and at most as many as the area holds.
    ///
    /// A descriptor that was closed behind the device's back is dropped from
    /// the set silently. Where not all that is ready fits, the next call begins
    /// with the rest. Empty also when a signal handler ran.
    ///
    /// # Errors
    /// As ppoll(2): `EINVAL` if the set is larger than `RLIMIT_NOFILE`, `ENOMEM`.
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

    /// `ioctl(DP_ISPOLLED)`: the `events` that are asked for of a descriptor, if
    /// it is in the set.
    #[must_use]
    pub fn is_polled(&self, fd: RawFd) -> Option<i16> {
        self.positions.get(fd).map(|&at| self.set[at].events)
    }

    /// [`DevPoll::poll`] with scans apart from the sleep.
    fn poll_apart(
        &mut self,
        limit: usize,
        timeout: Option<Duration>,
        deadline: Option<Instant>,
    ) -> io::Result<&[PollFd]> {
        let mut rest = timeout;
        loop {
            let scanned = {
                let _held = self.model.contains(DevPollModel::LOCK).then(|| lock(&GLOBAL));
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

    /// Asks the descriptors, without waiting, and puts what is ready into the area.
    fn scan(&mut self, limit: usize) -> io::Result<Scanned> {
        if let Some(table) = &self.table {
            table.walk();
        }
        let Some(hints) = &mut self.hints else { return Ok(Scanned::Nothing) };
        // Before the descriptors are asked: what changes afterwards ends the sleep.
        hints.take()?;
        let marked = hints.take_marked();
        let dropped = if self.model.contains(DevPollModel::HINTS) {
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

    /// Asks the marked descriptors. Those that are ready stay marked; those that do not fit into the area
    /// are the first of the next scan. Whether there were closed ones.
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

    /// Whether there were any.
    fn drop_closed(&mut self) -> bool {
        let closed = |entry: &&PollFd| entry.revents & libc::POLLNVAL != 0;
        let closed: Vec<RawFd> = self.set.iter().filter(closed).map(|entry| entry.fd).collect();
        closed.iter().for_each(|&fd| self.remove(fd));
        !closed.is_empty()
    }

    /// Moves what is ready into the area, and remembers where to go on.
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

/// What a scan apart from the sleep has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scanned {
    /// There are results in the area.
    Ready,
    /// Only descriptors that were closed, and are out of the set now.
    Dropped,
    Nothing,
}

/// The mechanism: a device, and whose each descriptor is.
struct Device {
    device: DevPoll,
    keys: Descriptors<Key>,
}

impl Device {
    fn open(options: &Options) -> io::Result<Device> {
        let device = DevPoll::open_model(options.events_per_wait.max(1), options.devpoll)?;
        Ok(Device { device, keys: Descriptors::new() })
    }

    /// Without interest the entry is taken out: the device would report
    /// `POLLHUP` and `POLLERR` of it at each wait.
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
mod tests {
    use std::collections::BTreeSet;
    use std::io::{PipeReader, PipeWriter, Write, pipe};

    use super::*;

    fn entry(fd: &impl AsRawFd, events: i16) -> PollFd {
        PollFd { fd: fd.as_raw_fd(), events, revents: 0 }
    }

    fn readable() -> (PipeReader, PipeWriter) {
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"x").unwrap();
        (reader, writer)
    }

    /// A device of each model.
    fn on_each(area_size: usize, case: impl Fn(DevPoll)) {
        for bits in 0..=DevPollModel::all().bits() {
            let model = DevPollModel::from_bits_truncate(bits);
            case(DevPoll::open_model(area_size, model).unwrap());
        }
    }

    fn look(device: &mut DevPoll, dp_nfds: usize) -> Vec<RawFd> {
        let ready = device.poll(dp_nfds, Some(Duration::ZERO)).unwrap();
        ready.iter().map(|entry| entry.fd).collect()
    }

    #[test]
    fn a_second_write_replaces_the_events() {
        on_each(8, |mut device| {
            let (reader, _writer) = readable();
            device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
            device.write(&[entry(&reader, libc::POLLPRI)]).unwrap();
            assert_eq!(device.is_polled(reader.as_raw_fd()), Some(libc::POLLPRI));
            assert!(look(&mut device, 8).is_empty());
            device.write(&[entry(&reader, libc::POLLIN)]).unwrap();
            assert_eq!(look(&mut device, 8), [reader.as_raw_fd()]);
        });
    }

    #[test]
    fn pollremove_takes_out_what_is_in_and_ignores_what_is_not() {
        on_each(8, |mut device| {
            let pipes = [readable(), readable(), readable()];
            let fds = pipes.each_ref().map(|(reader, _)| reader.as_raw_fd());
            device.write(&pipes.each_ref().map(|(reader, _)| entry(reader, libc::POLLIN))).unwrap();
            device
                .write(&[entry(&pipes[0].0, POLLREMOVE), entry(&pipes[0].0, POLLREMOVE)])
                .unwrap();
            assert_eq!(device.is_polled(fds[0]), None);
            let ready: BTreeSet<RawFd> = look(&mut device, 8).into_iter().collect();
            assert_eq!(ready, fds[1..].iter().copied().collect());
        });
    }

    #[test]
    fn dp_nfds_and_the_area_limit_the_results_and_the_rest_comes_next() {
        on_each(3, |mut device| {
            let pipes: Vec<_> = (0..5).map(|_| readable()).collect();
            for (reader, _) in &pipes {
                device.write(&[entry(reader, libc::POLLIN)]).unwrap();
            }
            let mut seen = look(&mut device, 2);
            assert_eq!(seen.len(), 2);
            let next = look(&mut device, 100);
            assert_eq!(next.len(), 3, "the area holds three");
            seen.extend(next);
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 5, "all were reported before one was repeated");
        });
    }

    #[test]
    fn a_descriptor_closed_behind_its_back_is_dropped_and_the_wait_goes_on() {
        on_each(8, |mut device| {
            let (reader, _writer) = readable();
            let fd = reader.as_raw_fd();
            // A number far above those that other tests are given meanwhile.
            let high = rustix::io::fcntl_dupfd_cloexec(&reader, fd + 500).unwrap();
            device.write(&[entry(&high, libc::POLLIN)]).unwrap();
            let closed = high.as_raw_fd();
            drop(high);
            let patience = Duration::from_millis(20);
            let begin = Instant::now();
            assert!(device.poll(8, Some(patience)).unwrap().is_empty());
            assert!(begin.elapsed() >= patience, "the drop alone ended the wait");
            assert_eq!(device.is_polled(closed), None);
        });
    }

    #[test]
    fn a_negative_descriptor_is_refused() {
        let error = DevPoll::open(1).write(&[PollFd { fd: -1, events: 1, revents: 0 }]);
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
