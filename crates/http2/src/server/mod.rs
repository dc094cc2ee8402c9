//! A server's side of a connection.

mod control;
mod headers;
mod receive;
mod send;

use crate::block::PartialBlock;
use crate::error::{ErrorCode, ProtocolFault};
use crate::frame::{FIRST_WINDOW, StreamId, push_window_update};
use crate::head::request::RequestHead;
use crate::hpack::{HpackDecoder, TABLE_SIZE, TableUpdate};
use crate::limits::{Http2Limits, UsedLimits};
use crate::priority::StreamPriority;
use crate::settings::{self, setting};
use crate::streams::{StreamTable, state};
use headers::{BlockTarget, LastBlock};

/// The connection's window for what clients send: bodies are dropped, so that it need not be large.
const CONNECTION_WINDOW: u32 = FIRST_WINDOW;

/// The connection's window is given back once so many bytes have been dropped.
const WINDOW_STEP: u32 = 32 << 10;

/// How many priorities of streams that have not begun are kept (RFC 9218 section 7.1 lets a server drop them).
const EARLY_PRIORITIES: usize = 16;

/// How many streams that we have reset are remembered: what the client had sent before it knew is ignored.
const RECENT_RESETS: usize = 8;

/// A server's side of a connection of HTTP/2: bytes in, values out. It does no I/O and has no clock.
///
/// The caller hands what has come to [`receive`](Self::receive) until nothing is left to tell, answers each request by
/// [`respond`](Self::respond), and asks [`next`](Self::next) whose body may be sent, for whose bytes
/// [`push_data`](Self::push_data) writes the frame. All that the protocol itself demands (acknowledgements, windows, resets) is
/// written to the same output; [`reset_uploads`](Self::reset_uploads) is called before that is sent. `S` is what the caller keeps
/// of each stream.
///
/// Nothing is allocated for a stream or a request once there were as many, and as large ones, before; [`release`](Self::release)
/// gives the memory of an idle connection back.
#[derive(Debug)]
pub struct ServerConnection<S> {
    limits: Http2Limits,
    used: UsedLimits,
    streams: StreamTable<S>,
    decoder: HpackDecoder,
    head: RequestHead,
    last_block: LastBlock,
    block: PartialBlock<BlockTarget>,
    early_priorities: Vec<(u32, StreamPriority)>,
    recent_resets: [u32; RECENT_RESETS],
    next_reset: u8,
    /// How many bytes of a frame's payload are to be dropped.
    skip: u32,
    /// How much we may send on all streams together.
    send_window: u32,
    /// The window that new streams begin with.
    first_window: u32,
    /// How much the client may send on all streams together.
    receive_window: u32,
    /// The highest number of a stream that the client has begun.
    last_id: u32,
    /// How many frames of DATA were sent.
    turn: u32,
    failed: Option<ProtocolFault>,
    /// Whether the next frame may be the last request again, without anything else to look at first.
    expects_repeat: bool,
    /// Whether there may be streams to be reset because their body is too long and their response has ended.
    owes_resets: bool,
    greeting: Greeting,
    shutdown: Shutdown,
    table_update: TableUpdate,
}

/// How far the connection has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    /// The client's preface is missing.
    Preface,
    /// The client's SETTINGS are missing.
    Settings,
    Done,
}

/// How far the connection is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// The client was asked to open no more streams; those that it has opened meanwhile are answered.
    Announced,
    /// Streams above this one are ignored.
    Final(u32),
}

/// What a connection has to tell its caller.
#[derive(Debug)]
pub enum ServerEvent<'a, S> {
    /// The input ends before there is anything to tell. Up to [`RECEIVE_MOST`](crate::RECEIVE_MOST) bytes have to fit in the
    /// input, together with what was not used.
    Incomplete,
    /// As many frames wait in the output as [`Http2Limits::waiting_acks`] allows, and the input may have whole frames yet: send
    /// and empty the output before more is received.
    Flush,
    /// A request.
    Request {
        /// Its stream.
        stream: StreamId,
        /// The request as a head of HTTP/1.1, with its request line, `Host` and all fields, in a buffer that is used again. It
        /// has no `Host` if the request names no authority.
        head: &'a [u8],
        /// The head is the same as that of the request before it on this connection: what the caller knows of that one holds for
        /// this one.
        is_repeated: bool,
        /// The request has no body. The bytes of a body are dropped; nothing more is told of them.
        ends: bool,
    },
    /// A request whose head is larger than [`Http2Limits::head`]: a 431. The head is gone.
    TooLarge {
        /// Its stream.
        stream: StreamId,
    },
    /// The client does not want the response any more, or has done something wrong on the stream, which was reset for it.
    Reset {
        /// The stream.
        stream: StreamId,
        /// What was kept of it. If there is something, the stream counts until [`ServerConnection::finished`] is called.
        state: Option<S>,
    },
    /// The client opens no more streams (GOAWAY); those that are open go on.
    PeerGoes,
    /// The client has broken the protocol, or exceeds a limit. GOAWAY stands in the output: send it, and close. Nothing more is
    /// received.
    Failed {
        /// The code that the client is sent.
        code: ErrorCode,
        /// What it has done, and the section that forbids it.
        reason: &'static str,
    },
}

impl<S> ServerConnection<S> {
    /// Begins a connection, and writes our SETTINGS to `out`.
    pub fn new(limits: &Http2Limits, out: &mut Vec<u8>) -> ServerConnection<S> {
        let all = [
            (setting::MAX_CONCURRENT_STREAMS, limits.streams),
            (setting::MAX_HEADER_LIST_SIZE, limits.head as u32),
            (setting::NO_RFC7540_PRIORITIES, 1),
            (setting::INITIAL_WINDOW_SIZE, limits.body),
        ];
        // What RFC 9113 begins with need not be said.
        let has_usual_window = limits.body == FIRST_WINDOW;
        settings::push(out, &all[..all.len() - usize::from(has_usual_window)]);
        ServerConnection {
            limits: *limits,
            used: UsedLimits::new(limits),
            streams: StreamTable::new(),
            decoder: HpackDecoder::new(TABLE_SIZE),
            head: RequestHead::default(),
            last_block: LastBlock::default(),
            block: PartialBlock::new(),
            early_priorities: Vec::new(),
            recent_resets: [0; RECENT_RESETS],
            next_reset: 0,
            skip: 0,
            send_window: FIRST_WINDOW,
            first_window: FIRST_WINDOW,
            receive_window: CONNECTION_WINDOW,
            last_id: 0,
            turn: 0,
            failed: None,
            expects_repeat: false,
            owes_resets: false,
            greeting: Greeting::Preface,
            shutdown: Shutdown::No,
            table_update: TableUpdate::default(),
        }
    }

    /// What the caller keeps of a stream; `None` if it keeps nothing, or the stream is over.
    pub fn stream(&mut self, stream: StreamId) -> Option<&mut S> {
        self.streams.get(stream)?.kept.as_mut()
    }

    /// Keeps something for a stream: an open file, a look-up that is under way. It is dropped at once if the stream is over.
    pub fn begin_work(&mut self, stream: StreamId, work: S) {
        if let Some(record) = self.streams.get(stream) {
            record.kept = Some(work);
        }
    }

    /// How many streams count against the limit.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether no stream waits for a response or for a part of one. Streams whose response has ended while their body was being
    /// received do not count.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.iter().all(|record| record.is(state::LOCAL_ENDED))
    }

    /// Whether bodies are to be sent, and none can be because the client allows nothing more: it has to send WINDOW_UPDATE. A
    /// client that does not read its responses is to be closed after some time.
    #[must_use]
    pub fn is_blocked_by_windows(&self) -> bool {
        let is_blocked = |window: i32| self.send_window == 0 || window <= 0;
        let mut waiting = self.streams.iter().filter(|record| record.offers_data()).peekable();
        waiting.peek().is_some() && waiting.all(|record| is_blocked(record.send_window))
    }

    /// Whether the connection has ended as [`go_away`](Self::go_away) has announced: close it when the output is sent.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.failed.is_some() || (matches!(self.shutdown, Shutdown::Final(_)) && self.is_idle())
    }

    /// Whether a header block has begun whose end has not come.
    #[must_use]
    pub fn is_within_head(&self) -> bool {
        self.block.target.is_some()
    }

    /// What was kept of the streams that have not ended, once the connection has.
    pub fn take_works(&mut self) -> impl Iterator<Item = S> {
        self.streams.take_kept()
    }

    /// Gives memory back that only requests need, if no stream is open.
    pub fn release(&mut self) {
        if self.streams.len() == 0 {
            self.streams.release();
            self.head.release();
            self.last_block = LastBlock::default();
            self.expects_repeat = false;
            self.block.release();
            self.decoder.release();
            self.early_priorities = Vec::new();
        }
    }

    /// Remembers that we have reset a stream.
    fn remember_reset(&mut self, stream: u32) {
        self.recent_resets[usize::from(self.next_reset) % RECENT_RESETS] = stream;
        self.next_reset = self.next_reset.wrapping_add(1);
    }

    fn was_reset_by_us(&self, stream: u32) -> bool {
        self.recent_resets.contains(&stream)
    }

    /// Gives the connection's window back, not for each frame.
    fn return_window(&mut self, out: &mut Vec<u8>) {
        let dropped = CONNECTION_WINDOW - self.receive_window;
        if dropped >= WINDOW_STEP {
            push_window_update(out, 0, dropped);
            self.used.waiting_acks += 1;
            self.receive_window = CONNECTION_WINDOW;
        }
    }
}
