//! Asking which bytes of a file are in the page cache, and reading them without waiting for a disk.
//!
//! Two system calls are needed, because each has a fault. cachestat(2) (Linux 6.5) also counts a page
//! that is still being read. preadv2(2) with `RWF_NOWAIT` (Linux 4.14) reads only what is there, but
//! also starts read-ahead of the missing pages; a worker does not want that, least of all for bytes
//! that are then read with `O_DIRECT`.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags};

/// Whether the page cache has a page for each of the `len` bytes from `offset` on, even if a page is still
/// being read. `true` if the kernel cannot say: [`is_read`] or [`read`] then decides.
pub(crate) fn has_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let page = crate::files::bytes::page_size();
    let wanted = (offset + len).div_ceil(page) - offset / page;
    crate::files::bytes::cached_pages(file, offset, len).map_or(true, |cached| cached >= wanted)
}

/// Whether the byte at `offset` can be read without waiting. `false` if the file system has a disk and does
/// not support `RWF_NOWAIT` (FUSE).
pub(crate) fn is_read(file: BorrowedFd<'_>, offset: u64) -> bool {
    // At the end of the file or after an error the answer is `true`: the send then finds the cause.
    read(file, &mut [0], offset) != Err(Errno::AGAIN)
}

/// Reads bytes from `offset` on, as many as are in the page cache. Returns how many bytes were read; 0 at
/// the end of the file.
///
/// # Errors
/// `AGAIN`: the first byte is not in the page cache, or the file system has a disk and does not support
/// `RWF_NOWAIT` (FUSE). Otherwise the error of preadv2(2).
pub(crate) fn read(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut into = [IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT) {
        // tmpfs does not support RWF_NOWAIT, but has no disk to wait for.
        Err(Errno::OPNOTSUPP) if crate::files::bytes::is_in_memory(file) => {
            rustix::io::pread(file, buffer, offset)
        }
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
        result => result,
    }
}

/// Checks that the kernel has cachestat(2).
///
/// # Errors
/// What the kernel answered, as a message for the user.
pub(crate) fn probe() -> Result<(), String> {
    let asked = std::fs::File::open("/proc/self/exe")
        .and_then(|file| crate::files::bytes::cached_pages(file.as_fd(), 0, 1));
    match asked {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cachestat(2): {error}; RWF_NOWAIT alone is asked")),
    }
}
