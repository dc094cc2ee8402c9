//! `splice`: splice(2) from the file into a pipe, and from the pipe into the socket. The kernel passes
//! references to the file's pages and copies no bytes.
//!
//! Bytes that the socket does not take stay in the pipe. The pipe then belongs to this connection until
//! it is empty; empty pipes are shared. splice(2) from a file blocks on pages that are not in the page
//! cache, even with `SPLICE_F_NONBLOCK`.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, send_head, truncated};
use crate::files::served::ServedFile;
use crate::key::Key;

/// The `splice` backend.
pub(crate) static SPLICE: Backend = Backend {
    place: 3,
    name: "splice",
    summary: "splice(2) through a pipe, the head before it with MSG_MORE",
    past_cache: false,
    sends_unread: true,
    reads_apart: false,
    calls: &[libc::SYS_splice, libc::SYS_pipe2],
    open: |options, _| Ok(advise::ahead(options, Splice::default())),
};

/// The capacity of a pipe in bytes. A pipe keeps the default of 64 KiB if the user's pipes already hold
/// `pipe-user-pages-soft` pages (pipe(7)).
pub(super) const PIPE_SIZE: usize = 1 << 20;

/// How many empty pipes a worker keeps for reuse.
const KEPT: usize = 16;

#[derive(Default)]
pub(super) struct Splice {
    empty: Vec<Pipe>,
    /// The pipes that contain bytes, by the connection that these bytes are for.
    filled: HashMap<Key, Pipe>,
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// How many bytes are in the pipe.
    filled: usize,
    /// Whether the pipe's capacity is [`PIPE_SIZE`].
    whole: bool,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // EPERM: the user's pipes have used up `pipe-user-pages-soft`. The pipe works with its default
        // capacity.
        let whole = rustix::pipe::fcntl_setpipe_size(&write, PIPE_SIZE).is_ok();
        Ok(Pipe { read, write, filled: 0, whole })
    }

    /// Moves up to `len` bytes from the file into this empty pipe.
    fn fill(&mut self, file: &ServedFile, mut offset: u64, len: u64) -> io::Result<()> {
        let most = len.min(PIPE_SIZE as u64) as usize;
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = rustix::pipe::splice(file, Some(&mut offset), &self.write, None, most, flags);
        let moved = moved.map_err(|error| match error {
            // EAGAIN of the file: the caller would wait until the socket is writable.
            Errno::AGAIN => io::Error::other("the file cannot be read without waiting"),
            error => error.into(),
        })?;
        if moved == 0 {
            return Err(truncated());
        }
        self.filled = moved;
        Ok(())
    }

    /// Moves bytes from the pipe into the socket. `more`: further bytes follow (`SPLICE_F_MORE`).
    fn drain(&mut self, socket: BorrowedFd<'_>, more: bool) -> Result<usize, Errno> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let moved = rustix::pipe::splice(&self.read, None, socket, None, self.filled, flags)?;
        self.filled -= moved;
        Ok(moved)
    }
}

impl Splice {
    /// Whether a pipe contains bytes for that connection.
    pub(super) fn has(&self, key: Key) -> bool {
        self.filled.contains_key(&key)
    }

    /// Whether an empty pipe of [`PIPE_SIZE`] is there or could be made. Makes at most `most` pipes.
    /// Returns `false` also when the process is out of descriptors, or the user's pipes have used up
    /// `pipe-user-pages-soft`.
    pub(super) fn has_pipe(&mut self, most: usize) -> bool {
        if self.empty.is_empty() && self.filled.len() < most {
            self.empty.extend(Pipe::new().ok().filter(|pipe| pipe.whole));
        }
        !self.empty.is_empty()
    }
}

/// Sends `head`, then the bytes in the pipe. `len` is how many bytes of the file the transfer still has.
fn send_from(
    pipe: &mut Pipe,
    socket: BorrowedFd<'_>,
    head: &[u8],
    len: u64,
) -> Result<usize, Errno> {
    let sent = send_head(socket, head)?;
    if sent < head.len() {
        return Ok(sent);
    }
    match pipe.drain(socket, len > pipe.filled as u64) {
        Ok(count) => Ok(sent + count),
        Err(Errno::AGAIN) if sent > 0 => Ok(sent),
        Err(error) => Err(error),
    }
}

impl FileIo for Splice {
    fn sender(&self) -> &'static Backend {
        &SPLICE
    }

    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let Transfer { key, socket, head, file, offset, len, at_once } = transfer;
        // The pipe is filled before the head is sent: if reading fails, the client has got no bytes.
        let mut pipe = match self.filled.remove(&key) {
            Some(pipe) => pipe,
            None => {
                let mut pipe = self.empty.pop().map_or_else(Pipe::new, Ok)?;
                pipe.fill(file, offset, len.min(at_once))?;
                pipe
            }
        };
        let sent = send_from(&mut pipe, socket, head, len);
        if pipe.filled > 0 {
            self.filled.insert(key, pipe);
        } else if self.empty.len() < KEPT {
            self.empty.push(pipe);
        }
        Ok(Sent::Bytes(sent?))
    }

    /// Closes the connection's pipe, if it has one.
    fn forget(&mut self, key: Key) {
        // The map is mostly empty, and `remove` hashes the key even of an empty map.
        if !self.filled.is_empty() {
            self.filled.remove(&key);
        }
    }
}
