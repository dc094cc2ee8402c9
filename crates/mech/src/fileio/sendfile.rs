//! `sendfile`: sendfile(2), the file's pages lent to the socket without a copy.
//!
//! sendfile(2) goes on for as long as the peer reads as fast as it writes, blocks
//! on pages that are not in the page cache, and returns 0 at the end of the file.

use std::io;

use rustix::io::Errno;

use super::{Backend, FileIo, Sent, Transfer, advise, send_head, truncated};

/// The `sendfile` backend.
pub(super) static SENDFILE: Backend = Backend {
    name: "sendfile",
    summary: "sendfile(2), the head before it with MSG_MORE",
    past_cache: false,
    reads_apart: false,
    open: |options, _| Ok(advise::ahead(options, Sendfile)),
};

pub(super) struct Sendfile;

impl FileIo for Sendfile {
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let Transfer { socket, head, file, mut offset, len, at_once, .. } = transfer;
        let sent = send_head(socket, head)?;
        if sent < head.len() {
            return Ok(Sent::Bytes(sent));
        }
        match rustix::fs::sendfile(socket, file, Some(&mut offset), len.min(at_once) as usize) {
            Ok(0) => Err(truncated()),
            Ok(count) => Ok(Sent::Bytes(sent + count)),
            Err(Errno::AGAIN) if sent > 0 => Ok(Sent::Bytes(sent)),
            Err(error) => Err(error.into()),
        }
    }
}
