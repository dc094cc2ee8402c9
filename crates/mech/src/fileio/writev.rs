//! `writev`: pread(2) into a worker's buffer, then one sendmsg(2) of head and
//! bytes.
//!
//! Two copies per byte instead of none, and one system call more than a body
//! in memory. Bytes that the socket did not take are read again later: the
//! page cache holds them, and no connection has to.

use std::io;

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, truncated};
use sys::socket::send_vectored;

/// The `writev` backend.
pub(crate) static WRITEV: Backend = Backend {
    name: "writev",
    summary: "pread(2) into memory, then head and bytes in one vectored send",
    past_cache: false,
    reads_apart: false,
    open: |options, _| {
        Ok(advise::ahead(options, Writev { buffer: vec![0; CHUNK].into_boxed_slice() }))
    },
};

/// What is read at once; larger steps leave the processor's second-level cache.
const CHUNK: usize = 64 * 1024;

struct Writev {
    buffer: Box<[u8]>,
}

impl FileIo for Writev {
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
