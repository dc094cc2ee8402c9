//! The memory that a read goes to, and that the socket is sent from.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, slice};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::memory::ReadMemory;

/// Memory that a reader writes to: a mapping of its own, so that there is an error, and no end of the
/// process, when there is none. It begins with a page: what `O_DIRECT` may want, and what copies want.
/// One that stores a little behind where it loads from, as counted within a page, waits for its own
/// stores (4K aliasing); an allocator puts large buffers right there, a few bytes behind the beginning
/// of a page.
pub(super) struct Buffer {
    map: NonNull<u8>,
    len: usize,
    /// What the length was taken from.
    memory: Arc<ReadMemory>,
}

impl Buffer {
    /// A buffer of `len` bytes, a multiple of a page, that were taken from `memory`: they are given
    /// back when it is dropped, or if there is none.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, flags) };
        match map.map(|map| NonNull::new(map.cast())) {
            Ok(Some(map)) => Ok(Buffer { map, len, memory: Arc::clone(memory) }),
            failed => {
                memory.give_back(len as u64);
                Err(failed.err().map_or(io::ErrorKind::OutOfMemory.into(), io::Error::from))
            }
        }
    }

    pub(super) fn start(&mut self) -> *mut u8 {
        self.map.as_ptr()
    }

    /// The first `len` bytes.
    pub(super) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len, "they lie in the buffer");
        // SAFETY: mapped, zeroed at first and this value's own; readers are done when it is asked.
        unsafe { slice::from_raw_parts_mut(self.map.as_ptr(), len) }
    }

    /// The first `len` bytes.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.len, "they lie in the buffer");
        // SAFETY: mapped, zeroed at first and this value's own; readers are done when it is asked.
        unsafe { slice::from_raw_parts(self.map.as_ptr(), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more. Unmapping what was
        // mapped fails only where that would divide a mapping of too many.
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.len) };
        self.memory.give_back(self.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waker::Waker;

    #[test]
    fn memory_that_is_not_to_be_had_is_an_error_and_given_back() {
        let memory = ReadMemory::of(u64::MAX);
        let waker = Arc::new(Waker::eventfd().unwrap());
        // More than there are addresses.
        assert!(memory.take(1 << 62, &waker));
        assert!(Buffer::new(1 << 62, &memory).is_err());
        assert_eq!((memory.held(), memory.most_held()), (0, 1 << 62));
    }

    #[test]
    fn who_finds_no_memory_is_woken_when_there_is_some() {
        let memory = ReadMemory::of(ReadMemory::LEAST);
        let waker = Arc::new(Waker::eventfd().unwrap());
        let size = ReadMemory::LEAST / 2;
        let buffers = [(); 2].map(|()| {
            assert!(memory.take(size, &waker));
            Buffer::new(size as usize, &memory).unwrap()
        });
        assert!(!memory.take(size, &waker) && !memory.may_keep());
        let woken = || {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let fd = waker.as_eventfd().unwrap();
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&at_once)).unwrap() == 1
        };
        assert!(!woken());
        drop(buffers);
        assert!(woken());
        assert!(memory.take(size, &waker) && memory.may_keep());
    }
}
