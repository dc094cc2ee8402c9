//! The test client's connection, over HTTP/2 where a test asks for it. Requests are written and responses are read in the form of
//! HTTP/1.1, so that one set of cases runs over both. With `DROVER_HTTP2=1` every client of the suite speaks it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use drover_http2::{ClientConnection, ClientEvent, StreamId, hpack};

use crate::tls::wire::Wire;

/// Whether all clients are to speak HTTP/2.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("DROVER_HTTP2").is_some()
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
    /// What was received, and is no whole frame yet.
    received: Vec<u8>,
    /// The responses, in the order of their requests.
    answers: VecDeque<StreamAnswer>,
}

struct StreamAnswer {
    stream: StreamId,
    /// In the form of HTTP/1.1, without what was read of it.
    text: VecDeque<u8>,
    has_ended: bool,
    was_reset: bool,
}

impl ClientWire {
    /// HTTP/1.1.
    pub(crate) fn over_http1(wire: Wire) -> ClientWire {
        ClientWire { wire, http2: None }
    }

    /// HTTP/2, which the server is known to speak.
    pub(crate) fn over_http2(mut wire: Wire) -> ClientWire {
        let mut out = Vec::new();
        let connection = ClientConnection::new(&mut out);
        // Whoever has closed already is found out later.
        let _ = wire.write_all(&out);
        let http2 = Translation {
            connection,
            asked: Vec::new(),
            received: Vec::new(),
            answers: VecDeque::new(),
        };
        ClientWire { wire, http2: Some(Box::new(http2)) }
    }
}

impl Translation {
    /// Takes a request from the beginning of what was asked, and puts it into `out`; `false`: it is not whole.
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(end) = self.asked.windows(4).position(|it| it == b"\r\n\r\n") else {
            return false;
        };
        let text = String::from_utf8_lossy(&self.asked[..end]).into_owned();
        self.asked.drain(..end + 4);
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap().split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let fields: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
        let mut block = Vec::new();
        hpack::push_field(&mut block, ":method", method.as_bytes());
        hpack::push_field(&mut block, ":scheme", b"http");
        hpack::push_field(&mut block, ":path", path.as_bytes());
        for (name, value) in fields {
            let name = match name {
                "Host" => ":authority",
                "Connection" => continue,
                name => name,
            };
            hpack::push_field(&mut block, name, value.trim().as_bytes());
        }
        let stream = self.connection.request(&block, (), out);
        let stream = stream.expect("the server takes as many requests");
        let (text, has_ended, was_reset) = (VecDeque::new(), false, false);
        self.answers.push_back(StreamAnswer { stream, text, has_ended, was_reset });
        true
    }

    /// Reads what has been received.
    fn take(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Translation { connection, received, answers, .. } = self;
        let mut of = |stream: StreamId, bytes: &[u8], ends: bool, was_reset: bool| {
            let answer = answers.iter_mut().find(|it| it.stream == stream).unwrap();
            answer.text.extend(bytes);
            answer.has_ended |= ends;
            answer.was_reset |= was_reset;
        };
        let mut at = 0;
        loop {
            let (used, event) = connection.receive(&received[at..], out);
            at += used;
            match event {
                ClientEvent::Incomplete => break,
                ClientEvent::Interim { stream, head, .. } => of(stream, head, false, false),
                ClientEvent::Head { stream, head, ends, .. } => of(stream, head, ends, false),
                ClientEvent::Data { stream, bytes, ends } => of(stream, bytes, ends, false),
                ClientEvent::Reset { stream, .. } => of(stream, &[], true, true),
                ClientEvent::GoAway { .. } => {}
                ClientEvent::Failed { reason, .. } => return Err(io::Error::other(reason)),
            }
        }
        received.drain(..at);
        Ok(())
    }

    /// Copies what has been received of the first response; `None`: nothing has.
    fn copy(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        loop {
            let answer = self.answers.front_mut()?;
            if !answer.text.is_empty() {
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

impl Read for ClientWire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ClientWire { wire, http2 } = self;
        let Some(http2) = http2 else { return wire.read(into) };
        loop {
            if let Some(copied) = http2.copy(into) {
                return copied;
            }
            let mut bytes = [0; 32 * 1024];
            let count = wire.read(&mut bytes)?;
            if count == 0 {
                return Ok(0);
            }
            http2.received.extend_from_slice(&bytes[..count]);
            let mut out = Vec::new();
            let taken = http2.take(&mut out);
            // A server that has closed may have said all that is wanted.
            let _ = wire.write_all(&out);
            taken?;
        }
    }
}

impl Write for ClientWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ClientWire { wire, http2 } = self;
        let Some(http2) = http2 else { return wire.write(bytes) };
        http2.asked.extend_from_slice(bytes);
        let mut out = Vec::new();
        while http2.request(&mut out) {}
        wire.write_all(&out)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }
}
