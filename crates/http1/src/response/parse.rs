//! Response heads as a client reads them: the status, and where the body ends.
//!
//! The load generator calls [`parse`] once per response, so only the fields that it needs are looked
//! at. A response that could be read in two ways is an error: after a wrong guess, the next response
//! on the connection would be read from the wrong byte.

use std::borrow::Cow;
use std::fmt;
use std::mem::MaybeUninit;

use crate::fields::{Fields, start_line, without_empty_lines};
use crate::framing::{Delimiters, Stated, Version};

/// The longest head a response may have, in bytes. It may have as many fields as fit.
pub const MAX_HEAD: usize = 64 << 10;

/// Heads with up to this many fields are parsed without an allocation.
const USUAL_FIELDS: usize = 100;

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
    /// The status code, 100 to 999. A code above 599 has no meaning in HTTP, and some servers use one. A client treats
    /// it like a 5xx (RFC 9110 section 15).
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
pub enum BadResponse {
    /// The bytes do not begin with `HTTP/`.
    NotHttp,
    /// The version is not HTTP/1.x. Later minor versions than 1 are read as HTTP/1.1 (RFC 9110 section 2.5).
    Version,
    /// The status is not three digits from 100 on, or the reason phrase has control characters.
    Status,
    /// The status is 101, and the request asked for no other protocol.
    SwitchingProtocols,
    /// A field line has an invalid name, value or line end.
    FieldLine,
    /// The head is longer than [`MAX_HEAD`].
    HeadTooLong,
    /// The fields do not say where the body ends, or say it in two ways. What was wrong, in a few words without a full
    /// stop.
    Framing(&'static str),
}

impl fmt::Display for BadResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bad response: ")?;
        formatter.write_str(match self {
            BadResponse::NotHttp => "not HTTP",
            BadResponse::Version => "not HTTP/1",
            BadResponse::Status => "invalid status line",
            BadResponse::SwitchingProtocols => "the server switches protocols",
            BadResponse::FieldLine => "invalid field line",
            BadResponse::HeadTooLong => "head too long",
            BadResponse::Framing(reason) => reason,
        })
    }
}

impl std::error::Error for BadResponse {}

/// Parses the response head at the beginning of `input`; `None` means that more bytes are needed.
///
/// `request_was_head` says whether the request was a HEAD: a response to HEAD has no body, whatever
/// its fields announce.
///
/// Folded field lines (RFC 9112 section 5.2), later minor versions of HTTP/1 (RFC 9110 section 2.5), and any number of
/// fields are accepted. More than 100 fields, and other minor versions than 0 and 1, take an allocation per call.
///
/// # Errors
///
/// A [`BadResponse`] if the bytes are not an HTTP/1 head, the head is longer than [`MAX_HEAD`], the
/// body's end is ambiguous, or the server switches protocols, which nobody asked for.
pub fn parse(input: &[u8], request_was_head: bool) -> Result<Option<ResponseHead>, BadResponse> {
    let window = &input[..input.len().min(MAX_HEAD)];
    let mut room = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
    let parsed = read(window, request_was_head, &mut room)
        .or_else(|error| read_unusual(window, request_was_head, error));
    match parsed {
        Ok(Ok(None)) if input.len() >= MAX_HEAD => Err(BadResponse::HeadTooLong),
        Ok(head) => head,
        Err(error) => Err(kind_of(error, window)),
    }
}

/// A head whose lines could be read; `None`: more bytes are needed. The error is in what the lines mean.
type ReadHead = Result<Option<ResponseHead>, BadResponse>;

/// Reads the head if it has at most as many fields as there is `room` for.
fn read<'i>(
    window: &'i [u8],
    request_was_head: bool,
    room: &mut [MaybeUninit<httparse::Header<'i>>],
) -> Result<ReadHead, httparse::Error> {
    let mut head = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .allow_obsolete_multiline_headers_in_responses(true)
        .parse_response_with_uninit_headers(&mut head, window, room);
    Ok(match parsed? {
        httparse::Status::Complete(head_len) => {
            interpret(&head, head_len, request_was_head).map(Some)
        }
        httparse::Status::Partial => Ok(None),
    })
}

/// Reads a head again that has many fields or a later minor version, after the `error` that it gave.
#[cold]
fn read_unusual(
    window: &[u8],
    request_was_head: bool,
    error: httparse::Error,
) -> Result<ReadHead, httparse::Error> {
    let window = match error {
        httparse::Error::TooManyHeaders => Cow::Borrowed(window),
        httparse::Error::Version => match as_http_1_1(window) {
            Some(window) => Cow::Owned(window),
            None => return Err(error),
        },
        _ => return Err(error),
    };
    let lines = window.iter().filter(|byte| **byte == b'\n').count();
    read(&window, request_was_head, &mut vec![MaybeUninit::uninit(); lines])
}

/// A copy of a head of HTTP/1.2 to HTTP/1.9 with the version HTTP/1.1, the latest that is known here.
fn as_http_1_1(window: &[u8]) -> Option<Vec<u8>> {
    let head = without_empty_lines(window);
    head.strip_prefix(b"HTTP/1.")?.first().filter(|digit| digit.is_ascii_digit())?;
    let mut copy = window.to_vec();
    copy[window.len() - head.len() + "HTTP/1.".len()] = b'1';
    Some(copy)
}

#[cold]
fn kind_of(error: httparse::Error, window: &[u8]) -> BadResponse {
    match error {
        httparse::Error::Version if without_empty_lines(window).starts_with(b"HTTP/") => {
            BadResponse::Version
        }
        httparse::Error::Version | httparse::Error::Token => BadResponse::NotHttp,
        httparse::Error::Status => BadResponse::Status,
        httparse::Error::HeaderName
        | httparse::Error::HeaderValue
        | httparse::Error::NewLine
        | httparse::Error::TooManyHeaders => BadResponse::FieldLine,
    }
}

fn interpret(
    head: &httparse::Response<'_, '_>,
    head_len: usize,
    request_was_head: bool,
) -> Result<ResponseHead, BadResponse> {
    let status = match head.code {
        Some(101) => {
            return Err(BadResponse::SwitchingProtocols);
        }
        Some(code @ 100..=999) => code,
        _ => return Err(BadResponse::Status),
    };
    let version = Version::from_minor(head.version);
    let (stated, persists) = delimiters_of(head.headers, version)
        .map_err(|refusal| BadResponse::Framing(refusal.reason))?;
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

    #[track_caller]
    fn refused(input: &str) -> BadResponse {
        parse(input.as_bytes(), false).unwrap_err()
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

    /// RFC 9112 section 5.2: each fold is white space.
    #[test]
    fn a_folded_field_is_one_field() {
        let input = "HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\nContent-Length:\r\n 5\r\nConnection: a,\r\n close\r\nY:z\r\n\r\n";
        let response = whole(input);
        assert_eq!((response.body, response.keep_alive), (BodyLength::Length(5), false));
        let fields: Vec<_> = response.fields(input.as_bytes()).collect();
        let wanted: [(&str, &[u8]); 4] = [
            ("X", b"a\r\n\tb"),
            ("Content-Length", b"5"),
            ("Connection", b"a,\r\n close"),
            ("Y", b"z"),
        ];
        assert_eq!(fields, wanted);
        // Two numbers, or two words, are not one.
        refused("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n");
        refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n chunked\r\n\r\n");
    }

    /// RFC 9110 section 15: a client passes on a code that is no status as it came.
    #[test]
    fn a_status_beyond_the_known_classes_is_read() {
        for status in [100, 199, 200, 599, 600, 999] {
            let response = whole(&format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"));
            assert_eq!((response.status, response.is_interim()), (status, status < 200));
        }
    }

    /// RFC 9110 section 2.5: a message of a later minor version is one of the latest that is known.
    #[test]
    fn a_later_minor_version_is_read_as_http_1_1() {
        for minor in 2..=9 {
            let fields = "Transfer-Encoding: chunked\r\nX: y\r\n";
            let input = format!("\r\nHTTP/1.{minor} 200 OK\r\n{fields}\r\n");
            let response = whole(&input);
            assert_eq!((response.body, response.keep_alive), (BodyLength::Chunked, true));
            assert_eq!(response.head_len, input.len());
            assert_eq!(response.reason(input.as_bytes()), Some(b"OK".as_slice()));
            for end in 0..input.len() {
                assert_eq!(parse(&input.as_bytes()[..end], false), Ok(None), "at {end}");
            }
        }
    }

    #[test]
    fn a_head_may_have_as_many_fields_as_fit() {
        for (line, count) in [("X: y\r\n", 101), ("a:\n", 21_000)] {
            let input =
                format!("HTTP/1.1 200 OK\r\n{}Content-Length: 3\r\n\r\n", line.repeat(count));
            let response = whole(&input);
            assert_eq!(response.body, BodyLength::Length(3));
            assert_eq!(response.fields(input.as_bytes()).count(), count + 1);
        }
    }

    #[test]
    fn ambiguous_or_foreign_responses_are_errors_of_their_kind() {
        use BadResponse::*;
        let with = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let length = "Content-Length: 1\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n";
        assert_eq!(refused(&with(&length.repeat(2))), Framing("more than one Content-Length"));
        for unclear in [
            format!("{length}{chunked}"),
            "Content-Length: 1,1\r\n".to_string(),
            "Transfer-Encoding: gzip, chunked\r\n".to_string(),
        ] {
            let error = refused(&with(&unclear));
            assert!(matches!(error, Framing(_)), "{unclear}: {error}");
        }
        for (input, kind) in [
            ("SSH-2.0-x\r\n", NotHttp),
            ("\x15\x03\x01\x00\x02\x02\x46", NotHttp),
            ("HTTPX", NotHttp),
            ("HTTP/2 200\r\n", Version),
            ("HTTP/2.0 200 OK\r\n", Version),
            ("HTTP/1.10 200 OK\r\n", Version),
            ("HTTP/1.20 200 OK\r\n", Version),
            ("HTTP/1.x 200 OK\r\n", Version),
            ("HTTP/1.1 099 X\r\n\r\n", Status),
            ("HTTP/1.1 2x0 X\r\n\r\n", Status),
            ("HTTP/1.1 1000 X\r\n\r\n", Status),
            ("HTTP/1.1 200 \0\r\n\r\n", Status),
            ("HTTP/1.1 101 X\r\n\r\n", SwitchingProtocols),
            ("HTTP/1.1 200 OK\r\n X: y\r\n\r\n", FieldLine),
            ("HTTP/1.1 200 OK\r\nX y\r\n\r\n", FieldLine),
            ("HTTP/1.1 200 OK\r\nX: \0\r\n\r\n", FieldLine),
            ("HTTP/1.1 200 OK\r\n\rX", FieldLine),
        ] {
            assert_eq!(refused(input), kind, "{input:?}");
        }
    }

    #[test]
    fn a_head_without_end_is_an_error_at_the_limit() {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(MAX_HEAD));
        assert_eq!(parse(&head.as_bytes()[..MAX_HEAD - 1], false), Ok(None));
        assert_eq!(refused(&head[..MAX_HEAD]), BadResponse::HeadTooLong);
    }
}
