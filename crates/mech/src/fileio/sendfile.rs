//! `sendfile`: sendfile(2). The socket gets references to the file's pages, and no bytes are copied.
//!
//! sendfile(2) on a non-blocking socket returns when the socket's buffer is full, so one call lasts as
//! long as the peer keeps up. The call blocks on pages that are not in the page cache, and returns 0 at
//! the end of the file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, send_head, truncated};

/// The `sendfile` backend.
pub(crate) static SENDFILE: Backend = Backend {
    place: 2,
    name: "sendfile",
    summary: "sendfile(2), the head before it with MSG_MORE",
    past_cache: false,
    sends_unread: true,
    reads_apart: false,
    calls: &[libc::SYS_sendfile],
    open: |options, _| Ok(advise::ahead(options, Sendfile)),
};

pub(super) struct Sendfile;

impl FileIo for Sendfile {
    fn sender(&self) -> &'static Backend {
        &SENDFILE
    }

    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let len = transfer.len.min(transfer.at_once) as usize;
        send(&transfer, transfer.file.as_fd(), transfer.offset, len).map(Sent::Bytes)
    }
}

/// Sends the transfer's head, then up to `len` bytes of `file` from `offset` on. Returns how many bytes
/// of both the socket took.
///
/// # Errors
/// As [`FileIo::send`].
pub(super) fn send(
    transfer: &Transfer<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    let Transfer { socket, head, .. } = *transfer;
    let sent = send_head(socket, head)?;
    if sent < head.len() {
        return Ok(sent);
    }
    match rustix::fs::sendfile(socket, file, Some(&mut offset), len) {
        Ok(0) => Err(truncated()),
        Ok(count) => Ok(sent + count),
        Err(Errno::AGAIN) if sent > 0 => Ok(sent),
        Err(error) => Err(error.into()),
    }
}
