//! The real /dev/poll, where a kernel has it: the module of `kernel/devpoll`.
//!
//! write(2) changes the set, `ioctl(DP_POLL)` scans and sleeps, and results lie in memory that the device has mapped into
//! the process.

use std::fs::File;
use std::io::{self, Write};
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::time::Duration;

use drover_sys::syscall;
use memmap2::{MmapOptions, MmapRaw};

use super::PollFd;
use crate::mechanism::DevPollModel;
use crate::readiness::support::pollfd::as_bytes;

/// The device's file.
pub(crate) const PATH: &str = "/dev/poll";

/// `struct devpoll_poll` of devpoll.h.
#[repr(C)]
struct DevPollRequest {
    results: u64,
    timeout_ns: i64,
    count: u32,
    reserved: u32,
}

/// What `_IOW(0xD0, number, T)` of ioctl.h is.
const fn request<T>(number: u64) -> libc::c_ulong {
    (1 << 30) | ((size_of::<T>() as u64) << 16) | (0xD0 << 8) | number
}

const DP_MODE: libc::c_ulong = request::<u32>(0);
const DP_POLL: libc::c_ulong = request::<DevPollRequest>(1);
const DP_ALLOC: libc::c_ulong = request::<u32>(3);
/// `_IOR(0xD0, 4, u64)`.
#[cfg(test)]
const DP_ASKED: libc::c_ulong = (2 << 30) | (8 << 16) | (0xD0 << 8) | 4;
/// `_IOWR(0xD0, 2, u64)`.
#[cfg(test)]
const DP_ISPOLLED: libc::c_ulong = (1 << 31) | request::<u64>(2);

/// The parts of the patch and the list, and how the device calls them.
const MODES: [(DevPollModel, u32); 4] = [
    (DevPollModel::HINTS, 1 << 0),
    (DevPollModel::WALK, 1 << 1),
    (DevPollModel::LOCK, 1 << 2),
    (DevPollModel::READY_LIST, 1 << 3),
];

/// Whether this kernel has the device.
pub(super) fn exists() -> bool {
    std::fs::metadata(PATH).is_ok()
}

/// An open /dev/poll.
#[derive(Debug)]
pub(super) struct KernelDevice {
    file: File,
    area: MmapRaw,
    area_size: u32,
}

impl KernelDevice {
    /// Opens the device with a result area for `area_size` entries, 131,072 at most.
    pub(super) fn open(area_size: usize, model: DevPollModel) -> io::Result<KernelDevice> {
        let file = File::options().read(true).write(true).open(PATH)?;
        let area_size = area_size.clamp(1, 1 << 17) as u32;
        let modes = MODES.iter().filter(|(part, _)| model.contains(*part));
        let mode = modes.fold(0, |all, (_, mode)| all | mode);
        for (request, number) in [(DP_MODE, mode), (DP_ALLOC, area_size)] {
            // SAFETY: both requests read a u32 from the pointer, which is to a u32 that outlives the call.
            syscall!(ioctl(file.as_raw_fd(), request, &raw const number))?;
        }
        let len = area_size as usize * size_of::<PollFd>();
        let area = MmapOptions::new().len(len).map_raw_read_only(&file)?;
        Ok(KernelDevice { file, area, area_size })
    }

    /// As [`DevPoll::write`](super::DevPoll::write).
    pub(super) fn write(&mut self, entries: &[PollFd]) -> io::Result<()> {
        self.file.write_all(as_bytes(entries))
    }

    /// As [`DevPoll::is_polled`](super::DevPoll::is_polled).
    #[cfg(test)]
    pub(super) fn is_polled(&self, fd: std::os::fd::RawFd) -> io::Result<Option<i16>> {
        let mut entry = PollFd { fd, events: 0, revents: 0 };
        // SAFETY: the request reads and writes a pollfd, which outlives the call.
        let found = syscall!(ioctl(self.file.as_raw_fd(), DP_ISPOLLED, &raw mut entry))?;
        Ok((found > 0).then_some(entry.revents))
    }

    /// How many files the device has asked so far.
    #[cfg(test)]
    pub(super) fn asked(&self) -> io::Result<u64> {
        let mut asked = 0_u64;
        // SAFETY: the request writes a u64, which outlives the call.
        syscall!(ioctl(self.file.as_raw_fd(), DP_ASKED, &raw mut asked))?;
        Ok(asked)
    }

    /// Asks for results at an address that no process has.
    #[cfg(test)]
    pub(super) fn poll_into_nothing(&mut self) -> io::Result<()> {
        let ask = DevPollRequest { results: 8, timeout_ns: 0, count: 1, reserved: 0 };
        // SAFETY: the request reads a `DevPollRequest`, which outlives the call; its first page is mapped by nobody, and the
        // kernel checks what it writes to.
        syscall!(ioctl(self.file.as_raw_fd(), DP_POLL, &raw const ask)).map(drop)
    }

    /// As [`DevPoll::poll`](super::DevPoll::poll).
    pub(super) fn poll(
        &mut self,
        dp_nfds: usize,
        timeout: Option<Duration>,
    ) -> io::Result<&[PollFd]> {
        let timeout_ns = timeout.map_or(-1, |it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
        let count = u32::try_from(dp_nfds).unwrap_or(u32::MAX).min(self.area_size);
        let ask = DevPollRequest { results: 0, timeout_ns, count, reserved: 0 };
        // SAFETY: the request reads an `DevPollRequest` from the pointer, which is to one that outlives the call, and writes to the
        // area alone, of which no reference lives.
        let found = syscall!(ioctl(self.file.as_raw_fd(), DP_POLL, &raw const ask));
        let found = match found {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            found => found? as usize,
        };
        // SAFETY: the area begins at a page, has room for as many results as `DP_ALLOC` was told, and the device has
        // written `found` of them, at most `count`. It writes again at the next call, which needs `self` for itself.
        Ok(unsafe { std::slice::from_raw_parts(self.area.as_ptr().cast(), found) })
    }
}
