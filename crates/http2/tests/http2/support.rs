//! Frames, header blocks and connections for tests.

use drover_http2::{
    ErrorCode, Http2Limits, PREFACE, ServerConnection, ServerEvent, StreamId, hpack,
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 0x10;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// SETTINGS with these settings.
pub(crate) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let pairs =
        all.iter().map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame(SETTINGS, 0, 0, &pairs.collect::<Vec<_>>().concat())
}

pub(crate) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

/// A header block without dynamic table.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        hpack::push_field(&mut out, name, value.as_bytes());
    }
    out
}

/// The block of a GET request with more fields.
pub(crate) fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let begin = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")];
    block(&[&begin, more].concat())
}

/// A GET request as a frame; it has no body.
pub(crate) fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/", &[]))
}

/// A POST request as a frame, whose body follows.
pub(crate) fn post(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let begin = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    frame(HEADERS, END_HEADERS, stream, &block(&[&begin, more].concat()))
}

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The frames of `bytes`, which have to be whole.
#[track_caller]
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut all = Vec::new();
    while let [a, b, c, kind, flags, s, t, u, v, rest @ ..] = bytes {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, behind) = rest.split_at(len);
        let stream = u32::from_be_bytes([*s, *t, *u, *v]);
        all.push(Frame { kind: *kind, flags: *flags, stream, payload: payload.to_vec() });
        bytes = behind;
    }
    assert_eq!(bytes, b"", "a frame is cut");
    all
}

/// An event that owns what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Request { stream: u32, head: String, is_repeated: bool, ends: bool },
    TooLarge(u32),
    Reset(u32, Option<u32>),
    PeerGoes,
    Flush,
    Failed(ErrorCode, &'static str),
}

/// A server's connection, with what it has to send.
pub(crate) struct Server {
    pub(crate) connection: ServerConnection<u32>,
    pub(crate) out: Vec<u8>,
    pub(crate) now: u64,
    /// The streams of all requests so far, those with heads that were too large included.
    pub(crate) ids: Vec<StreamId>,
}

impl Server {
    /// A connection that has not seen the preface.
    pub(crate) fn fresh(limits: &Http2Limits) -> Server {
        let mut out = Vec::new();
        let connection = ServerConnection::new(limits, &mut out);
        Server { connection, out, now: 1, ids: Vec::new() }
    }

    /// A connection that has seen the preface and empty SETTINGS, and whose output is empty.
    pub(crate) fn with(limits: &Http2Limits) -> Server {
        let mut server = Server::fresh(limits);
        assert_eq!(server.take(&[&PREFACE[..], &settings(&[])].concat()), []);
        server.out.clear();
        server
    }

    pub(crate) fn new() -> Server {
        Server::with(&Http2Limits::default())
    }

    /// Hands over `input`, which has whole frames, until nothing is left to tell.
    pub(crate) fn take(&mut self, input: &[u8]) -> Vec<Seen> {
        let (mut seen, mut at) = (Vec::new(), 0);
        loop {
            let (used, event) = self.connection.receive(&input[at..], self.now, &mut self.out);
            at += used;
            match event {
                ServerEvent::Incomplete => {
                    assert_eq!(at, input.len(), "not all is used");
                    return seen;
                }
                ServerEvent::Flush => {
                    seen.push(Seen::Flush);
                    return seen;
                }
                ServerEvent::Request { stream, head, is_repeated, ends } => {
                    self.ids.push(stream);
                    let (stream, head) = (stream.get(), String::from_utf8_lossy(head).into_owned());
                    seen.push(Seen::Request { stream, head, is_repeated, ends });
                }
                ServerEvent::TooLarge { stream } => {
                    self.ids.push(stream);
                    seen.push(Seen::TooLarge(stream.get()));
                }
                ServerEvent::Reset { stream, state } => seen.push(Seen::Reset(stream.get(), state)),
                ServerEvent::PeerGoes => seen.push(Seen::PeerGoes),
                ServerEvent::Failed { code, reason } => {
                    seen.push(Seen::Failed(code, reason));
                    return seen;
                }
            }
        }
    }

    /// Hands over requests, and returns their streams. Nothing else may be told.
    #[track_caller]
    pub(crate) fn requests(&mut self, input: &[u8]) -> Vec<StreamId> {
        let before = self.ids.len();
        let seen = self.take(input);
        assert!(seen.iter().all(|it| matches!(it, Seen::Request { .. })), "{seen:?}");
        self.ids[before..].to_vec()
    }

    /// The frames that were written since the last call.
    #[track_caller]
    pub(crate) fn sent(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(&mut self.out))
    }

    /// Responds without a body.
    pub(crate) fn respond(&mut self, stream: StreamId, body: bool) {
        self.connection.respond(stream, &[0x88], body, &mut self.out);
    }

    /// Sends bytes on the stream whose turn it is, and tells which one that is.
    pub(crate) fn send_next(&mut self, most: usize) -> Option<(u32, usize)> {
        let turn = self.connection.next()?;
        let len = turn.most.min(most);
        self.connection.push_data(turn.stream, len, false, &mut self.out);
        self.out.resize(self.out.len() + len, b'x');
        Some((turn.stream.get(), len))
    }
}

/// A server that answers a path like `/123` with 123 bytes.
pub(crate) struct LengthServer {
    /// What is kept of a stream is how many bytes are left.
    pub(crate) connection: ServerConnection<usize>,
    pub(crate) out: Vec<u8>,
    /// The streams in the order in which they came, each with the head of its request.
    pub(crate) requests: Vec<(StreamId, String)>,
}

impl LengthServer {
    pub(crate) fn new() -> LengthServer {
        let mut out = Vec::new();
        let connection = ServerConnection::new(&Http2Limits::default(), &mut out);
        LengthServer { connection, out, requests: Vec::new() }
    }

    /// Answers what is whole of `input`, as far as the windows go; the rest stays. `more` are fields of each response.
    pub(crate) fn serve(&mut self, input: &mut Vec<u8>, more: &[(&str, &str)]) {
        let mut at = 0;
        loop {
            let (used, event) = self.connection.receive(&input[at..], 0, &mut self.out);
            at += used;
            match event {
                ServerEvent::Request { stream, head, .. } => {
                    let head = str::from_utf8(head).unwrap().to_owned();
                    let length = head[5..].split(' ').next().unwrap().to_owned();
                    self.requests.push((stream, head));
                    let begin = [(":status", "200"), ("content-length", &*length)];
                    let length = length.parse().unwrap();
                    self.connection.begin_work(stream, length);
                    let block = block(&[&begin, more].concat());
                    self.connection.respond(stream, &block, length > 0, &mut self.out);
                }
                ServerEvent::Incomplete | ServerEvent::Flush | ServerEvent::PeerGoes => break,
                other => panic!("{other:?}"),
            }
        }
        input.drain(..at);
        while let Some(turn) = self.connection.next() {
            let left = self.connection.stream(turn.stream).unwrap();
            let len = turn.most.min(*left);
            *left -= len;
            let ends = *left == 0;
            self.connection.push_data(turn.stream, len, ends, &mut self.out);
            self.out.resize(self.out.len() + len, 1);
        }
    }
}
