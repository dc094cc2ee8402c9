//! `mmap`: a window of the file mapped into memory, sent with its head by one
//! vectored send, and unmapped.
//!
//! A file that is truncated under its mapping raises `SIGBUS` in a process that
//! touches it, and others may change its bytes at any time: there is never a
//! reference to them, and only the kernel reads the window, while
//! it sends; where there is no page, or the disk failed to bring it, it
//! answers `EFAULT`. The last page is
//! the exception, its rest reads as zeroes; so the length is asked for before
//! each window.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, truncated};
use sys::socket::send_behind;

/// The `mmap` backend.
pub(crate) static MMAP: Backend = Backend {
    name: "mmap",
    summary: "mmap(2) of 512 KiB at a time, then head and bytes in one vectored send",
    past_cache: false,
    reads_apart: false,
    open: |options, _| Ok(advise::ahead(options, Mmap { page: rustix::param::page_size() as u64 })),
};

/// What is mapped at once.
const WINDOW: u64 = 512 * 1024;

struct Mmap {
    page: u64,
}

impl FileIo for Mmap {
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let Transfer { socket, head, file, offset, len, .. } = transfer;
        let end = rustix::fs::fstat(file)?.st_size as u64;
        let start = offset - offset % self.page;
        let count = len.min(WINDOW).min(end.saturating_sub(offset));
        if count == 0 {
            return Err(truncated());
        }
        let window = Window::map(file.as_fd(), start, (offset - start + count) as usize)?;
        // SAFETY: the window is mapped until the end of this function.
        let sent = unsafe { send_behind(socket, head, window.from((offset - start) as usize)) };
        match sent {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::FAULT) => {
                Err(missing(file, end)?)
            }
            sent => sent.map(Sent::Bytes),
        }
    }
}

/// Why the kernel found no page where the file had one when it was `end` bytes long.
fn missing(file: &OwnedFd, end: u64) -> io::Result<io::Error> {
    let shrank = (rustix::fs::fstat(file)?.st_size as u64) < end;
    Ok(if shrank { truncated() } else { Errno::IO.into() })
}

/// A part of a file in memory.
struct Window {
    start: ptr::NonNull<u8>,
    len: usize,
}

impl Window {
    fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Window> {
        // SAFETY: a mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)
        }?;
        let start = ptr::NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Window { start, len })
    }

    /// The window's bytes from the `skipped`th on, for the kernel.
    fn from(&self, skipped: usize) -> *const [u8] {
        assert!(skipped <= self.len, "it lies in the window");
        let start = self.start.as_ptr().wrapping_add(skipped);
        ptr::slice_from_raw_parts(start, self.len - skipped)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this window's own, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
