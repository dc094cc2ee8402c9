//! `mmap`: maps a window of the file into memory, sends the head and the window by one vectored send, and
//! unmaps the window.
//!
//! Other processes may truncate a mapped file or change its bytes at any time. A process that touches a
//! mapped page behind the file's end gets `SIGBUS`. So this file never makes a reference to the mapped
//! bytes, and only the kernel reads them, within sendmsg(2). The kernel answers `EFAULT` if a page is
//! gone or the disk failed to read it. The rest of the file's last page reads as zeroes without an
//! error; so fstat(2) asks for the file's length before each window.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, truncated};
use crate::files::served::ServedFile;
use drover_sys::socket::send_behind;

/// The `mmap` backend.
pub(crate) static MMAP: Backend = Backend {
    place: 1,
    name: "mmap",
    summary: "mmap(2) of 512 KiB at a time, then head and bytes in one vectored send",
    past_cache: false,
    sends_unread: true,
    reads_apart: false,
    calls: &[],
    open: |options, _| Ok(advise::ahead(options, Mmap { page: rustix::param::page_size() as u64 })),
};

/// How many bytes are mapped at once.
const WINDOW: u64 = 512 * 1024;

struct Mmap {
    /// The size of a page in bytes: a mapping begins at a multiple of it.
    page: u64,
}

impl FileIo for Mmap {
    fn sender(&self) -> &'static Backend {
        &MMAP
    }

    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let Transfer { socket, head, file, offset, len, .. } = transfer;
        let end = rustix::fs::fstat(file)?.st_size as u64;
        let start = offset - offset % self.page;
        let count = len.min(WINDOW).min(end.saturating_sub(offset));
        if count == 0 {
            return Err(truncated());
        }
        let window = Window::map(file.as_fd(), start, (offset - start + count) as usize)?;
        // SAFETY: the window stays mapped until the end of this function, after the send.
        let sent = unsafe { send_behind(socket, head, window.from((offset - start) as usize)) };
        match sent {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::FAULT) => {
                Err(missing(file, end)?)
            }
            sent => sent.map(Sent::Bytes),
        }
    }
}

/// The reason for `EFAULT`: the file was truncated, if it is shorter now than `end` bytes; otherwise the
/// disk failed (`EIO`).
fn missing(file: &ServedFile, end: u64) -> io::Result<io::Error> {
    let shrank = (rustix::fs::fstat(file)?.st_size as u64) < end;
    Ok(if shrank { truncated() } else { Errno::IO.into() })
}

/// A part of a file, mapped into memory.
struct Window {
    start: ptr::NonNull<u8>,
    len: usize,
}

impl Window {
    fn map(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Window> {
        // SAFETY: a new mapping, at an address that the kernel chooses, overlaps no other memory.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)
        }?;
        let start = ptr::NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Window { start, len })
    }

    /// The window without its first `skipped` bytes, as a pointer for the kernel.
    fn from(&self, skipped: usize) -> *const [u8] {
        assert!(skipped <= self.len, "it lies in the window");
        let start = self.start.as_ptr().wrapping_add(skipped);
        ptr::slice_from_raw_parts(start, self.len - skipped)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: only this window owns the mapping, and no reference to its bytes exists.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
