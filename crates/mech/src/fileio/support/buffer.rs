//! The memory that a read goes to, and that the socket is sent from.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{io, slice};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::fileio::support::memory::ReadMemory;

/// Buffers are written by their reader and read by the sender.
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Memory that a reader writes to: a mapping of its own, so that there is an error, and no end of the
/// process, when there is none. It begins with a page: what `O_DIRECT` may want, and what copies want.
/// One that stores a little behind where it loads from, as counted within a page, waits for its own
/// stores (4K aliasing); an allocator puts large buffers right there, a few bytes behind the beginning
/// of a page.
pub(crate) struct Buffer {
    map: NonNull<u8>,
    len: usize,
    /// What the length was taken from.
    memory: Arc<ReadMemory>,
    /// The memory file (memfd_create(2)) that is mapped; `None`: memory without a file.
    file: Option<OwnedFd>,
}

impl Buffer {
    /// A buffer of `len` bytes, a multiple of a page, that were taken from `memory`: they are given
    /// back when it is dropped, or if there is none.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice aliases nothing.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), len, ACCESS, MapFlags::PRIVATE) };
        Buffer::of(map.map(|map| (map, None)), len, memory)
    }

    /// A buffer as that of [`Buffer::new`], whose bytes are those of a memory file of its own: sendfile(2)
    /// lends its pages to a socket.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub(crate) fn in_file(len: usize, memory: &Arc<ReadMemory>) -> io::Result<Buffer> {
        let map = memfd_create("drover-read", MemfdFlags::CLOEXEC).and_then(|file| {
            ftruncate(&file, len as u64)?;
            // SAFETY: a new mapping at an address of the kernel's choice; nobody else has the file, so that
            // only the reader, through this mapping, changes its bytes.
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

    /// The memory file of a buffer of [`Buffer::in_file`]. Once any of its bytes were sent by sendfile(2),
    /// the buffer must not be read into again: its pages may still wait in the socket.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(OwnedFd::as_fd)
    }

    pub(crate) fn start(&mut self) -> *mut u8 {
        self.map.as_ptr()
    }

    /// The first `len` bytes.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len, "they lie in the buffer");
        // SAFETY: mapped, zeroed at first and this value's own; readers are done when it is asked.
        unsafe { slice::from_raw_parts_mut(self.map.as_ptr(), len) }
    }

    /// The first `len` bytes.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
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
    use sys::waker::Waker;

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
