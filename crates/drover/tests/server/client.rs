//! A client of the tests that writes and reads what it is told to, with TLS where its server speaks it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::{PATIENCE, wait_until};
use crate::http2::wire::{self as http2, ClientWire};
use crate::tls::wire::{self as tls, Wire};

/// What has come for a client that it has not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Nothing,
    /// Bytes of a response.
    Bytes,
    /// The end of the stream, or of the connection.
    End,
}

/// A client that writes and reads what it is told to.
pub(crate) struct Client {
    /// Whom it is connected to.
    pub(crate) address: SocketAddr,
    stream: BufReader<ClientWire>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect(address).unwrap())
    }

    /// A client with a connection of its own.
    pub(crate) fn of(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let address = stream.peer_addr().unwrap();
        match http2::is_wanted() && tls::is_http2_spoken(address) {
            true => Client::over(ClientWire::over_http2(Wire::for_http2(address, stream))),
            false => Client::over_http1(Wire::to(address, stream)),
        }
    }

    /// A client that speaks HTTP/2, to a server that is known to do so too.
    pub(crate) fn over_http2(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = stream.peer_addr().unwrap();
        Client::over(ClientWire::over_http2(Wire::for_http2(address, stream)))
    }

    /// A client that speaks HTTP/1.1 over this connection, or what it likes.
    pub(crate) fn over_http1(wire: Wire) -> Client {
        Client::over(ClientWire::over_http1(wire))
    }

    /// A client with this connection.
    pub(crate) fn over(wire: ClientWire) -> Client {
        Client { address: wire.wire.tcp().peer_addr().unwrap(), stream: BufReader::new(wire) }
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.stream.get_ref().wire
    }

    /// Whether the server has told a client of HTTP/2 to make no more requests.
    pub(crate) fn is_sent_away(&self) -> bool {
        self.stream.get_ref().is_sent_away()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.wire().tcp()
    }

    /// Sends the beginning of a handshake, and waits for nothing.
    pub(crate) fn say_hello(&mut self) {
        self.stream.get_mut().wire.say_hello();
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Makes the handshake, on a connection over TLS; there is none on others.
    pub(crate) fn await_handshake(&mut self) -> std::io::Result<()> {
        self.stream.get_mut().wire.await_handshake()
    }

    /// Sends without waiting for anything. Over TLS it is the beginning of a handshake that leaves, and the bytes follow as soon as
    /// the client reads.
    pub(crate) fn send_ahead(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().send_behind(&[], bytes.as_ref());
    }

    /// Sends a header of the PROXY protocol, or a part of one, which comes before TLS.
    pub(crate) fn send_header(&mut self, header: impl AsRef<[u8]>) {
        self.stream().write_all(header.as_ref()).unwrap();
    }

    /// Sends such a header, and bytes behind it as [`Client::send_ahead`] does.
    pub(crate) fn send_behind(&mut self, header: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().send_behind(header.as_ref(), bytes.as_ref());
    }

    /// The bytes as they are on the wire: another thread may write them to [`Client::stream`].
    pub(crate) fn on_the_wire(&mut self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.stream.get_mut().on_the_wire(bytes.as_ref())
    }

    /// What has come and is not read, without waiting for it.
    pub(crate) fn arrived(&mut self) -> Arrived {
        match self.stream.buffer() {
            [] => self.stream.get_mut().arrived(),
            _ => Arrived::Bytes,
        }
    }

    /// How long a read waits.
    pub(crate) fn wait_at_most(&self, time: Duration) {
        self.stream().set_read_timeout(Some(time)).unwrap();
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.ask(target, &[])
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, target: &str, fields: &[&str]) -> Response {
        self.send(request("GET", target, fields));
        self.response()
    }

    #[track_caller]
    pub(crate) fn head(&mut self, target: &str, fields: &[&str]) -> Response {
        self.send(request("HEAD", target, fields));
        self.response_head()
    }

    /// Reads one response with its body.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        self.response_unless_cut().unwrap()
    }

    /// The same where the connection may be cut in the body.
    #[track_caller]
    pub(crate) fn response_unless_cut(&mut self) -> std::io::Result<Response> {
        let mut response = self.response_head();
        let bodiless = matches!(response.status, 304);
        let len = if bodiless { 0 } else { response.length() };
        response.body = vec![0; len as usize];
        self.stream.read_exact(&mut response.body)?;
        Ok(response)
    }

    /// Reads the head of a response and leaves its body.
    #[track_caller]
    pub(crate) fn response_head(&mut self) -> Response {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            assert!(line.ends_with("\r\n"), "the head ends early: {lines:?} {line:?}");
            line.truncate(line.len() - 2);
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, lines, body: Vec::new() }
    }

    /// Reads `count` bytes of a body.
    #[track_caller]
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads a line of a body, with its end.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    /// Waits for bytes that are not read yet, and says how many there are; none at the end of the
    /// stream.
    pub(crate) fn await_bytes(&mut self) -> std::io::Result<usize> {
        drover_testing::uninterrupted(|| self.stream.fill_buf().map(<[u8]>::len))
    }

    /// Reads to the end of the stream, and says how many bytes came and whether the end was a
    /// proper one.
    pub(crate) fn drain(&mut self) -> (u64, std::io::Result<()>) {
        let mut total = 0;
        loop {
            match self.take_some() {
                Ok(0) => return (total, Ok(())),
                Ok(count) => total += count as u64,
                Err(error) => return (total, Err(error)),
            }
        }
    }

    /// Reads `len` bytes, fewer at the end of the stream, and says how many.
    pub(crate) fn read_and_drop(&mut self, len: u64) -> std::io::Result<u64> {
        let mut taken = 0;
        while taken < len {
            match self.take_some()? {
                0 => break,
                count => taken += count as u64,
            }
        }
        Ok(taken)
    }

    /// Takes what has come, once something has; nothing at the end of the stream.
    pub(crate) fn take_bytes(&mut self) -> std::io::Result<Vec<u8>> {
        self.await_bytes()?;
        let bytes = self.stream.buffer().to_vec();
        self.stream.consume(bytes.len());
        Ok(bytes)
    }

    /// Takes what has come, once something has, and says how many bytes; none at the end of the stream.
    pub(crate) fn take_some(&mut self) -> std::io::Result<usize> {
        let count = self.await_bytes()?;
        self.stream.consume(count);
        Ok(count)
    }

    pub(crate) fn end_sending(&mut self) {
        self.stream.get_mut().end_sending();
    }

    /// Asserts that the server closes, in good order and without another byte.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let (bytes, end) = self.drain();
        assert!(end.is_ok() && bytes == 0, "{bytes} bytes, then {end:?}");
    }

    /// Asks until the server says that it closes the connection, and asserts that it does.
    #[track_caller]
    pub(crate) fn get_until_it_closes(&mut self, target: &str) {
        let closes = |response: Response| response.is(200).field("Connection") == Some("close");
        wait_until("the server closes the connection", || closes(self.get(target)));
        self.expect_end();
    }
}

/// A request with a `Host` and the given fields.
pub(crate) fn request(method: &str, target: &str, fields: &[&str]) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    for field in fields {
        text.push_str(field);
        text.push_str("\r\n");
    }
    text + "\r\n"
}

/// A response, its head line by line.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) lines: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a field that comes at most once.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.lines[1..].iter().filter_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert!(values.next().is_none(), "{name} comes twice: {:?}", self.lines);
        value
    }

    #[track_caller]
    pub(crate) fn length(&self) -> u64 {
        self.field("Content-Length").expect("a Content-Length").parse().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Whether the body has these bytes somewhere.
    pub(crate) fn text_contains(&self, bytes: &[u8]) -> bool {
        self.body.windows(bytes.len()).any(|it| it == bytes)
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{:?} {:?}", self.lines, self.body.escape_ascii());
        self
    }
}
