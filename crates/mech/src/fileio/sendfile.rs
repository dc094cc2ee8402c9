//! `sendfile`: sendfile(2), the file's pages lent to the socket without a copy.
//!
//! The head goes first with `MSG_MORE`, so that it shares a segment with the
//! first bytes of the file. sendfile(2) moves at most 2 GiB less one page per
//! call, blocks on pages that are not in the page cache, and returns 0 at the
//! end of the file.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::SendFlags;

use super::{Backend, FileIo, truncated};

/// The `sendfile` backend.
pub(super) static SENDFILE: Backend = Backend {
    name: "sendfile",
    summary: "sendfile(2), the head before it with MSG_MORE",
    open: || Box::new(Sendfile),
};

struct Sendfile;

/// What one call may move: the kernel's own limit, `MAX_RW_COUNT`.
const MOST: u64 = 0x7fff_f000;

impl FileIo for Sendfile {
    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> io::Result<usize> {
        let mut sent = 0;
        if !head.is_empty() {
            sent = rustix::net::send(socket, head, SendFlags::NOSIGNAL | SendFlags::MORE)?;
            if sent < head.len() {
                return Ok(sent);
            }
        }
        let mut offset = offset;
        match rustix::fs::sendfile(socket, file, Some(&mut offset), len.min(MOST) as usize) {
            Ok(0) => Err(truncated()),
            Ok(count) => Ok(sent + count),
            Err(rustix::io::Errno::AGAIN) if sent > 0 => Ok(sent),
            Err(error) => Err(error.into()),
        }
    }
}
