//! The test client's connection, over HTTP/2 where a test asks for it. Requests are written and responses are read in the form of
//! HTTP/1.1, so that one set of cases runs over both. With `DROVER_HTTP2=1` every client of the suite speaks it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Read, Write};

use drover_http2::{ClientConnection, ClientEvent, StreamId, hpack};

use super::frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_MOST, HEADERS, push_frame};
use crate::client::Arrived;
use crate::tls::wire::Wire;

/// Whether all clients are to speak HTTP/2.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("DROVER_HTTP2").is_some()
}

/// Whether a case is left out because clients speak HTTP/2, and says why.
#[track_caller]
pub(crate) fn leaves_out(why: &str) -> bool {
    if is_wanted() {
        drover_testing::skip!("over HTTP/2: {why}");
    }
    is_wanted()
}

/// A connection, with HTTP/2 or without.
pub(crate) struct ClientWire {
    pub(crate) wire: Wire,
    http2: Option<Box<Translation>>,
}

/// What HTTP/2 has beside its connection.
struct Translation {
    connection: ClientConnection<()>,
    /// What was written, and is no whole request yet.
    asked: Vec<u8>,
    /// What was not sent: a client that has asked for nothing says nothing of itself.
    unsent: Vec<u8>,
    /// What was received, and is no whole frame yet.
    received: Vec<u8>,
    /// The responses, in the order of their requests.
    answers: VecDeque<StreamAnswer>,
    /// How many bytes of the header block were sent of a request whose head is not whole.
    begun: usize,
    /// The stream of the request whose body is not whole, and how many bytes of it are missing.
    body: (u32, usize),
    next_stream: u32,
    /// Whether the client has said that it sends nothing more.
    is_half_closed: bool,
    /// Whether the client ends the connection when it has its answers.
    ends: bool,
    /// Whether the server has said that it ends the connection.
    server_ends: bool,
}

struct StreamAnswer {
    stream: StreamId,
    /// In the form of HTTP/1.1, without what was read of it.
    text: VecDeque<u8>,
    /// Whether some of the head was read.
    is_read: bool,
    has_ended: bool,
    was_reset: bool,
}

impl ClientWire {
    /// HTTP/1.1.
    pub(crate) fn over_http1(wire: Wire) -> ClientWire {
        ClientWire { wire, http2: None }
    }

    /// HTTP/2, which the server is known to speak.
    pub(crate) fn over_http2(wire: Wire) -> ClientWire {
        let mut unsent = Vec::new();
        let http2 = Translation {
            connection: ClientConnection::new(&mut unsent),
            asked: Vec::new(),
            unsent,
            received: Vec::new(),
            answers: VecDeque::new(),
            begun: 0,
            body: (0, 0),
            next_stream: 1,
            is_half_closed: false,
            ends: false,
            server_ends: false,
        };
        ClientWire { wire, http2: Some(Box::new(http2)) }
    }

    /// Whether the server has said that it ends the connection.
    pub(crate) fn is_sent_away(&self) -> bool {
        self.http2.as_ref().is_some_and(|http2| http2.server_ends)
    }

    /// Says that nothing more is sent.
    pub(crate) fn end_sending(&mut self) {
        if let Some(http2) = &mut self.http2 {
            http2.is_half_closed = true;
        }
        self.wire.end_sending();
    }

    /// Sends `header`, which comes before TLS, and `bytes` behind it as far as that needs no answer.
    pub(crate) fn send_behind(&mut self, header: &[u8], bytes: &[u8]) {
        let bytes = self.translated(bytes);
        self.wire.send_behind(header, &bytes);
    }

    /// The bytes as they are on the wire, however many.
    pub(crate) fn on_the_wire(&mut self, bytes: &[u8]) -> Vec<u8> {
        let bytes = self.translated(bytes);
        self.wire.on_the_wire(&bytes)
    }

    /// What has come, without waiting for it.
    pub(crate) fn arrived(&mut self) -> Arrived {
        loop {
            let arrived = self.wire.arrived();
            let Some(http2) = &mut self.http2 else { return arrived };
            match http2.copy(&mut [0; 0]) {
                Some(Ok(_)) => return Arrived::Bytes,
                Some(Err(_)) => return Arrived::End,
                None if arrived != Arrived::Bytes => return arrived,
                None => {}
            }
            if !matches!(http2.receive(&mut self.wire), Ok(1..)) {
                return Arrived::End;
            }
        }
    }

    /// What is to be sent for `bytes`: of a request whose end is missing, nothing.
    fn translated<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &mut self.http2 {
            None => Cow::Borrowed(bytes),
            Some(http2) => Cow::Owned(http2.translate(bytes)),
        }
    }
}

impl Translation {
    /// The frames of the requests that are whole with `bytes`.
    fn translate(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.asked.extend_from_slice(bytes);
        let mut out = Vec::new();
        if self.begun == 0 {
            out.append(&mut self.unsent);
        }
        while self.request(&mut out) {}
        out
    }

    /// Receives some bytes, and says how many: none at the end of the stream.
    fn receive(&mut self, wire: &mut Wire) -> io::Result<usize> {
        let mut bytes = [0; 32 * 1024];
        let count = wire.read(&mut bytes)?;
        self.received.extend_from_slice(&bytes[..count]);
        let mut out = Vec::new();
        let taken = self.take(&mut out);
        if self.begun > 0 {
            // Nothing may come between the parts of a head.
            self.unsent.append(&mut out);
        }
        if !self.is_half_closed {
            // A server that has closed may have said all that is wanted.
            let _ = wire.write_all(&out);
        }
        taken.map(|()| count)
    }

    /// Takes a request, or a part of its body, from the beginning of what was asked, and puts it into `out`; `false`: it is not
    /// whole, or the server takes no more requests now.
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        if self.body.1 > 0 {
            return self.push_body(out);
        }
        let Some(end) = self.asked.windows(4).position(|it| it == b"\r\n\r\n") else {
            self.begin_request(out);
            return false;
        };
        if !self.connection.can_request() {
            return false;
        }
        let text = String::from_utf8_lossy(&self.asked[..end]).into_owned();
        self.asked.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap().split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let fields: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
        let mut block = method_block(method);
        hpack::push_field(&mut block, ":scheme", b"http");
        hpack::push_field(&mut block, ":path", path.as_bytes());
        let mut body = 0;
        for (name, value) in fields {
            let value = value.trim();
            let name = match name {
                "Host" => ":authority",
                "Connection" => {
                    self.ends |= value == "close";
                    continue;
                }
                name => name,
            };
            if name.eq_ignore_ascii_case("Content-Length") {
                body = value.parse().unwrap();
            }
            hpack::push_field(&mut block, name, value.as_bytes());
        }
        let mut frames = Vec::new();
        let stream = self.connection.request(&block, (), &mut frames).unwrap();
        self.next_stream = stream.get() + 2;
        let begun = std::mem::take(&mut self.begun);
        if begun > 0 {
            push_frame(out, CONTINUATION, END_HEADERS, stream.get(), &block[begun..]);
            if body == 0 {
                push_frame(out, DATA, END_STREAM, stream.get(), &[]);
            }
            out.append(&mut self.unsent);
        } else {
            if body > 0 {
                frames[4] &= !END_STREAM;
            }
            out.extend_from_slice(&frames);
        }
        self.body = (stream.get(), body);
        let text = VecDeque::new();
        let (is_read, has_ended, was_reset) = (false, false, false);
        self.answers.push_back(StreamAnswer { stream, text, is_read, has_ended, was_reset });
        true
    }

    /// Sends the beginning of a head whose end is missing.
    fn begin_request(&mut self, out: &mut Vec<u8>) {
        let method = self.asked.split(|byte| *byte == b' ').next().unwrap_or_default();
        if self.begun > 0 || method.len() == self.asked.len() || !self.connection.can_request() {
            return;
        }
        let block = method_block(&String::from_utf8_lossy(method));
        self.begun = block.len();
        push_frame(out, HEADERS, 0, self.next_stream, &block);
    }

    /// Sends what there is of a body.
    fn push_body(&mut self, out: &mut Vec<u8>) -> bool {
        let (stream, left) = self.body;
        let len = left.min(self.asked.len()).min(FRAME_MOST);
        let body: Vec<u8> = self.asked.drain(..len).collect();
        self.body.1 -= len;
        let flags = if self.body.1 == 0 { END_STREAM } else { 0 };
        if len > 0 {
            push_frame(out, DATA, flags, stream, &body);
        }
        len > 0
    }

    /// Reads what has been received.
    fn take(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Translation { connection, received, answers, server_ends, .. } = self;
        let mut of = |stream: StreamId, bytes: &[u8], ends: bool, was_reset: bool| {
            // Of one that was read to its end, a client wants to know nothing more.
            let answer = answers.iter_mut().find(|it| it.stream == stream);
            let Some(answer) = answer else { return };
            answer.text.extend(bytes);
            // With NO_ERROR behind its end a server says that it wants no more of the request (RFC 9113 section 8.1).
            answer.was_reset |= was_reset && !answer.has_ended;
            answer.has_ended |= ends;
        };
        let mut at = 0;
        loop {
            let (used, event) = connection.receive(&received[at..], out);
            at += used;
            match event {
                ClientEvent::Incomplete => break,
                ClientEvent::Interim { stream, head, .. } => {
                    of(stream, &usual_names(head), false, false);
                }
                ClientEvent::Head { stream, head, ends, .. } => {
                    of(stream, &usual_names(head), ends, false);
                }
                ClientEvent::Data { stream, bytes, ends } => of(stream, bytes, ends, false),
                ClientEvent::Reset { stream, .. } => of(stream, &[], true, true),
                ClientEvent::GoAway { .. } => *server_ends = true,
                ClientEvent::Failed { reason, .. } => return Err(io::Error::other(reason)),
            }
        }
        received.drain(..at);
        // Those who had to wait for others.
        while self.request(out) {}
        Ok(())
    }

    /// Copies what has been received of the first response; `None`: nothing has.
    fn copy(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        loop {
            let answer = self.answers.front_mut()?;
            if !answer.text.is_empty() {
                if self.server_ends && !std::mem::replace(&mut answer.is_read, true) {
                    answer.tell_end();
                }
                answer.is_read = true;
                return Some(answer.text.read(into));
            }
            if !answer.has_ended {
                return None;
            }
            let answer = self.answers.pop_front()?;
            self.connection.finished(answer.stream);
            if answer.was_reset {
                return Some(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
}

impl StreamAnswer {
    /// Says in the way of HTTP/1.1 that the connection ends.
    fn tell_end(&mut self) {
        let text = self.text.make_contiguous();
        let Some(end) = text.windows(4).position(|it| it == b"\r\n\r\n") else { return };
        let rest = self.text.split_off(end + 2);
        self.text.extend(b"Connection: close\r\n");
        self.text.extend(rest);
    }
}

/// A head with the names of its fields as HTTP/1.1 has them.
fn usual_names(head: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(head);
    let lines = text.split("\r\n").map(|line| match line.split_once(": ") {
        None => line.to_owned(),
        Some((name, value)) => {
            let words: Vec<String> = name
                .split('-')
                .map(|word| match word {
                    "etag" => "ETag".to_owned(),
                    "www" => "WWW".to_owned(),
                    _ => word[..1].to_uppercase() + &word[1..],
                })
                .collect();
            format!("{}: {value}", words.join("-"))
        }
    });
    lines.collect::<Vec<_>>().join("\r\n").into_bytes()
}

/// The beginning of a header block.
fn method_block(method: &str) -> Vec<u8> {
    let mut block = Vec::new();
    hpack::push_field(&mut block, ":method", method.as_bytes());
    block
}

impl Read for ClientWire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ClientWire { wire, http2 } = self;
        let Some(http2) = http2 else { return wire.read(into) };
        loop {
            if let Some(copied) = http2.copy(into) {
                return copied;
            }
            if http2.ends && http2.answers.is_empty() {
                (http2.ends, http2.is_half_closed) = (false, true);
                // The server may have ended it already.
                let _ = wire.try_end_sending();
            }
            if http2.receive(wire)? == 0 {
                return Ok(0);
            }
        }
    }
}

impl Write for ClientWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.http2.is_none() {
            return self.wire.write(bytes);
        }
        let frames = self.translated(bytes);
        self.wire.write_all(&frames)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }
}
