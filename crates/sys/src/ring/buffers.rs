//! Provided buffers: memory that the kernel picks from when data arrives.
//!
//! A receive that is armed on an idle connection names a *group* of buffers,
//! not one buffer. The kernel takes a buffer when there are bytes for it, so idle connections
//! have none (io_uring_provided_buffers(7)). The ring of free buffers is shared
//! memory; giving one back is a store, not a system call.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{self, BufRingEntry};
use io_uring::{cqueue, opcode};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::ring::Ring;
use crate::ring::features::{RingParts, explain, is};

/// The one group that a worker's ring has.
pub const GROUP: u16 = 0;

/// An io_uring and the buffers that it receives into.
#[derive(Debug)]
pub struct RingWithBuffers {
    /// The io_uring. It is declared before `buffers`, and so it is dropped first: closing the ring ends the
    /// requests that write to the buffers.
    pub ring: Ring,
    /// The buffers that the ring's requests receive into.
    pub buffers: BufferRing,
}

/// A registered group of equal buffers, and the ring in which free ones are
/// offered to the kernel. It is part of a [`RingWithBuffers`].
#[derive(Debug)]
pub struct BufferRing {
    /// The entries, then (from the next page on) the buffers: one mapping, so
    /// that few entries of the TLB cover the whole.
    map: NonNull<u8>,
    map_len: usize,
    buffers_at: usize,
    entries: u16,
    /// How many buffers are in circulation: those with numbers below this one.
    lent: u16,
    size: usize,
    tail: u16,
}

/// A buffer that the kernel has filled and handed out. The kernel does not write to it until
/// [`BufferRing::give_back`]. A `Received` that is dropped takes its buffer out of circulation.
#[derive(Debug)]
#[must_use]
pub struct Received(u16);

impl Received {
    /// The buffer of a completion, if it has one.
    ///
    /// # Safety
    /// The completion is of a receive of this ring, and the function is called once for a completion.
    pub unsafe fn of(completion: &cqueue::Entry) -> Option<Received> {
        cqueue::buffer_select(completion.flags()).map(Received)
    }
}

const PAGE: usize = 4096;

/// Bytes between two buffers, so that the buffers do not all begin in one set of a processor's cache.
const LINE: usize = 64;

/// Buffers in circulation at first. The kernel takes buffers in turn, so they stay in the processor's
/// cache only if there are not many more than are needed at once.
const LENT_AT_FIRST: u16 = 64;

impl RingWithBuffers {
    /// Makes a ring for socket requests, and up to `entries` (a power of two, 2 to
    /// 32,768) buffers of `size` bytes. Buffers come into circulation as they are needed. `connects`: whether the ring takes
    /// requests to connect.
    ///
    /// # Errors
    /// Errors of [`Ring::open`]; `Unsupported` before Linux 6.0.
    pub fn open(
        submissions: u32,
        completions: u32,
        entries: u16,
        size: usize,
        connects: bool,
    ) -> io::Result<RingWithBuffers> {
        let connect = if connects { RingParts::CONNECT } else { RingParts::empty() };
        let parts = RingParts::SOCKETS | RingParts::CQE_SKIP | connect;
        let ring = Ring::open(submissions, completions, parts)?;
        let buffers = BufferRing::map(entries, size)?;
        let mut made = RingWithBuffers { ring, buffers };
        made.register()?;
        made.try_out()?;
        Ok(made)
    }

    fn register(&mut self) -> io::Result<()> {
        let RingWithBuffers { ring, buffers } = self;
        let (address, entries) = (buffers.map.as_ptr() as u64, buffers.entries);
        // SAFETY: the mapping is page-aligned, holds `entries` entries and the buffers, and lives
        // until `buffers` is dropped: after `ring`.
        let registered = unsafe { ring.register_buffers(address, entries, GROUP) };
        registered.or_else(|error| match is(&error, Errno::INVAL) {
            true => (RingParts::all() - RingParts::BUFFER_RINGS).require(RingParts::all()),
            false => Err(explain("io_uring_register", error)),
        })?;
        for _ in 0..LENT_AT_FIRST {
            buffers.lend_more();
        }
        Ok(())
    }

    /// Receives one byte into a buffer by a multishot receive, as connections do. The kernel has no flag
    /// that says whether it supports this.
    fn try_out(&mut self) -> io::Result<()> {
        let RingWithBuffers { ring, buffers } = self;
        let (ours, mut peer) = UnixStream::pair()?;
        peer.write_all(b"?")?;
        drop(peer);
        let receive = opcode::RecvMulti::new(types::Fd(ours.as_raw_fd()), GROUP).build();
        // SAFETY: a receive into provided buffers points to no other memory.
        unsafe { ring.push(&receive) };
        let mut received = 0;
        loop {
            ring.wait(None)?;
            while let Some(completion) = ring.completion() {
                // SAFETY: the receive is the ring's only request, and `of` is called once per completion.
                if let Some(buffer) = unsafe { Received::of(&completion) } {
                    buffers.give_back(buffer);
                }
                match completion.result() {
                    result if result == -libc::EINVAL => {
                        return (RingParts::all() - RingParts::RECEIVE_MULTISHOT)
                            .require(RingParts::all());
                    }
                    error @ ..0 => return Err(io::Error::from_raw_os_error(-error)),
                    count => received += count,
                }
                if !cqueue::more(completion.flags()) {
                    assert_eq!(received, 1, "a byte and the end of the stream");
                    return Ok(());
                }
            }
        }
    }
}

impl BufferRing {
    fn map(entries: u16, size: usize) -> io::Result<BufferRing> {
        let buffers_at = (usize::from(entries) * size_of::<BufRingEntry>()).next_multiple_of(PAGE);
        let map_len = buffers_at + usize::from(entries) * (size + LINE);
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // aliases nothing.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), map_len, prot, flags)? };
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(BufferRing { map, map_len, buffers_at, entries, lent: 0, size, tail: 0 })
    }

    /// Puts one more buffer into circulation, if there is one. To be called when a receive found none.
    pub fn lend_more(&mut self) {
        if self.lent < self.entries {
            self.lent += 1;
            self.offer(self.lent - 1);
        }
    }

    /// Where buffer `id` begins in the mapping.
    fn offset(&self, id: u16) -> usize {
        assert!(id < self.lent, "a buffer that is in circulation");
        self.buffers_at + usize::from(id) * (self.size + LINE)
    }

    /// The first `len` bytes of a buffer.
    pub fn bytes(&self, buffer: &Received, len: usize) -> &[u8] {
        assert!(len <= self.size, "a buffer's bytes lie in it");
        let start = self.offset(buffer.0);
        // SAFETY: within the mapping by both assertions; anonymous memory is
        // initialised; the kernel does not write to a buffer that it has handed
        // out until `give_back`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(start), len) }
    }

    /// Offers a buffer to the kernel again.
    pub fn give_back(&mut self, buffer: Received) {
        self.offer(buffer.0);
    }

    /// Never frees the buffers, because a request that has not ended may still write to them.
    pub fn leak(&mut self) {
        self.map_len = 0;
    }

    /// Offers buffer `id` to the kernel, which must not have it already.
    fn offer(&mut self, id: u16) {
        let address = self.map.as_ptr() as u64 + self.offset(id) as u64;
        let place = usize::from(self.tail & (self.entries - 1));
        self.tail = self.tail.wrapping_add(1);
        // The kernel reads an entry only after the tail has passed it. The tail is
        // the aligned u16 of the first entry that the crate points to.
        // SAFETY: `place` is within the entries and outside head..tail; only this
        // thread writes entries and tail.
        unsafe {
            let entry = &mut *self.map.as_ptr().cast::<BufRingEntry>().add(place);
            entry.set_addr(address);
            entry.set_len(self.size as u32);
            entry.set_bid(id);
            let tail = BufRingEntry::tail(self.map.as_ptr().cast()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        if self.map_len == 0 {
            return;
        }
        // SAFETY: nobody else uses the mapping: the ring that it was registered with has been
        // dropped before (`RingWithBuffers`), and no slice of the mapping outlives `self`. Unmapping
        // what was mapped with these arguments cannot fail.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More connections have received bytes than there are buffers in circulation.
    #[test]
    fn as_many_buffers_are_lent_as_a_turn_needs() {
        const CONNECTIONS: u64 = LENT_AT_FIRST as u64 + 20;
        let mut opened = match RingWithBuffers::open(256, 512, 128, 64, false) {
            Ok(opened) => opened,
            Err(error) => return drover_testing::skip!("{error}"),
        };
        let RingWithBuffers { ring, buffers } = &mut opened;
        let mut pairs: Vec<_> = (0..CONNECTIONS).map(|_| UnixStream::pair().unwrap()).collect();
        for round in 0..2 {
            let mut lacked = 0;
            for (number, (ours, peer)) in pairs.iter_mut().enumerate() {
                peer.write_all(b"?").unwrap();
                let fd = types::Fd(ours.as_raw_fd());
                let receive = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(GROUP);
                let receive = receive.build().flags(io_uring::squeue::Flags::BUFFER_SELECT);
                // SAFETY: a receive into provided buffers points to no memory.
                unsafe { ring.push(&receive.user_data(number as u64)) };
            }
            for _ in 0..CONNECTIONS {
                let completion = loop {
                    match ring.completion() {
                        Some(completion) => break completion,
                        None => ring.wait(None).unwrap(),
                    }
                };
                // SAFETY: the completion is of a receive, and `of` is called once for it.
                match unsafe { Received::of(&completion) } {
                    Some(buffer) => {
                        assert_eq!(buffers.bytes(&buffer, 1), b"?");
                        buffers.give_back(buffer);
                    }
                    None => {
                        assert_eq!(completion.result(), -libc::ENOBUFS);
                        lacked += 1;
                        buffers.lend_more();
                        let (ours, _) = &mut pairs[completion.user_data() as usize];
                        std::io::Read::read_exact(ours, &mut [0]).unwrap();
                    }
                }
            }
            assert_eq!(lacked, if round == 0 { 20 } else { 0 }, "round {round}");
        }
    }
}
