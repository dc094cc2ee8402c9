//! Driver hints of the /dev/poll model: which descriptors may have changed since they were last asked.
//!
//! In the patch, a driver marks the device's entry of a file when the file's state changes. In the model, an
//! edge-triggered epoll instance collects the changes, and [`Hints::take`] turns them into marks. A descriptor
//! that was ready when it was asked keeps its mark, so that the device reports states and not only changes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::PollFd;
use crate::readiness::support::pollfd;

/// How many changes one epoll_wait(2) returns.
const AT_ONCE: usize = 512;

/// The descriptors that may have changed.
#[derive(Debug)]
pub(super) struct Hints {
    instance: OwnedFd,
    buffer: Vec<MaybeUninit<epoll::Event>>,
    /// The marked descriptors, each once.
    pub(super) marked: Vec<RawFd>,
    /// Whether a descriptor is in `marked`, by descriptor.
    is_marked: Vec<bool>,
}

impl Hints {
    pub(super) fn new() -> io::Result<Hints> {
        Ok(Hints {
            instance: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            buffer: vec![MaybeUninit::uninit(); AT_ONCE],
            marked: Vec::new(),
            is_marked: Vec::new(),
        })
    }

    /// Watches the descriptor of an entry that was written to the device, and marks it for the next scan.
    pub(super) fn written(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: the number is borrowed only for epoll_ctl(2), which fails with EBADF if it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let data = epoll::EventData::new_u64(fd as u64);
        let flags =
            EventFlags::ET | EventFlags::IN | EventFlags::OUT | EventFlags::PRI | EventFlags::RDHUP;
        let added = match epoll::add(&self.instance, borrowed, data, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.instance, borrowed, data, flags),
            added => added,
        };
        match added {
            // EPERM: a file without poll support, for example a regular file. It is always ready, so it
            // stays marked. EBADF: the descriptor is not open; the scan drops it.
            Ok(()) | Err(Errno::PERM | Errno::BADF) => self.mark(fd),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Stops watching the descriptor of an entry that was removed from the device.
    pub(super) fn removed(&self, fd: RawFd) {
        // SAFETY: the number is borrowed only for epoll_ctl(2), which fails with EBADF if it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        // Fails if the descriptor was closed, or could not be added (EPERM).
        let _ = epoll::delete(&self.instance, borrowed);
    }

    /// Marks a descriptor.
    pub(super) fn mark(&mut self, fd: RawFd) {
        let Ok(at) = usize::try_from(fd) else { return };
        if self.is_marked.len() <= at {
            self.is_marked.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.is_marked[at], true) {
            self.marked.push(fd);
        }
    }

    /// Removes all marks, and returns the descriptors that had one.
    pub(super) fn take_marked(&mut self) -> Vec<RawFd> {
        for &fd in &self.marked {
            self.is_marked[fd as usize] = false;
        }
        std::mem::take(&mut self.marked)
    }

    /// Marks all descriptors that have changed. Does not block.
    pub(super) fn take(&mut self) -> io::Result<()> {
        loop {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) =
                match epoll::wait(&self.instance, &mut self.buffer[..], Some(&at_once)) {
                    Err(Errno::INTR) => continue,
                    waited => waited?,
                };
            let changed: Vec<RawFd> =
                events.iter().map(|event| event.data.u64() as RawFd).collect();
            changed.iter().for_each(|&fd| self.mark(fd));
            if changed.len() < AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Waits until a descriptor changes. Returns `false` after `timeout` or if a signal handler ran.
    pub(super) fn sleep(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let fd = self.instance.as_fd().as_raw_fd();
        let mut instance = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
        Ok(pollfd::wait(&mut instance, timeout)? > 0)
    }
}
