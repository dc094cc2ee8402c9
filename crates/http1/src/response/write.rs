//! Response heads, written into a buffer that the caller keeps and uses again.
//!
//! A [`Head`] begins with what every response has: the status line, `Server`, `Date` and `Connection`.
//! Each other field is one call. [`Head::finish`] ends the head; [`Head::text`] ends the head of a
//! response without a file. Nothing is formatted through `std::fmt` and nothing is allocated once the
//! buffer has grown to its size.

use crate::coding::ContentCoding;
use crate::conditional::Validators;
use crate::date::{self, DateText};
use crate::framing::Version;
use crate::range::ByteRange;
use crate::status::Status;

/// The whole interim response to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends the interim response 103 (RFC 8297) with whole lines, each with its end.
pub fn push_early_hints(out: &mut Vec<u8>, lines: &[u8]) {
    for part in [b"HTTP/1.1 103 Early Hints\r\n", lines, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// What the `Connection` field of a response has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionField {
    /// No field: an HTTP/1.1 connection persists by default.
    Implied,
    /// `keep-alive`: an HTTP/1.0 client asked for it.
    KeepAlive,
    /// `close`: the server closes after this response.
    Close,
}

impl ConnectionField {
    /// The whole field, with the end of its line.
    #[must_use]
    pub fn field(self) -> Option<&'static [u8]> {
        match self {
            ConnectionField::Implied => None,
            ConnectionField::KeepAlive => Some(b"Connection: keep-alive\r\n"),
            ConnectionField::Close => Some(b"Connection: close\r\n"),
        }
    }

    /// The field for a client that spoke `version`; `persists`: the connection stays open after the
    /// response.
    pub fn new(version: Version, persists: bool) -> Self {
        match (persists, version) {
            (false, _) => ConnectionField::Close,
            (true, Version::Http10) => ConnectionField::KeepAlive,
            (true, Version::Http11) => ConnectionField::Implied,
        }
    }
}

/// What every response begins with.
#[derive(Clone, Copy, Debug)]
pub struct Common<'a> {
    /// The value of `Server`; no field if empty.
    pub server: &'a str,
    /// The value of `Date`.
    pub date: &'a DateText,
    /// The value of `Connection`.
    pub connection: ConnectionField,
    /// Whole lines, each with its end, that all responses have in addition.
    pub lines: &'a [u8],
}

/// A response head in the making. It is not complete before [`finish`](Head::finish) or
/// [`text`](Head::text).
///
/// Values given as text or bytes are written as they are; they must not contain CR or LF.
#[derive(Debug)]
#[must_use = "a head without its closing empty line is no head"]
pub struct Head<'o> {
    out: &'o mut Vec<u8>,
    status: Status,
}

impl<'o> Head<'o> {
    /// Appends the status line and the fields in `common` to `out`.
    pub fn new(out: &'o mut Vec<u8>, status: Status, common: &Common<'_>) -> Self {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.text().as_bytes());
        out.extend_from_slice(b"\r\n");
        let mut head = Head { out, status };
        if !common.server.is_empty() {
            head = head.field("Server", common.server.as_bytes());
        }
        head = head.field("Date", common.date);
        head.out.extend_from_slice(common.connection.field().unwrap_or_default());
        head.out.extend_from_slice(common.lines);
        head
    }

    /// Any field.
    pub fn field(self, name: &str, value: &[u8]) -> Self {
        push_field(self.out, name, value);
        self
    }

    /// Whole lines, each with its end.
    pub fn lines(self, lines: &[u8]) -> Self {
        self.out.extend_from_slice(lines);
        self
    }

    /// `Content-Type`
    pub fn content_type(self, value: &str) -> Self {
        self.field("Content-Type", value.as_bytes())
    }

    /// `Content-Encoding`; no field for a representation as it is.
    pub fn content_encoding(self, coding: Option<ContentCoding>) -> Self {
        match coding {
            Some(coding) => self.field("Content-Encoding", coding.name().as_bytes()),
            None => self,
        }
    }

    /// `Vary: Accept-Encoding`, if the representation was chosen by that field (RFC 9110 section 12.5.5).
    pub fn varies_by_coding(self, varies: bool) -> Self {
        if varies { self.field("Vary", b"Accept-Encoding") } else { self }
    }

    /// `Content-Length` in bytes.
    pub fn content_length(self, length: u64) -> Self {
        self.out.extend_from_slice(b"Content-Length: ");
        push_decimal(self.out, length);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// `Last-Modified`, never later than `now` (RFC 9110 section 8.8.2.1), and `ETag`, as far as there
    /// are validators.
    pub fn validators(self, validators: &Validators, now: u64) -> Self {
        let head = match validators.modified {
            Some(modified) => self.field("Last-Modified", &date::format(modified.min(now))),
            None => self,
        };
        match &validators.etag {
            Some(tag) => head.field("ETag", tag.as_bytes()),
            None => head,
        }
    }

    /// `Accept-Ranges: bytes`
    pub fn accept_ranges(self) -> Self {
        self.field("Accept-Ranges", b"bytes")
    }

    /// `Content-Range` of a 206: `range` of a representation of `length` bytes.
    pub fn content_range(self, range: ByteRange, length: u64) -> Self {
        push_content_range(self.out, range, length);
        self
    }

    /// `Content-Range` of a 416: tells the client that the representation has `length` bytes.
    pub fn unsatisfied_range(self, length: u64) -> Self {
        self.out.extend_from_slice(b"Content-Range: bytes */");
        push_decimal(self.out, length);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// `Allow` of a 405.
    pub fn allow(self, methods: &str) -> Self {
        self.field("Allow", methods.as_bytes())
    }

    /// `Location` of a 301 that adds the closing slash to a directory: `name` as
    /// [`path::resolve`](crate::path::resolve) left it, escaped anew, and the query.
    pub fn directory_location(self, name: &[u8], query: Option<&[u8]>) -> Self {
        self.out.extend_from_slice(b"Location: /");
        if !name.is_empty() {
            push_path(self.out, name);
            self.out.push(b'/');
        }
        if let Some(query) = query {
            self.out.push(b'?');
            push_escaped(self.out, query, is_query_byte);
        }
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// `X-Content-Type-Options: nosniff`, for bodies that the server makes itself and that contain text of clients or names of
    /// files: a browser takes the body for its Content-Type and nothing else
    /// (<https://fetch.spec.whatwg.org/#x-content-type-options-header>).
    pub fn nosniff(self) -> Self {
        self.field("X-Content-Type-Options", b"nosniff")
    }

    /// Ends the head: the body, if the response has one, is the caller's business.
    pub fn finish(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the head of a response with one line of text as its body: the status and, if it is not
    /// empty, the reason. Without `with_body`, as for HEAD, only the body is left out:
    /// `Content-Length` stays.
    pub fn text(self, reason: &str, with_body: bool) {
        let status = self.status.text();
        let parts = match reason {
            "" => [status, "", "", "\n"],
            reason => [status, ": ", reason, "\n"],
        };
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let head = self.content_type("text/plain; charset=utf-8").nosniff();
        let head = head.content_length(length as u64);
        head.out.extend_from_slice(b"\r\n");
        if with_body {
            for part in parts {
                head.out.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// Appends a field.
pub(super) fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `Content-Range`: `range` of a representation of `length` bytes.
pub(super) fn push_content_range(out: &mut Vec<u8>, range: ByteRange, length: u64) {
    out.extend_from_slice(b"Content-Range: bytes ");
    push_decimal(out, range.start);
    out.push(b'-');
    push_decimal(out, range.end - 1);
    out.push(b'/');
    push_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

fn push_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_escaped(out: &mut Vec<u8>, bytes: &[u8], stays: fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes.iter().copied() {
        if stays(byte) {
            out.push(byte);
        } else {
            let high = DIGITS[usize::from(byte >> 4)];
            let low = DIGITS[usize::from(byte & 15)];
            out.extend_from_slice(&[b'%', high, low]);
        }
    }
}

/// Appends a path as it stands in a URL: bytes that may not stand there are percent-encoded (RFC 3986 section 3.3).
pub fn push_path(out: &mut Vec<u8>, path: &[u8]) {
    push_escaped(out, path, is_path_byte);
}

/// `pchar` and the slash (RFC 3986 section 3.3); a percent sign in a name must be escaped.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte)
}

/// A query stays escaped as the client sent it, so percent signs stay.
fn is_query_byte(byte: u8) -> bool {
    is_path_byte(byte) || byte == b'?' || byte == b'%'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditional::FileTimes;

    fn written(status: Status, connection: ConnectionField, rest: impl FnOnce(Head<'_>)) -> String {
        let date = date::format(784_111_777);
        let common = Common { server: "drover", date: &date, connection, lines: b"" };
        let mut out = Vec::new();
        rest(Head::new(&mut out, status, &common));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file_s_head_has_its_fields_in_the_order_of_the_calls() {
        let times = FileTimes { size: 100, modified: (2, 0), changed: (2, 0) };
        let head = written(Status::PartialContent, ConnectionField::Implied, |head| {
            head.content_type("text/html")
                .content_length(10)
                .content_range(ByteRange { start: 90, end: 100 }, u64::MAX)
                .validators(&Validators::of_times(&times, None, 9), u64::MAX)
                .accept_ranges()
                .finish();
        });
        assert_eq!(
            head,
            "HTTP/1.1 206 Partial Content\r\nServer: drover\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html\r\n\
             Content-Length: 10\r\nContent-Range: bytes 90-99/18446744073709551615\r\n\
             Last-Modified: Thu, 01 Jan 1970 00:00:02 GMT\r\n\
             ETag: \"200000000-64\"\r\nAccept-Ranges: bytes\r\n\r\n"
        );
    }

    #[test]
    fn connection_is_said_only_where_it_is_not_implied() {
        let line = |version, persists| {
            let connection = ConnectionField::new(version, persists);
            let head = written(Status::Ok, connection, |head| head.finish());
            let line = head.lines().find(|line| line.starts_with("Connection"));
            line.map(str::to_string)
        };
        assert_eq!(line(Version::Http11, true), None);
        let keep_alive = line(Version::Http10, true);
        assert_eq!(keep_alive.as_deref(), Some("Connection: keep-alive"));
        for version in [Version::Http10, Version::Http11] {
            assert_eq!(line(version, false).as_deref(), Some("Connection: close"));
        }
    }

    #[test]
    fn an_empty_server_name_leaves_the_field_out() {
        let common = Common {
            server: "",
            date: &date::format(0),
            connection: ConnectionField::Implied,
            lines: b"",
        };
        let mut out = Vec::new();
        Head::new(&mut out, Status::Ok, &common).finish();
        assert!(!String::from_utf8(out).unwrap().contains("Server"));
    }

    #[test]
    fn a_text_response_has_the_same_length_with_and_without_body() {
        let response = |with_body| {
            written(Status::BadRequest, ConnectionField::Close, |head| {
                head.text("no Host field", with_body);
            })
        };
        let body = "400 Bad Request: no Host field\n";
        assert!(response(true).contains(&format!("Content-Length: {}\r\n", body.len())));
        assert_eq!(response(true), response(false) + body);
        let bare = written(Status::NotFound, ConnectionField::Implied, |head| head.text("", true));
        assert!(bare.ends_with("Content-Length: 14\r\n\r\n404 Not Found\n"));
    }

    #[test]
    fn refusals_carry_the_fields_they_must() {
        let head = written(Status::MethodNotAllowed, ConnectionField::Implied, |head| {
            head.allow("GET, HEAD").text("", true);
        });
        assert!(head.contains("\r\nAllow: GET, HEAD\r\n"));
        let head = written(Status::RangeNotSatisfiable, ConnectionField::Implied, |head| {
            head.unsatisfied_range(0).text("", true);
        });
        assert!(head.contains("\r\nContent-Range: bytes */0\r\n"));
    }

    #[test]
    fn a_directory_s_location_is_escaped_and_local() {
        let location = |name: &[u8], query: Option<&[u8]>| {
            let head = written(Status::MovedPermanently, ConnectionField::Implied, |head| {
                head.directory_location(name, query).finish();
            });
            let line = head.lines().find_map(|line| line.strip_prefix("Location: "));
            line.unwrap().to_string()
        };
        assert_eq!(location(b"a/b", None), "/a/b/");
        assert_eq!(location(b"", None), "/");
        assert_eq!(location(b"a b%\xff?\r\n", None), "/a%20b%25%FF%3F%0D%0A/");
        assert_eq!(location(b"a", Some(b"b=%20\r\n\xff?")), "/a/?b=%20%0D%0A%FF?");
    }
}
