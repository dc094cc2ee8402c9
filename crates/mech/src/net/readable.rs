//! Waiting for a descriptor that is not a socket.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;

use super::contract::SocketOrigin;
use super::{Conn, Net};

/// A descriptor other than a socket: an inotify queue, a timer, a pipe. A coroutine
/// waits for it by the worker's mechanism, and reads it by itself.
#[derive(Debug)]
pub struct Readable<'n> {
    conn: Conn<'n>,
}

impl<'n> Readable<'n> {
    /// Registers a descriptor with the worker, which owns `fd`. The reader reads from a duplicate.
    ///
    /// # Errors
    /// Errors of registering with the mechanism; some mechanisms fail with `EPERM` for a regular file.
    pub fn open(net: &'n Net, fd: OwnedFd) -> io::Result<Readable<'n>> {
        let conn = net.task();
        conn.with(|inner, index| {
            inner.open(conn.key(), fd, SocketOrigin::Foreign).inspect_err(|_| inner.release(index))
        })?;
        Ok(Readable { conn })
    }

    pub(super) fn slot(&self) -> u32 {
        self.conn.key().slot
    }

    /// Waits until there may be something to read; `false`: the worker stops.
    /// Read the descriptor until `EAGAIN` before the next call: some mechanisms
    /// report only bytes that come after that.
    ///
    /// # Errors
    /// Errors of the mechanism.
    pub async fn ready(&self) -> io::Result<bool> {
        poll_fn(|_| {
            if self.conn.net().phase().is_ending() {
                return Poll::Ready(Ok(false));
            }
            let key = self.conn.key();
            let poll = self
                .conn
                .with(|inner, index| inner.driver.poll_readable(key, &mut inner.slots[index]));
            poll.map_ok(|()| true)
        })
        .await
    }
}
