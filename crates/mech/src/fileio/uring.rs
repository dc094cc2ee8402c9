//! `uring`: reads by a ring of the backend's own, then a vectored send.
//!
//! What is in the page cache is read while the request is submitted. Other reads
//! are truly asynchronous where the file system can (ext4, XFS, btrfs), and done
//! by the kernel's worker threads where it cannot. An eventfd ends the worker's
//! wait.
//!
//! The files go by reads and not by splice(2) through the ring, which the kernel
//! always hands to a worker thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{opcode, types};

use super::bell::Bell;
use super::reads::{Ended, Read, Reader, Reads};
use super::{Backend, Options};
use crate::ring::Ring;
use crate::ring_parts::Parts;
use crate::waker::Waker;

/// The `uring` backend.
pub(super) static URING: Backend = Backend {
    name: "uring",
    summary: "reads by io_uring, then head and bytes in one vectored send",
    open: |options, waker| Ok(Box::new(open(options, waker)?)),
};

/// Reads of one worker that may be under way.
const MOST: usize = 256;

pub(super) struct Uring {
    ring: Ring,
    under_way: usize,
    /// The ring writes to it, and is dropped before.
    _bell: Bell,
}

/// A worker's reads by a ring.
pub(super) fn open(options: &Options, waker: &Arc<Waker>) -> io::Result<Reads<Uring>> {
    let ring = Ring::open(MOST as u32, 2 * MOST as u32, Parts::READS)?;
    let bell = Bell::new(waker)?;
    ring.ring_bell(bell.fd())?;
    Ok(Reads::new(Uring { ring, under_way: 0, _bell: bell }, options.read_ahead))
}

impl Reader for Uring {
    const MAY_END_AT_ONCE: bool = true;

    unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
        if self.under_way >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let entry = opcode::Read::new(types::Fd(read.file), read.buffer, read.len as u32)
            .offset(read.offset)
            .build()
            .user_data(u64::from(read.id));
        // SAFETY: descriptor and buffer are the read's until it has ended (`Reader::begin`).
        unsafe { self.ring.push(&entry) };
        self.under_way += 1;
        self.ring.wait(Some(Duration::ZERO))
    }

    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        self.ring.wait(Some(Duration::ZERO))?;
        while let Some(completion) = self.ring.completion() {
            self.under_way -= 1;
            let result = match completion.result() {
                count @ 0.. => Ok(count as usize),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            ended.push(Ended { id: completion.user_data() as u32, result });
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.ring.wait(None)
    }
}
