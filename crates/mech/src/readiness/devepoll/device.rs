//! An open /dev/epoll.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::time::Duration;

use drover_sys::syscall;
use libc::{c_ulong, pollfd};
use memmap2::{MmapOptions, MmapRaw};
use rustix::ioctl::opcode;

use crate::readiness::support::pollfd::as_bytes;

/// The device's file.
pub(crate) const PATH: &str = "/dev/epoll";

/// `DEVEPOLL_MOST` of devepoll.h: the most descriptors of a set.
const SLOTS_MOST: u64 = 1 << 17;

/// `struct devepoll_poll` of devepoll.h.
#[derive(Debug)]
#[repr(C)]
pub(super) struct EpollRequest {
    pub(super) timeout_ns: i64,
    pub(super) results_offset: u64,
}

/// What the device's requests of devepoll.h begin with.
pub(super) const GROUP: u8 = 0xD1;

pub(super) const EP_ALLOC: c_ulong = opcode::write::<u32>(GROUP, 1) as c_ulong;
pub(super) const EP_POLL: c_ulong = opcode::read_write::<EpollRequest>(GROUP, 2) as c_ulong;

/// An open /dev/epoll with its arrays of results, which are mapped.
#[derive(Debug)]
pub(super) struct EpollDevice {
    pub(super) file: File,
    pub(super) arrays: MmapRaw,
}

impl EpollDevice {
    /// Opens the device with room for `slots` descriptors, at least 1 and 131,072 at most.
    ///
    /// # Errors
    /// `Unsupported`: this kernel does not have the device. `EACCES`, `ENOMEM`.
    pub(super) fn open(slots: u64) -> io::Result<EpollDevice> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                return error;
            }
            let reason = format!("this kernel has no {PATH}; docs/kernel.md tells how to get it");
            io::Error::new(ErrorKind::Unsupported, reason)
        })?;
        let slots = slots.clamp(1, SLOTS_MOST) as u32;
        // SAFETY: the request reads a u32 from the pointer, which is to a u32 that outlives the call.
        syscall!(ioctl(file.as_raw_fd(), EP_ALLOC, &raw const slots))?;
        let arrays = MmapOptions::new().len(arrays_len(slots)).map_raw_read_only(&file)?;
        Ok(EpollDevice { file, arrays })
    }

    /// write(2): adds each entry to the set, replaces the events of a descriptor in the set, or removes it.
    ///
    /// # Errors
    /// `EBADF`: a descriptor is not open. `EPERM`: its file has no states to wait for. `ENOSPC`: no room. `ENOMEM`.
    pub(super) fn write(&mut self, entries: &[pollfd]) -> io::Result<()> {
        self.file.write_all(as_bytes(entries))
    }

    /// `ioctl(EP_POLL)`: waits until a file of the set has woken its waiters or `timeout` has passed (`None`: no limit).
    /// Returns an entry for each such file. Returns no entries after a signal handler ran.
    ///
    /// # Errors
    /// Those of ioctl(2), none of which is expected.
    pub(super) fn poll(&mut self, timeout: Option<Duration>) -> io::Result<&[pollfd]> {
        let timeout_ns = timeout.map_or(-1, |it| i64::try_from(it.as_nanos()).unwrap_or(i64::MAX));
        let mut asked = EpollRequest { timeout_ns, results_offset: 0 };
        // SAFETY: the request reads and writes an `EpollRequest`, which outlives the call.
        let found = match syscall!(ioctl(self.file.as_raw_fd(), EP_POLL, &raw mut asked)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            found => found? as usize,
        };
        // SAFETY: the device has written `found` entries at that offset, which is 0 or the middle of the mapping, and
        // writes into the other half until the next call, which needs `self` for itself.
        Ok(unsafe {
            let results = self.arrays.as_ptr().add(asked.results_offset as usize);
            std::slice::from_raw_parts(results.cast(), found)
        })
    }
}

/// How many bytes both arrays have: whole pages each. `EP_MAP_SIZE` of devepoll.h.
pub(super) fn arrays_len(slots: u32) -> usize {
    2 * (slots as usize * size_of::<pollfd>()).next_multiple_of(rustix::param::page_size())
}
