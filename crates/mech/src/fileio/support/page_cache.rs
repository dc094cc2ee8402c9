//! What of a file is in the page cache, and reading it without waiting.
//!
//! Two questions are needed. cachestat(2) (Linux 6.5) counts the pages there are; a page whose read is
//! still under way counts too. preadv2(2) with `RWF_NOWAIT` waits for nothing, but has the kernel read
//! ahead what is missing, which is not wanted of a worker and for bytes that are read past the cache.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags};

/// Whether there is a page for each of these bytes; `true` if the kernel cannot say.
pub(crate) fn has_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    let page = crate::files::root::page_size();
    let wanted = (offset + len).div_ceil(page) - offset / page;
    crate::files::root::cached_pages(file, offset, len).map_or(true, |cached| cached >= wanted)
}

/// Whether the byte at `offset` can be read without waiting; `false` for file systems with a disk that
/// cannot say (FUSE).
pub(crate) fn is_read(file: BorrowedFd<'_>, offset: u64) -> bool {
    // The end of a file that has become shorter, or an error: whoever sends it finds out.
    read(file, &mut [0], offset) != Err(Errno::AGAIN)
}

/// Reads as many bytes from `offset` on as there are without waiting.
///
/// # Errors
/// `AGAIN`: none, or the file system has a disk and cannot say (FUSE); otherwise what the kernel says.
pub(crate) fn read(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut into = [IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT) {
        // tmpfs, for one.
        Err(Errno::OPNOTSUPP) if crate::files::root::is_in_memory(file) => {
            rustix::io::pread(file, buffer, offset)
        }
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN),
        result => result,
    }
}

/// Whether the kernel can be asked.
///
/// # Errors
/// The reason why not, in words for people.
pub(crate) fn probe() -> Result<(), String> {
    let asked = std::fs::File::open("/proc/self/exe")
        .and_then(|file| crate::files::root::cached_pages(file.as_fd(), 0, 1));
    match asked {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cachestat(2): {error}; RWF_NOWAIT alone is asked")),
    }
}
