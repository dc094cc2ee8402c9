//! `splice`: splice(2) from the file into a pipe, and from there into the
//! socket, the file's pages passed on without a copy.
//!
//! What the socket does not take stays in the pipe, which then belongs to that
//! connection; the others are shared. splice(2) blocks on pages that are not in
//! the page cache, whatever its flags.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::fileio::support::advise;
use crate::fileio::{Backend, FileIo, Sent, Transfer, send_head, truncated};
use crate::key::Key;

/// The `splice` backend.
pub(crate) static SPLICE: Backend = Backend {
    name: "splice",
    summary: "splice(2) through a pipe, the head before it with MSG_MORE",
    past_cache: false,
    reads_apart: false,
    open: |options, _| Ok(advise::ahead(options, Splice::default())),
};

/// What a pipe should hold; without the right to that the kernel leaves it at
/// 64 KiB (pipe(7), `pipe-user-pages-soft`).
pub(super) const PIPE_SIZE: usize = 1 << 20;

/// Empty pipes kept for reuse.
const KEPT: usize = 16;

#[derive(Default)]
pub(super) struct Splice {
    empty: Vec<Pipe>,
    /// Pipes with bytes in them that their connection's socket did not take.
    held: HashMap<Key, Pipe>,
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Bytes in it.
    filled: usize,
    /// Whether it can hold [`PIPE_SIZE`].
    whole: bool,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused where a user's pipes have used up their memory: it works as it is.
        let whole = rustix::pipe::fcntl_setpipe_size(&write, PIPE_SIZE).is_ok();
        Ok(Pipe { read, write, filled: 0, whole })
    }

    /// Moves bytes from the file into this empty pipe.
    fn fill(&mut self, file: &OwnedFd, mut offset: u64, len: u64) -> io::Result<()> {
        let most = len.min(PIPE_SIZE as u64) as usize;
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = rustix::pipe::splice(file, Some(&mut offset), &self.write, None, most, flags);
        let moved = moved.map_err(|error| match error {
            // The caller would take it for the socket's.
            Errno::AGAIN => io::Error::other("the file cannot be read without waiting"),
            error => error.into(),
        })?;
        if moved == 0 {
            return Err(truncated());
        }
        self.filled = moved;
        Ok(())
    }

    /// Moves bytes from the pipe into the socket; `more`: others follow.
    fn drain(&mut self, socket: BorrowedFd<'_>, more: bool) -> Result<usize, Errno> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let moved = rustix::pipe::splice(&self.read, None, socket, None, self.filled, flags)?;
        self.filled -= moved;
        Ok(moved)
    }
}

impl Splice {
    /// Whether bytes of that connection's are in a pipe.
    pub(super) fn has(&self, key: Key) -> bool {
        self.held.contains_key(&key)
    }

    /// Whether there is an empty pipe of [`PIPE_SIZE`], or can be one among `most`. There is none
    /// where descriptors or the user's share of pipes are used up.
    pub(super) fn has_pipe(&mut self, most: usize) -> bool {
        if self.empty.is_empty() && self.held.len() < most {
            self.empty.extend(Pipe::new().ok().filter(|pipe| pipe.whole));
        }
        !self.empty.is_empty()
    }
}

/// Sends `head`, then what of the `len` bytes behind it is in the pipe.
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
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let Transfer { key, socket, head, file, offset, len, at_once } = transfer;
        // Filled before the head is sent: what goes wrong here has sent nothing.
        let mut pipe = match self.held.remove(&key) {
            Some(pipe) => pipe,
            None => {
                let mut pipe = self.empty.pop().map_or_else(Pipe::new, Ok)?;
                pipe.fill(file, offset, len.min(at_once))?;
                pipe
            }
        };
        let sent = send_from(&mut pipe, socket, head, len);
        if pipe.filled > 0 {
            self.held.insert(key, pipe);
        } else if self.empty.len() < KEPT {
            self.empty.push(pipe);
        }
        Ok(Sent::Bytes(sent?))
    }

    /// The bytes in its pipe are nobody's any more.
    fn forget(&mut self, key: Key) {
        // Mostly there are none, and an empty map hashes the key all the same.
        if !self.held.is_empty() {
            self.held.remove(&key);
        }
    }
}
