//! What the server may send: our windows, and when they are given back (RFC 9113 section 5.2).

use super::ClientConnection;
use crate::error::ProtocolFault;
use crate::frame::{self, FIRST_WINDOW, MOST_31};
use crate::streams::{StreamRecord, state};

/// How much the server may send on all streams together, in bytes.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// How much the server may send on one stream, in bytes.
const STREAM_WINDOW: u32 = 1 << 20;

/// The windows for what is received.
#[derive(Debug)]
pub(super) struct ReceiveWindows {
    /// The window that each stream begins with.
    pub(super) of_stream: u32,
    /// The window of the connection once it has begun.
    pub(super) of_connection: u32,
    /// What is left of the connection's window.
    left: u32,
    /// Nothing is given back but by [`ClientConnection::give_back`].
    is_slow: bool,
}

impl ReceiveWindows {
    pub(super) fn automatic() -> ReceiveWindows {
        ReceiveWindows {
            of_stream: STREAM_WINDOW,
            of_connection: CONNECTION_WINDOW,
            left: CONNECTION_WINDOW,
            is_slow: false,
        }
    }

    /// Takes the payload of DATA, padding included, from the connection's window.
    ///
    /// # Errors
    /// The window has no room for it.
    pub(super) fn take(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), ProtocolFault> {
        self.left = self.left.checked_sub(len as u32).ok_or(ProtocolFault::OverWindow)?;
        if !self.is_slow && self.left < self.of_connection / 2 {
            frame::push_window_update(out, 0, self.of_connection - self.left);
            self.left = self.of_connection;
        }
        Ok(())
    }

    /// Gives the window of a stream back whose DATA has come and goes on.
    pub(super) fn renew<S>(&self, record: &mut StreamRecord<S>, out: &mut Vec<u8>) {
        if !self.is_slow && record.receive_window < self.of_stream / 2 {
            frame::push_window_update(out, record.id, self.of_stream - record.receive_window);
            record.receive_window = self.of_stream;
        }
    }
}

impl<S> ClientConnection<S> {
    /// Begins a connection that is read slowly: the server may send `stream_window` bytes on each stream, at most 2^31 − 1, and on
    /// all of them together the 65,535 bytes that every connection begins with. [`give_back`](Self::give_back) allows more.
    pub fn slow(stream_window: u32, out: &mut Vec<u8>) -> ClientConnection<S> {
        let windows = ReceiveWindows {
            of_stream: stream_window.min(MOST_31),
            of_connection: FIRST_WINDOW,
            left: FIRST_WINDOW,
            is_slow: true,
        };
        ClientConnection::with(windows, out)
    }

    /// How many bytes of DATA were received that [`give_back`](Self::give_back) has not given back.
    #[must_use]
    pub fn owed(&self) -> usize {
        if self.windows.is_slow {
            (self.windows.of_connection - self.windows.left) as usize
        } else {
            0
        }
    }

    /// Allows the server of a [slow](Self::slow) connection to send `most` more bytes, but no more than it has sent: the frames are
    /// appended to `out`. The oldest streams get theirs back first.
    pub fn give_back(&mut self, most: usize, out: &mut Vec<u8>) {
        let by = self.owed().min(most) as u32;
        if by == 0 {
            return;
        }
        frame::push_window_update(out, 0, by);
        self.windows.left += by;
        let mut rest = by;
        let of_stream = self.windows.of_stream;
        self.streams.for_each(|record| {
            let own = (of_stream - record.receive_window).min(rest);
            if own > 0 && !record.is(state::REMOTE_ENDED) {
                frame::push_window_update(out, record.id, own);
                record.receive_window += own;
                rest -= own;
            }
        });
    }
}
