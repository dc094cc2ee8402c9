//! The memory that a reader reads into and that the worker sends from.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::{io, slice};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::fileio::support::memory::ReadMemory;

/// Memory that a reader writes to, as a mapping of its own: when memory is short, mmap(2) fails with an
/// error, while an allocator would end the process.
///
/// A mapping begins at the beginning of a page. `O_DIRECT` may need this alignment, and copies from the
/// page cache are faster with it: a processor delays a load that follows a store to nearly the same
/// offset within a page (4K aliasing), and an allocator places large buffers a few bytes behind the
/// beginning of a page.
pub(crate) struct Buffer {
    /// Declared before `_taken` and so dropped first: the bytes are given back when they are unmapped.
    map: MmapRaw,
    /// The memory file that is mapped (memfd_create(2)); `None` for an anonymous mapping.
    file: Option<OwnedFd>,
    _taken: Taken,
}

/// Bytes of a bound, which are given back when this value is dropped.
struct Taken {
    memory: Arc<ReadMemory>,
    len: usize,
}

impl Buffer {
    /// Makes a buffer of `len` bytes, a multiple of the page size. The caller has taken `len` bytes from
    /// `memory`; dropping the buffer gives them back, and so does an error of this function.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        let taken = Taken { memory: Arc::clone(memory), len };
        let map = MmapOptions::new().len(len).map_anon()?;
        Ok(Buffer { map: map.into(), file: None, _taken: taken })
    }

    /// Makes a buffer like [`Buffer::new`], but maps a new memory file, so that sendfile(2) can send the
    /// buffer's pages without a copy.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub(crate) fn in_file(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        let taken = Taken { memory: Arc::clone(memory), len };
        let file = memfd_create("drover-read", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        // No other process has the file, so its bytes change only through this mapping.
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        Ok(Buffer { map, file: Some(file), _taken: taken })
    }

    /// The memory file, if [`Buffer::in_file`] made this buffer. After sendfile(2) has sent bytes of the
    /// file, the buffer must not be read into again: its pages may still wait in the socket.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// The address of the first byte, for a reader.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// The first `len` bytes. No read into the buffer may be under way.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.map.len(), "the bytes lie in the buffer");
        // SAFETY: the bytes are mapped, initialised by the kernel to 0, and owned by this value. No reader
        // writes to them now: the caller knows that its read has ended or has not begun.
        unsafe { slice::from_raw_parts_mut(self.map.as_mut_ptr(), len) }
    }

    /// The first `len` bytes. No read into the buffer may be under way.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.map.len(), "the bytes lie in the buffer");
        // SAFETY: the bytes are mapped, initialised by the kernel to 0, and owned by this value. No reader
        // writes to them now: the caller knows that its read has ended or has not begun.
        unsafe { slice::from_raw_parts(self.map.as_ptr(), len) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.give_back(self.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_sys::waker::Waker;

    #[test]
    fn memory_that_is_not_to_be_had_is_an_error_and_given_back() {
        let memory = ReadMemory::of(u64::MAX);
        let waker = Arc::new(Waker::eventfd().unwrap());
        // 2^62 bytes are more than a process can address.
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
