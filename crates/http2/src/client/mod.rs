//! A client's side of a connection, as a load generator needs it: many requests, whose responses are read as they come.

mod control;
mod receive;
mod send;
mod windows;

use crate::block::PartialBlock;
use crate::error::{ErrorCode, ProtocolFault};
use crate::frame::{self, FIRST_WINDOW, PREFACE, StreamId};
use crate::head::response::ResponseHeadText;
use crate::hpack::{HpackDecoder, TableUpdate};
use crate::settings::{self, setting};
use crate::streams::{StreamTable, state};
use receive::{CurrentData, LastHead, ResponseTarget};
use windows::ReceiveWindows;

/// How many streams are opened before the server has said how many it takes. RFC 9113 section 6.5.2 knows no limit then, and
/// recommends that servers allow 100.
const FIRST_STREAMS: u32 = 100;

/// The largest head of a response in bytes, with 32 for each field. Larger ones reset their stream.
const HEAD_MOST: usize = 64 << 10;

/// A client's side of a connection of HTTP/2: bytes in, values out. It does no I/O and has no clock.
///
/// Requests are sent by [`request`](Self::request), and with a body by [`request_with_body`](Self::request_with_body), whose bytes
/// go out when it is their [turn](Self::next). [`receive`](Self::receive) tells what comes back. Windows are large and are given
/// back as soon as bytes have been told, unless the connection is a [slow](Self::slow) one. `S` is what the caller keeps of each
/// stream: it stays until [`finished`](Self::finished) takes it.
#[derive(Debug)]
pub struct ClientConnection<S> {
    streams: StreamTable<S>,
    decoder: HpackDecoder,
    head: ResponseHeadText,
    block: PartialBlock<ResponseTarget>,
    data: CurrentData,
    /// How many bytes of a frame's payload are to be dropped.
    skip: usize,
    last_block: LastHead,
    windows: ReceiveWindows,
    /// How much we may send on all streams together.
    send_window: u32,
    /// How much we may send on a new stream.
    first_window: u32,
    /// How many requests have bodies that are not sent as a whole.
    uploads: u32,
    /// Counts frames of DATA that were sent.
    turn: u32,
    /// The number of the newest stream, 0 before the first.
    last_id: u32,
    /// How many streams have not ended.
    open: u32,
    /// How many the server takes.
    most_open: u32,
    has_settings: bool,
    /// The server does not look at streams above this one.
    last_answered: Option<u32>,
    failed: Option<ProtocolFault>,
    table_update: TableUpdate,
}

/// What a connection has to tell its caller.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientEvent<'s, 'i> {
    /// The input ends before there is anything to tell. Up to [`RECEIVE_MOST`](crate::RECEIVE_MOST) bytes have to fit in the
    /// input, together with what was not used.
    Incomplete,
    /// The head of an interim response: another head follows (RFC 9110 section 15.2).
    Interim {
        /// Its stream.
        stream: StreamId,
        /// Its status, from 100 to 199.
        status: u16,
        /// The head as one of HTTP/1.1, in a buffer that is used again.
        head: &'s [u8],
        /// How many bytes its header block had.
        packed: usize,
    },
    /// The head of a response.
    Head {
        /// Its stream.
        stream: StreamId,
        /// Its status, from 200 to 999.
        status: u16,
        /// The head as one of HTTP/1.1, in a buffer that is used again.
        head: &'s [u8],
        /// How many bytes its header block had.
        packed: usize,
        /// The response has ended: it has no body, whatever its `content-length` says. That is wrong unless the request was HEAD,
        /// or the status is 204 or 304.
        ends: bool,
    },
    /// Bytes of a response's body.
    Data {
        /// Their stream.
        stream: StreamId,
        /// The bytes, a part of the input. There can be none if the response ends.
        bytes: &'i [u8],
        /// The response has ended, with as many bytes as `content-length` has said.
        ends: bool,
    },
    /// A stream has ended without its whole response.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The server's code; or ours if the server has done something wrong on the stream.
        code: ErrorCode,
        /// What the server has done wrong on the stream, and the section that forbids it; `None`: the server has ended the stream.
        reason: Option<&'static str>,
    },
    /// The server opens no more streams (GOAWAY); those above `last` are told as reset with `REFUSED_STREAM`, and may be sent on
    /// another connection.
    GoAway {
        /// The newest stream that the server may have looked at.
        last: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The server has broken the protocol. GOAWAY stands in the output: send it, and close. Nothing more is received.
    Failed {
        /// The code that the server is sent.
        code: ErrorCode,
        /// What it has done, and the section that forbids it.
        reason: &'static str,
    },
}

impl<S> ClientConnection<S> {
    /// Begins a connection: writes the preface, our SETTINGS, and a larger window for the connection, to `out`.
    pub fn new(out: &mut Vec<u8>) -> ClientConnection<S> {
        ClientConnection::with(ReceiveWindows::automatic(), out)
    }

    fn with(windows: ReceiveWindows, out: &mut Vec<u8>) -> ClientConnection<S> {
        out.extend_from_slice(PREFACE);
        // The table of header compression stays what it is at first, as with other clients: some servers ignore a smaller one.
        let settings = [
            (setting::ENABLE_PUSH, 0),
            (setting::INITIAL_WINDOW_SIZE, windows.of_stream),
            (setting::MAX_HEADER_LIST_SIZE, HEAD_MOST as u32),
        ];
        settings::push(out, &settings);
        if windows.of_connection > FIRST_WINDOW {
            frame::push_window_update(out, 0, windows.of_connection - FIRST_WINDOW);
        }
        ClientConnection {
            streams: StreamTable::new(),
            decoder: HpackDecoder::new(crate::hpack::TABLE_SIZE),
            head: ResponseHeadText::default(),
            block: PartialBlock::new(),
            data: CurrentData::default(),
            skip: 0,
            last_block: LastHead::default(),
            windows,
            send_window: FIRST_WINDOW,
            first_window: FIRST_WINDOW,
            uploads: 0,
            turn: 0,
            last_id: 0,
            open: 0,
            most_open: FIRST_STREAMS,
            has_settings: false,
            last_answered: None,
            failed: None,
            table_update: TableUpdate::default(),
        }
    }

    /// What the caller keeps of a stream; `None` once [`finished`](Self::finished) has taken it.
    pub fn stream(&mut self, stream: StreamId) -> Option<&mut S> {
        self.streams.get(stream)?.kept.as_mut()
    }

    /// How many streams have not ended.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.open as usize
    }

    /// How many streams the server takes at once: what it has said, or 100.
    #[must_use]
    pub fn most_streams(&self) -> usize {
        self.most_open as usize
    }

    /// Whether the server's SETTINGS have come.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.has_settings
    }

    /// Whether the server opens no more streams: it has sent GOAWAY.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.last_answered.is_some()
    }

    /// Takes what was kept of a stream that has ended. `None`, and nothing happens, if it has not.
    pub fn finished(&mut self, stream: StreamId) -> Option<S> {
        let has_ended = self.streams.peek(stream)?.is(state::REMOTE_ENDED);
        if has_ended { self.streams.remove(stream) } else { None }
    }

    /// Resets a stream that has not ended, and returns what was kept of it. What still comes for it is dropped.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) -> Option<S> {
        if self.streams.peek(stream)?.is(state::REMOTE_ENDED) {
            return None;
        }
        frame::push_reset(out, stream.0, code);
        self.open -= 1;
        self.stop_upload(stream);
        if self.data.stream == stream.0 {
            self.skip += self.data.drop_rest();
        }
        self.streams.remove(stream)
    }
}
