//! `writev`: pread(2) into the worker's buffer, then one sendmsg(2) of the head and these bytes.
//!
//! Each byte is copied twice: into the buffer and into the socket. sendfile(2) copies no bytes. The cost
//! over a body in memory is one system call. Bytes that the socket did not take are read again later
//! from the page cache, so a slow client occupies no buffer.

use std::io;

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, truncated};
use drover_sys::socket::send_vectored;

/// The `writev` backend.
pub(crate) static WRITEV: Backend = Backend {
    place: 0,
    name: "writev",
    summary: "pread(2) into memory, then head and bytes in one vectored send",
    past_cache: false,
    sends_unread: false,
    reads_apart: false,
    calls: &[],
    open: |options, _| {
        Ok(advise::ahead(options, Writev { buffer: vec![0; CHUNK].into_boxed_slice() }))
    },
};

/// How many bytes one pread(2) reads at most. Larger steps do not fit the processor's second-level cache.
const CHUNK: usize = 64 * 1024;

struct Writev {
    buffer: Box<[u8]>,
}

impl FileIo for Writev {
    fn sender(&self) -> &'static Backend {
        &WRITEV
    }

    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let Transfer { socket, head, file, offset, len, .. } = transfer;
        let step = len.min(CHUNK as u64) as usize;
        let count = rustix::io::pread(file, &mut self.buffer[..step], offset)?;
        if count == 0 {
            return Err(truncated());
        }
        send_vectored(socket, &[head, &self.buffer[..count]]).map(Sent::Bytes)
    }
}
