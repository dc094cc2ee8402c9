//! The memory that a reader reads into and that the worker sends from.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, slice};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::fileio::support::memory::ReadMemory;

/// The protection of a buffer's pages: readers write, senders read.
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Memory that a reader writes to, as a mapping of its own: when memory is short, mmap(2) fails with an
/// error, while an allocator would end the process.
///
/// A mapping begins at the beginning of a page. `O_DIRECT` may need this alignment, and copies from the
/// page cache are faster with it: a processor delays a load that follows a store to nearly the same
/// offset within a page (4K aliasing), and an allocator places large buffers a few bytes behind the
/// beginning of a page.
pub(crate) struct Buffer {
    map: NonNull<u8>,
    len: usize,
    /// The bound that the buffer's bytes are given back to.
    memory: Arc<ReadMemory>,
    /// The memory file that is mapped (memfd_create(2)); `None` for an anonymous mapping.
    file: Option<OwnedFd>,
}

impl Buffer {
    /// Makes a buffer of `len` bytes, a multiple of the page size. The caller has taken `len` bytes from
    /// `memory`; dropping the buffer gives them back, and so does an error of this function.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        // SAFETY: a new anonymous mapping, at an address that the kernel chooses, overlaps no other memory.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), len, ACCESS, MapFlags::PRIVATE) };
        Buffer::of(map.map(|map| (map, None)), len, memory)
    }

    /// Makes a buffer like [`Buffer::new`], but maps a new memory file, so that sendfile(2) can send the
    /// buffer's pages without a copy.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub(crate) fn in_file(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        let map = memfd_create("drover-read", MemfdFlags::CLOEXEC).and_then(|file| {
            ftruncate(&file, len as u64)?;
            // SAFETY: a new mapping, at an address that the kernel chooses, overlaps no other memory. No
            // other process has the file, so its bytes change only through this mapping.
            let map = unsafe { mmap(ptr::null_mut(), len, ACCESS, MapFlags::SHARED, &file, 0) }?;
            Ok((map, Some(file)))
        });
        Buffer::of(map, len, memory)
    }

    fn of(
        map: Result<(*mut c_void, Option<OwnedFd>), Errno>,
        len: usize,
        memory: &Arc<ReadMemory>,
    ) -> io::Result<Buffer> {
        match map.map(|(map, file)| (NonNull::new(map.cast()), file)) {
            Ok((Some(map), file)) => Ok(Buffer { map, len, memory: Arc::clone(memory), file }),
            failed => {
                memory.give_back(len as u64);
                Err(failed.err().map_or(io::ErrorKind::OutOfMemory.into(), io::Error::from))
            }
        }
    }

    /// The memory file, if [`Buffer::in_file`] made this buffer. After sendfile(2) has sent bytes of the
    /// file, the buffer must not be read into again: its pages may still wait in the socket.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    /// The address of the first byte, for a reader.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.map.as_ptr()
    }

    /// The first `len` bytes. No read into the buffer may be under way.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len, "the bytes lie in the buffer");
        // SAFETY: the bytes are mapped, initialised by the kernel to 0, and owned by this value. No reader
        // writes to them now: the caller knows that its read has ended or has not begun.
        unsafe { slice::from_raw_parts_mut(self.map.as_ptr(), len) }
    }

    /// The first `len` bytes. No read into the buffer may be under way.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.len, "the bytes lie in the buffer");
        // SAFETY: the bytes are mapped, initialised by the kernel to 0, and owned by this value. No reader
        // writes to them now: the caller knows that its read has ended or has not begun.
        unsafe { slice::from_raw_parts(self.map.as_ptr(), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: only this value owns the mapping, and no reference to it exists. munmap(2) can fail only
        // if it divides a merged mapping and the process has too many mappings (`vm.max_map_count`).
        let _ = unsafe { munmap(self.map.as_ptr().cast(), self.len) };
        self.memory.give_back(self.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::waker::Waker;

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
