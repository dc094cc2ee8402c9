//! Response heads as a client reads them: the status, and where the body ends.
//!
//! The load generator calls [`parse`] once per response, so only the fields that it needs are looked
//! at. A response that could be read in two ways is an error: after a wrong guess, the next response
//! on the connection would be read from the wrong byte.

use std::fmt;
use std::mem::MaybeUninit;

use crate::fields::{Fields, start_line};
use crate::framing::{Delimiters, Stated, Version};

/// The longest head a response may have, in bytes.
pub const MAX_HEAD: usize = 64 << 10;

/// The most fields a response may have.
pub const MAX_FIELDS: usize = 100;

/// How a response's body is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyLength {
    /// No body: the response to HEAD, an interim response, 204 or 304.
    None,
    /// So many bytes follow; can be 0.
    Length(u64),
    /// Chunks follow: see [`chunked::Decoder`](crate::chunked::Decoder).
    Chunked,
    /// Everything until the server closes.
    UntilClose,
}

/// A response head. It borrows nothing, so that it can be kept while its bytes are consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 599.
    pub status: u16,
    /// The head's length in bytes, with the closing empty line.
    pub head_len: usize,
    /// How the body is delimited.
    pub body: BodyLength,
    /// Whether another request may be sent on the connection after the body.
    pub keep_alive: bool,
}

impl ResponseHead {
    /// Whether this is a 1xx: the final response follows right behind it.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// All fields in the order in which they were sent. `input` is the input that [`parse`] was called with; each call
    /// reads its head again, and nothing is allocated.
    #[must_use]
    pub fn fields<'a>(&self, input: &'a [u8]) -> Fields<'a> {
        Fields::of(self.head_of(input))
    }

    /// The reason phrase behind the status code, for people; `None`: there is none, or it is empty. `input` is the input
    /// that [`parse`] was called with.
    #[must_use]
    pub fn reason<'a>(&self, input: &'a [u8]) -> Option<&'a [u8]> {
        let reason = start_line(self.head_of(input)).get("HTTP/1.1 200 ".len()..)?;
        (!reason.is_empty()).then_some(reason)
    }

    fn head_of<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        &input[..self.head_len.min(input.len())]
    }
}

/// Why bytes are not a response. The connection must be closed: where the next response begins is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadResponse {
    /// What was wrong, in a few words without a full stop.
    pub reason: &'static str,
}

impl fmt::Display for BadResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "bad response: {}", self.reason)
    }
}

impl std::error::Error for BadResponse {}

/// Parses the response head at the beginning of `input`; `None` means that more bytes are needed.
///
/// `request_was_head` says whether the request was a HEAD: a response to HEAD has no body, whatever
/// its fields announce.
///
/// # Errors
///
/// A [`BadResponse`] if the bytes are not an HTTP/1 head, the head is longer than [`MAX_HEAD`], the
/// body's end is ambiguous, or the server switches protocols, which nobody asked for.
pub fn parse(input: &[u8], request_was_head: bool) -> Result<Option<ResponseHead>, BadResponse> {
    let window = &input[..input.len().min(MAX_HEAD)];
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut head,
        window,
        &mut fields,
    );
    match parsed {
        Ok(httparse::Status::Complete(head_len)) => {
            interpret(&head, head_len, request_was_head).map(Some)
        }
        Ok(httparse::Status::Partial) if input.len() >= MAX_HEAD => {
            Err(BadResponse { reason: "head too long" })
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(BadResponse { reason: reason_for(error) }),
    }
}

#[cold]
fn reason_for(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::Status => "invalid status",
        httparse::Error::Version => "not HTTP/1.0 or HTTP/1.1",
        httparse::Error::HeaderName => "invalid field name",
        httparse::Error::HeaderValue => "invalid field value",
        httparse::Error::NewLine => "invalid line end",
        httparse::Error::TooManyHeaders => "too many fields",
        httparse::Error::Token => "invalid status line",
    }
}

fn interpret(
    head: &httparse::Response<'_, '_>,
    head_len: usize,
    request_was_head: bool,
) -> Result<ResponseHead, BadResponse> {
    let status = match head.code {
        Some(101) => {
            return Err(BadResponse { reason: "the server switches protocols" });
        }
        Some(code @ 100..=599) => code,
        _ => {
            return Err(BadResponse { reason: "status out of range" });
        }
    };
    let version = Version::from_minor(head.version);
    let (stated, persists) = delimiters_of(head.headers, version)
        .map_err(|refusal| BadResponse { reason: refusal.reason })?;
    let body = match stated {
        _ if request_was_head || matches!(status, 100..=199 | 204 | 304) => BodyLength::None,
        Stated::Length(length) => BodyLength::Length(length),
        Stated::Chunked => BodyLength::Chunked,
        Stated::Nothing => BodyLength::UntilClose,
    };
    Ok(ResponseHead {
        status,
        head_len,
        body,
        keep_alive: persists && body != BodyLength::UntilClose,
    })
}

fn delimiters_of(
    fields: &[httparse::Header<'_>],
    version: Version,
) -> Result<(Stated, bool), crate::status::Refusal> {
    let mut delimiters = Delimiters::default();
    for field in fields {
        let is = |known: &str| field.name.eq_ignore_ascii_case(known);
        match field.name.len() {
            10 if is("Connection") => delimiters.connection(field.value),
            14 if is("Content-Length") => delimiters.content_length(field.value)?,
            17 if is("Transfer-Encoding") => delimiters.transfer_encoding(field.value)?,
            _ => {}
        }
    }
    Ok((delimiters.stated(version)?, delimiters.persists(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(input: &str) -> ResponseHead {
        parse(input.as_bytes(), false).unwrap().unwrap()
    }

    fn refused(input: &str) -> &'static str {
        parse(input.as_bytes(), false).unwrap_err().reason
    }

    #[test]
    fn all_fields_and_the_reason_can_be_had() {
        let input = b"HTTP/1.1 404 Not  Here\r\nServer: x\r\nSet-Cookie: a\r\nset-cookie:b\r\nContent-Length: 2\r\n\r\nno";
        let response = parse(input, false).unwrap().unwrap();
        assert_eq!(response.reason(input), Some(b"Not  Here".as_slice()));
        let fields: Vec<_> = response.fields(input).collect();
        let wanted: [(&str, &[u8]); 4] = [
            ("Server", b"x"),
            ("Set-Cookie", b"a"),
            ("set-cookie", b"b"),
            ("Content-Length", b"2"),
        ];
        assert_eq!(fields, wanted);
        for bare in ["HTTP/1.1 200\r\n\r\n", "HTTP/1.0 200 \r\n\r\n"] {
            assert_eq!(whole(bare).reason(bare.as_bytes()), None);
            assert_eq!(whole(bare).fields(bare.as_bytes()).count(), 0);
        }
    }

    #[test]
    fn a_plain_response_is_read() {
        let input = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 5\r\n\r\nhello";
        let response = whole(input);
        assert_eq!(response.status, 200);
        assert_eq!(response.head_len, input.len() - 5);
        assert_eq!(response.body, BodyLength::Length(5));
        assert!(response.keep_alive && !response.is_interim());
    }

    #[test]
    fn some_responses_have_no_body_whatever_they_announce() {
        for status in [100, 103, 204, 304] {
            let input = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
            assert_eq!(whole(&input).body, BodyLength::None);
            assert!(whole(&input).keep_alive);
            assert_eq!(whole(&input).is_interim(), status < 200);
        }
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(parse(input, true).unwrap().unwrap().body, BodyLength::None);
    }

    #[test]
    fn without_a_length_the_body_lasts_until_the_close() {
        let response = whole("HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(response.body, BodyLength::UntilClose);
        assert!(!response.keep_alive);
        let chunked = whole("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(chunked.body, BodyLength::Chunked);
        assert!(chunked.keep_alive);
    }

    #[test]
    fn persistence_follows_version_and_connection() {
        let keep_alive =
            |start: &str| whole(&format!("HTTP/{start}\r\nContent-Length: 0\r\n\r\n")).keep_alive;
        assert!(keep_alive("1.1 200 OK"));
        assert!(!keep_alive("1.1 200 OK\r\nConnection: close"));
        assert!(!keep_alive("1.0 200 OK"));
        assert!(keep_alive("1.0 200 OK\r\nConnection: Keep-Alive"));
    }

    #[test]
    fn ambiguous_or_foreign_responses_are_errors() {
        let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let length = "Content-Length: 1\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        assert_eq!(refused(&with(&length.repeat(2))), "more than one Content-Length");
        refused(&with(&format!("{length}{chunked}")));
        refused(&with("Content-Length: 1,1\r\n"));
        refused(&with("Transfer-Encoding: gzip, chunked\r\n"));
        refused(&with(&"X: y\r\n".repeat(MAX_FIELDS + 1)));
        assert_eq!(refused("SSH-2.0-x\r\n"), "not HTTP/1.0 or HTTP/1.1");
        assert_eq!(refused("HTTP/1.1 099 X\r\n\r\n"), "status out of range");
        assert_eq!(refused("HTTP/1.1 600 X\r\n\r\n"), "status out of range");
        assert_eq!(refused("HTTP/1.1 2x0 X\r\n\r\n"), "invalid status");
        assert_eq!(refused("HTTP/1.1 101 X\r\n\r\n"), "the server switches protocols");
    }

    #[test]
    fn a_head_without_end_is_an_error_at_the_limit() {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(MAX_HEAD));
        assert_eq!(parse(&head.as_bytes()[..MAX_HEAD - 1], false), Ok(None));
        assert_eq!(refused(&head[..MAX_HEAD]), "head too long");
    }
}
