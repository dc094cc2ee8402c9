//! Provided buffers: memory that the kernel picks from when data arrives.
//!
//! A receive that is armed on an idle connection names a *group* of buffers,
//! not one: a buffer is taken when there are bytes for it, so idle connections
//! hold none (io_uring_provided_buffers(7)). The ring of free buffers is shared
//! memory; giving one back is a store, not a system call.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::ring::Ring;

/// The one group that a worker's ring has.
pub(crate) const GROUP: u16 = 0;

/// A registered group of equal buffers, and the ring in which free ones are
/// offered to the kernel.
pub(crate) struct BufferRing {
    /// The entries, then (from the next page on) the buffers: one mapping, so
    /// that the whole is few pages of the TLB.
    map: NonNull<u8>,
    map_len: usize,
    buffers_at: usize,
    entries: u16,
    size: usize,
    tail: u16,
}

const PAGE: usize = 4096;

impl BufferRing {
    /// Makes `entries` (a power of two, at most 32,768) buffers of `size` bytes
    /// and offers all of them to `ring`.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` before Linux 5.19, which has no buffer rings.
    pub(crate) fn register(ring: &Ring, entries: u16, size: usize) -> io::Result<BufferRing> {
        let buffers_at = (usize::from(entries) * size_of::<BufRingEntry>()).next_multiple_of(PAGE);
        let map_len = buffers_at + usize::from(entries) * size;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // aliases nothing.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), map_len, prot, flags)? };
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffers = BufferRing { map, map_len, buffers_at, entries, size, tail: 0 };
        // SAFETY: the mapping is page-aligned, holds `entries` entries, and lives
        // until drop; the driver drops its ring first.
        unsafe { ring.register_buffers(map.as_ptr() as u64, entries, GROUP)? };
        for id in 0..entries {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// The `len` received bytes of buffer `id`, which the kernel has handed out
    /// and which was not given back yet.
    pub(crate) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < self.entries && len <= self.size, "a buffer's bytes lie in it");
        // SAFETY: within the mapping by the assertion; anonymous memory is
        // initialised; the kernel does not write to a buffer that it has handed
        // out until `give_back`, which needs `&mut self`.
        unsafe {
            let at = self.map.as_ptr().add(self.buffers_at + usize::from(id) * self.size);
            std::slice::from_raw_parts(at, len)
        }
    }

    /// Offers buffer `id` to the kernel again.
    pub(crate) fn give_back(&mut self, id: u16) {
        assert!(id < self.entries, "a buffer of this group");
        let address =
            self.map.as_ptr() as u64 + (self.buffers_at + usize::from(id) * self.size) as u64;
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
        // SAFETY: the mapping is ours alone: the ring it was registered with is
        // gone (see `register`), and no slice of it outlives `self`. Unmapping
        // what was mapped with these arguments cannot fail.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_len) };
    }
}
