//! Request heads: from the bytes received so far to a [`Request`] that borrows from them.
//!
//! [`parse`] is called again with the longer input whenever it says that bytes are missing. Once a
//! prefix of the input has a result, every longer input has this result too. Where RFC 9112 lets the
//! recipient choose, the stricter reading is taken, because a lenient server behind a proxy makes
//! request smuggling possible: a line ends with CR LF, a field is never folded, a `Host` comes once.

use std::mem::MaybeUninit;

use crate::conditional::Conditions;
use crate::fields::{Fields, ListField, RequestFields, start_line};
use crate::framing::{Delimiters, Stated, Version, list};
use crate::status::{Refusal, Status};

/// More fields than these have no room, whatever [`HeadLimits`] says.
pub const MAX_FIELDS: usize = 256;

/// What a request line has beside the method and the target: two spaces and the version.
const REST_OF_LINE: usize = " ".len() + " HTTP/1.1".len();

const LINE_TOO_LONG: Refusal = Refusal::new(Status::UriTooLong, "request line too long");
const FIELD_TOO_LONG: Refusal = Refusal::new(Status::HeadTooLarge, "header field too long");

/// How much a head may have before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The longest request line in bytes, without its CR LF; a longer one is a 414. Also the longest field, name and value
    /// together; a longer one is a 431.
    pub line: usize,
    /// The longest head in bytes, its closing empty line included; a longer one is a 431.
    pub head: usize,
    /// The most fields, up to [`MAX_FIELDS`]; one more is a 431.
    pub fields: usize,
}

impl Default for HeadLimits {
    /// 8 KiB for the request line (RFC 9112 section 3 asks for 8000 bytes) and for each of up to 100 fields, as Apache's httpd
    /// has it, and 32 KiB for the head.
    fn default() -> Self {
        HeadLimits { line: 8 << 10, head: 32 << 10, fields: 100 }
    }
}

/// The method of a request. Methods are case-sensitive (RFC 9110 section 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `OPTIONS`
    Options,
    /// Another method of RFC 9110 section 9.3 or PATCH (RFC 5789), which a file server answers with 405.
    Other,
    /// Any other token: a 501.
    Unknown,
}

impl Method {
    fn of(token: &str) -> Method {
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "TRACE" | "PATCH" => Method::Other,
            _ => Method::Unknown,
        }
    }

    /// Whether the method asks for a representation: GET, or HEAD without the content.
    fn reads(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

/// How the request's body is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No body: the next request begins right after the head. `Content-Length: 0` is this too.
    None,
    /// So many bytes follow; never 0.
    Length(u64),
    /// Chunks follow: see [`chunked::Decoder`](crate::chunked::Decoder).
    Chunked,
}

/// A request head. All slices borrow from the input.
///
/// The parser interprets the fields that decide how a message is delimited and which part of a file it asks for. All
/// other fields are read when they are asked for, by [`Request::fields`].
///
/// A second `Host`, `Range`, `If-Range` or date is a 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method. [`Request::method_text`] has its text.
    pub method: Method,
    /// The request target as it was sent, for logs.
    pub target: &'a [u8],
    /// Path and query: the target without the scheme and authority it may have had. For
    /// other methods than GET and HEAD the target itself, unchecked.
    pub path: &'a [u8],
    /// The version in the request line.
    pub version: Version,
    /// The bytes of the head, leading and closing empty lines included. What follows in the input is the body or the
    /// next request.
    pub head: &'a [u8],
    /// Whether the client lets the connection persist after the response.
    pub keep_alive: bool,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the client waits for a 100 before it sends the body.
    pub expect_continue: bool,
    /// The authority: the target's if it has one, else `Host`.
    pub host: Option<&'a [u8]>,
    /// `Range`, for GET only: it means nothing with other methods (RFC 9110 section 14.2).
    pub range: Option<&'a [u8]>,
    /// `Accept-Encoding`
    pub accept_encoding: Option<ListField<'a>>,
    /// The preconditions.
    pub conditions: Conditions<'a>,
}

/// Parses the head at the beginning of `input`; `None` means that more bytes are needed.
///
/// Empty lines before the request line are skipped (RFC 9112 section 2.2) and count for the head.
///
/// # Errors
///
/// A [`Refusal`] with status 400, 414, 417, 431, 501 or 505. It can come before the head is complete.
/// Where the message ends is then unknown: answer and close.
pub fn parse<'a>(input: &'a [u8], limits: &HeadLimits) -> Result<Option<Request<'a>>, Refusal> {
    // Looking at no more than a legal head keeps the answer independent of how much came at once.
    let window = &input[..input.len().min(limits.head)];
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let fields = &mut fields[..limits.fields.min(MAX_FIELDS)];
    let mut head = httparse::Request::new(&mut []);
    match head.parse_with_uninit_headers(window, fields) {
        Ok(httparse::Status::Complete(head_len)) => interpret(&head, &window[..head_len], limits),
        Ok(httparse::Status::Partial) if line_is_too_long(window, limits) => Err(LINE_TOO_LONG),
        Ok(httparse::Status::Partial) if input.len() >= limits.head => Err(Refusal::HEAD_TOO_LONG),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) if line_is_too_long(window, limits) => Err(LINE_TOO_LONG),
        Err(error) => Err(refusal_for(error, window)),
    }
}

/// Whether the request line outgrew its limit, or that of the whole head, before anything else in `window` was wrong.
#[cold]
fn line_is_too_long(window: &[u8], limits: &HeadLimits) -> bool {
    let Some(start) = line_start(window) else {
        return false;
    };
    let end = start.saturating_add(limits.line).saturating_add(1).min(limits.head);
    let Some(line) = window.get(start..end) else {
        return false;
    };
    let so_far = httparse::Request::new(&mut []).parse(&window[..end]);
    !line.iter().any(|byte| b"\r\n".contains(byte)) && so_far == Ok(httparse::Status::Partial)
}

/// The offset of the request line, which empty lines may precede.
fn line_start(window: &[u8]) -> Option<usize> {
    window.iter().position(|byte| !b"\r\n".contains(byte))
}

/// The offset of the first byte after the method and its space.
fn target_start(window: &[u8]) -> Option<usize> {
    let line = line_start(window)?;
    let space = window[line..].iter().position(|byte| *byte == b' ')?;
    Some(line + space + 1)
}

#[cold]
fn refusal_for(error: httparse::Error, window: &[u8]) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => {
            Refusal::new(Status::HeadTooLarge, "too many header fields")
        }
        httparse::Error::Version => {
            let mut words = window[target_start(window).unwrap_or(0)..].splitn(2, |b| *b == b' ');
            match words.nth(1) {
                Some(version) if version.starts_with(b"HTTP/") => Refusal::new(
                    Status::VersionNotSupported,
                    "only HTTP/1.0 and HTTP/1.1 are spoken here",
                ),
                _ => Refusal::bad("no HTTP version in the request line"),
            }
        }
        httparse::Error::HeaderName => Refusal::bad("invalid header field name"),
        httparse::Error::HeaderValue => Refusal::bad("invalid header field value"),
        httparse::Error::NewLine => Refusal::bad("invalid line end"),
        httparse::Error::Token | httparse::Error::Status => Refusal::bad("invalid request line"),
    }
}

/// Parses a whole head that HTTP/2 has written in the form of HTTP/1.1 (RFC 9113 section 8.3), with nothing behind it.
///
/// # Errors
/// A [`Refusal`] as of [`parse`], and 431 for a head that is longer than `limits` allows.
pub fn parse_translated<'a>(input: &'a [u8], limits: &HeadLimits) -> Result<Request<'a>, Refusal> {
    let mut request = parse(input, limits)?.ok_or(Refusal::HEAD_TOO_LONG)?;
    (request.version, request.keep_alive) = (Version::Http2, true);
    Ok(request)
}

/// Interprets the fields of a head. Each line is well-formed already.
fn interpret<'a>(
    head: &httparse::Request<'_, 'a>,
    bytes: &'a [u8],
    limits: &HeadLimits,
) -> Result<Option<Request<'a>>, Refusal> {
    let method = head.method.unwrap_or_default();
    let target = head.path.unwrap_or_default().as_bytes();
    if method.len() + target.len() + REST_OF_LINE > limits.line {
        return Err(LINE_TOO_LONG);
    }
    if has_bare_line_feed(bytes, head.headers) {
        return Err(Refusal::bad("a line ends without CR"));
    }
    let method = Method::of(method);
    let version = Version::from_minor(head.version);
    // Where it is returned from the beginning: a request is long to move.
    let mut parsed = Ok(Some(Request {
        method,
        target,
        path: target,
        version,
        head: bytes,
        keep_alive: false,
        framing: Framing::None,
        expect_continue: false,
        host: None,
        range: None,
        accept_encoding: None,
        conditions: Conditions::default(),
    }));
    if let Ok(Some(request)) = &mut parsed {
        request.take_all(head.headers, limits)?;
    }
    parsed
}

impl<'a> Request<'a> {
    /// All fields in the order in which they were sent, the interpreted ones included. Each call reads the head again;
    /// nothing is allocated.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields::of(self.head)
    }

    /// The value of the first field with this name.
    #[must_use]
    pub fn field(&self, wanted: &str) -> Option<&'a [u8]> {
        self.fields().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    }

    /// The method as it was sent, also a method that [`Method`] does not name.
    #[must_use]
    pub fn method_text(&self) -> &'a str {
        let method = start_line(self.head).split(|byte| *byte == b' ').next();
        // The parser accepts only tokens (RFC 9110 section 9.1), which are ASCII.
        method.and_then(|method| str::from_utf8(method).ok()).unwrap_or_default()
    }

    /// Takes the fields, and what they say together.
    #[inline]
    fn take_all(
        &mut self,
        fields: &[httparse::Header<'a>],
        limits: &HeadLimits,
    ) -> Result<(), Refusal> {
        let all = RequestFields::of_head(self.head);
        let mut delimiters = Delimiters::default();
        for field in fields {
            if field.name.len() + field.value.len() > limits.line {
                return Err(FIELD_TOO_LONG);
            }
            self.take(field.name, field.value, all, &mut delimiters)?;
        }
        self.keep_alive = delimiters.persists(self.version);
        self.framing = match delimiters.stated(self.version)? {
            Stated::Nothing | Stated::Length(0) => Framing::None,
            Stated::Length(length) => Framing::Length(length),
            Stated::Chunked => Framing::Chunked,
        };
        self.settle_host()?;
        if self.method != Method::Get {
            self.range = None;
        }
        Ok(())
    }

    /// Takes one of the request's `fields`. The length of the name tells nearly all of them apart.
    fn take(
        &mut self,
        name: &str,
        value: &'a [u8],
        fields: RequestFields<'a>,
        delimiters: &mut Delimiters,
    ) -> Result<(), Refusal> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let conditions = &mut self.conditions;
        match name.len() {
            4 if is("Host") => return once(&mut self.host, value),
            5 if is("Range") => return once(&mut self.range, value),
            6 if is("Expect") && self.version == Version::Http11 => {
                // What else might be expected cannot be met (RFC 9110 section 10.1.1).
                if !list(value).all(|item| item.eq_ignore_ascii_case(b"100-continue")) {
                    return Err(Refusal::new(Status::ExpectationFailed, "unknown expectation"));
                }
                self.expect_continue = true;
            }
            8 if is("If-Range") => return once(&mut conditions.if_range, value),
            8 if is("If-Match") => {
                ListField::take(&mut conditions.if_match, "If-Match", value, fields);
            }
            10 if is("Connection") => delimiters.connection(value),
            13 if is("If-None-Match") => {
                ListField::take(&mut conditions.if_none_match, "If-None-Match", value, fields);
            }
            14 if is("Content-Length") => return delimiters.content_length(value),
            15 if is("Accept-Encoding") => {
                ListField::take(&mut self.accept_encoding, "Accept-Encoding", value, fields);
            }
            17 if is("If-Modified-Since") => {
                return once(&mut conditions.if_modified_since, value);
            }
            17 if is("Transfer-Encoding") => return delimiters.transfer_encoding(value),
            19 if is("If-Unmodified-Since") => {
                return once(&mut conditions.if_unmodified_since, value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the rules for `Host` and the forms of the target (RFC 9112 sections 3.2 and 3.3).
    fn settle_host(&mut self) -> Result<(), Refusal> {
        match self.host {
            None if self.version == Version::Http11 => return Err(Refusal::bad("no Host field")),
            Some(host) if !is_authority(host) => return Err(Refusal::bad("invalid Host field")),
            _ => {}
        }
        if !self.method.reads() || self.target.starts_with(b"/") {
            return Ok(());
        }
        let rest = strip_scheme(self.target)
            .ok_or(Refusal::bad("the target is neither a path nor a URL"))?;
        let end = rest.iter().position(|byte| b"/?#".contains(byte));
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        if authority.is_empty() || !is_authority(authority) {
            return Err(Refusal::bad("invalid host in the target"));
        }
        self.host = Some(authority);
        self.path = path;
        Ok(())
    }
}

fn once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::bad("a field that may come once comes twice")),
    }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    [b"http://".as_slice(), b"https://"].into_iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Whether `host` has only the bytes of `uri-host [ ":" port ]` (RFC 3986 section 3.2.2). It may be
/// empty. User information (`user@host`) is not allowed.
fn is_authority(host: &[u8]) -> bool {
    host.iter().all(|byte| IN_AUTHORITIES[usize::from(*byte)])
}

/// The bytes that [`is_authority`] allows.
const IN_AUTHORITIES: [bool; 256] = {
    let marks = b"-._~%!$&'()*+,;=:[]";
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < allowed.len() {
        allowed[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        allowed[marks[mark] as usize] = true;
        mark += 1;
    }
    allowed
};

/// Whether a line of `head`, which has these fields, ends with LF alone. httparse takes a lone LF for a line end: RFC 9112
/// section 2.2 allows it, and proxies differ. httparse rejects a CR without LF. Lines end in front of the names of fields,
/// at the end of the head, and before the request line where empty ones are.
fn has_bare_line_feed(head: &[u8], fields: &[httparse::Header<'_>]) -> bool {
    let start =
        |field: &httparse::Header<'_>| field.name.as_ptr() as usize - head.as_ptr() as usize;
    let ends_by_both = |at: usize| head.get(at.wrapping_sub(2)) == Some(&b'\r');
    let before = head.iter().take_while(|byte| b"\r\n".contains(byte));
    let lone = before.map(|byte| if *byte == b'\n' { 1 } else { -1 }).sum::<i32>();
    lone != 0
        || !head.ends_with(b"\r\n\r\n")
        || !fields.iter().all(|field| ends_by_both(start(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(input: &str) -> Request<'_> {
        match parse(input.as_bytes(), &HeadLimits::default()) {
            Ok(Some(request)) => request,
            other => panic!("{input:?} gave {other:?}"),
        }
    }

    #[test]
    fn every_line_of_a_head_ends_with_both() {
        let lines = ["", "", "GET / HTTP/1.0", "A:", "B: c ", "D: e", ""];
        for (empty, fields) in [0, 1, 2].into_iter().flat_map(|it| [0, 1, 2, 3].map(|n| (it, n))) {
            let head = [&lines[2 - empty..3], &lines[3..3 + fields], &lines[6..]].concat();
            for lone in 0..1_u32 << head.len() {
                let end = |line: usize| if lone >> line & 1 == 1 { "\n" } else { "\r\n" };
                let text: String =
                    head.iter().enumerate().flat_map(|(i, line)| [*line, end(i)]).collect();
                let expected = if lone == 0 { 0 } else { 400 };
                assert_eq!(verdict(&text, &HeadLimits::default()), expected, "{text:?}");
            }
        }
    }

    /// The status of a refusal; 0 for a request that is accepted, 1 for one that is incomplete.
    fn verdict(input: &str, limits: &HeadLimits) -> u16 {
        match parse(input.as_bytes(), limits) {
            Ok(Some(_)) => 0,
            Ok(None) => 1,
            Err(refusal) => refusal.status.code(),
        }
    }

    #[track_caller]
    fn refused(input: &str, status: u16) {
        assert_eq!(verdict(input, &HeadLimits::default()), status, "{input:?}");
    }

    /// A GET whose fields are `Host: a` and what is given, each ending with CR LF.
    fn get(fields: &str) -> String {
        format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
    }

    #[test]
    fn a_browser_s_request_is_read_field_by_field() {
        let request = whole(
            "GET /a%20b?q=1 HTTP/1.1\r\nhost: example.org:8080\r\nACCEPT-ENCODING:  gzip, br \r\n\
             Range: bytes=0-9\r\nIf-Range: \"r\"\r\nIf-Match: \"m\"\r\nIf-None-Match: \"n\"\r\n\
             If-Modified-Since: then\r\nIf-Unmodified-Since: later\r\nExpect: 100-Continue\r\n\
             Content-Length: 3\r\n\r\nabc",
        );
        assert_eq!(request.method, Method::Get);
        assert_eq!(request.target, b"/a%20b?q=1");
        assert_eq!(request.path, b"/a%20b?q=1");
        assert_eq!(request.version, Version::Http11);
        assert_eq!(request.host, Some(b"example.org:8080".as_slice()));
        assert_eq!(request.accept_encoding, Some(ListField::Line(b"gzip, br")));
        assert_eq!(request.range, Some(b"bytes=0-9".as_slice()));
        assert_eq!(request.framing, Framing::Length(3));
        assert!(request.keep_alive && request.expect_continue);
        let conditions = request.conditions;
        assert_eq!(conditions.if_range, Some(b"\"r\"".as_slice()));
        assert_eq!(conditions.if_match, Some(ListField::Line(b"\"m\"")));
        assert_eq!(conditions.if_none_match, Some(ListField::Line(b"\"n\"")));
        assert_eq!(conditions.if_modified_since, Some(b"then".as_slice()));
        assert_eq!(conditions.if_unmodified_since, Some(b"later".as_slice()));
    }

    #[test]
    fn head_len_counts_leading_empty_lines_and_stops_at_the_next_request() {
        let first = format!("\r\n\r\n{}", get(""));
        let both = format!("{first}{}", get("Range: bytes=0-1\r\n"));
        assert_eq!(whole(&both).head, first.as_bytes());
        assert_eq!(whole(&both).range, None);
    }

    #[test]
    fn methods_are_case_sensitive() {
        assert_eq!(whole("HEAD / HTTP/1.0\r\n\r\n").method, Method::Head);
        assert_eq!(whole("head / HTTP/1.0\r\n\r\n").method, Method::Unknown);
        assert_eq!(whole("OPTIONS * HTTP/1.0\r\n\r\n").method, Method::Options);
        let connect = whole("CONNECT example.org:443 HTTP/1.0\r\n\r\n");
        assert_eq!(connect.method, Method::Other);
        assert_eq!(connect.path, b"example.org:443");
    }

    #[test]
    fn every_method_has_its_text() {
        for method in ["GET", "HEAD", "DELETE", "get", "PROPFIND", "!#$%&'*+-.^_`|~1"] {
            let input = format!("\r\n{method} / HTTP/1.0\r\n\r\n");
            assert_eq!(whole(&input).method_text(), method);
        }
    }

    #[test]
    fn all_fields_can_be_had_in_their_order() {
        let input = get("User-Agent: a b\r\nCookie: x=1\r\ncookie:y=2\r\nRange: bytes=0-\r\n");
        let fields: Vec<_> = whole(&input).fields().collect();
        let wanted: [(&str, &[u8]); 5] = [
            ("Host", b"a"),
            ("User-Agent", b"a b"),
            ("Cookie", b"x=1"),
            ("cookie", b"y=2"),
            ("Range", b"bytes=0-"),
        ];
        assert_eq!(fields, wanted);
    }

    #[test]
    fn persistence_follows_version_and_connection() {
        let keep_alive = |version: &str, fields: &str| {
            whole(&format!("GET / {version}\r\nHost: a\r\n{fields}\r\n")).keep_alive
        };
        assert!(keep_alive("HTTP/1.1", ""));
        assert!(keep_alive("HTTP/1.1", "Connection: TE\r\n"));
        assert!(!keep_alive("HTTP/1.1", "Connection: te,CLOSE\r\n"));
        assert!(!keep_alive("HTTP/1.1", "Connection: te\r\nConnection: close\r\n"));
        assert!(!keep_alive("HTTP/1.1", "Connection: close, keep-alive\r\n"));
        assert!(!keep_alive("HTTP/1.0", ""));
        assert!(keep_alive("HTTP/1.0", "Connection: Keep-Alive\r\n"));
        assert!(!keep_alive("HTTP/1.0", "Connection: keep-alive, close\r\n"));
    }

    #[test]
    fn a_body_is_delimited_in_one_way_or_refused() {
        let framing = |fields: &str| whole(&get(fields)).framing;
        assert_eq!(framing(""), Framing::None);
        assert_eq!(framing("Content-Length: 0\r\n"), Framing::None);
        assert_eq!(framing("Content-Length: 7\r\n"), Framing::Length(7));
        assert_eq!(framing("Transfer-Encoding: ,Chunked\r\n"), Framing::Chunked);
        let chunked = "Transfer-Encoding: chunked\r\n";
        refused(&get(&format!("{chunked}Content-Length: 3\r\n")), 400);
        refused(&get(&format!("Content-Length: 3\r\n{chunked}")), 400);
        refused(&get(&format!("{chunked}{chunked}")), 400);
        refused(&format!("GET / HTTP/1.0\r\n{chunked}\r\n"), 400);
        for length in ["", "+3", "-3", "3,3", "3 3", "0x3", "99999999999999999999"] {
            refused(&get(&format!("Content-Length: {length}\r\n")), 400);
        }
        refused(&get("Content-Length: 3\r\nContent-Length: 3\r\n"), 400);
        refused(&get("Content-Length: 3\r\ncontent-length: 4\r\n"), 400);
        refused(&get("Transfer-Encoding:\r\n"), 400);
        for codings in ["gzip", "identity", "chunked;a=b", "xchunked", "chunked, gzip"] {
            refused(&get(&format!("Transfer-Encoding: {codings}\r\n")), 400);
        }
        refused(&get("Transfer-Encoding: gzip, chunked\r\n"), 501);
        let gzip = "Transfer-Encoding: gzip\r\n";
        refused(&get(&format!("{gzip}{chunked}")), 501);
        refused(&get(&format!("{chunked}{gzip}")), 400);
        refused(&get(&format!("{chunked}{gzip}{chunked}")), 400);
        refused(&get(&format!("{gzip}{chunked}Content-Length: 3\r\n")), 400);
    }

    #[test]
    fn host_comes_once_and_looks_like_one() {
        refused("GET / HTTP/1.1\r\n\r\n", 400);
        refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
        refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
        for host in ["a b", "a/b", "user@a", "a?b", "a\u{e9}"] {
            refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
        }
        for host in ["", "[::1]:80", "xn--caf-dma.fr", "a_b"] {
            refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 0);
        }
        assert_eq!(whole("GET / HTTP/1.0\r\n\r\n").host, None);
    }

    #[test]
    fn an_absolute_target_names_the_host() {
        for (target, path) in
            [("http://b:80/c?d", "/c?d"), ("HTTPS://b:80", ""), ("http://b:80?d", "?d")]
        {
            let input = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let request = whole(&input);
            assert_eq!(request.path, path.as_bytes());
            assert_eq!(request.target, target.as_bytes());
            assert_eq!(request.host, Some(b"b:80".as_slice()));
        }
        refused("GET http://b/ HTTP/1.1\r\n\r\n", 400);
        for target in ["http:///c", "http://u@b/", "ftp://b/", "c", "*", "?d"] {
            refused(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
        }
    }

    #[test]
    fn a_range_belongs_to_get_alone() {
        let head = get("Range: bytes=0-1\r\n").replace("GET", "HEAD");
        assert_eq!(whole(&head).range, None);
    }

    #[test]
    fn fields_that_come_once_are_refused_twice() {
        for name in ["Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since"] {
            refused(&get(&format!("{name}: x\r\n{name}: x\r\n")), 400);
        }
    }

    #[test]
    fn a_list_has_the_lines_of_its_name() {
        let input =
            get("IF-Match: \"a\"\r\nIf-Match-Not: \"x\"\r\nX: If-Match:y\r\nif-match:\"b\" \r\n");
        let lines: Vec<_> = whole(&input).conditions.if_match.unwrap().lines().collect();
        assert_eq!(lines, [b"\"a\"", b"\"b\""]);
        let input = get("If-Match: \"a\"\r\n");
        let lines: Vec<_> = whole(&input).conditions.if_match.unwrap().lines().collect();
        assert_eq!(lines, [b"\"a\""]);
    }

    #[test]
    fn what_two_servers_could_read_in_two_ways_is_refused() {
        refused("GET / HTTP/1.1\nHost: a\n\n", 400);
        refused("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400);
        refused("\nGET / HTTP/1.0\r\n\r\n", 400);
        refused("GET / HTTP/1.0\r\rX: y\r\n\r\n", 400);
        refused(&get("X: a\rb\r\n"), 400);
        refused(&get("X: a\0b\r\n"), 400);
        refused(&get("X : y\r\n"), 400);
        refused(&get("X\r\n"), 400);
        refused(&get(": y\r\n"), 400);
        refused(&get("X: y\r\n folded\r\n"), 400);
        refused("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400);
        refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
        refused("GET / a HTTP/1.1\r\nHost: a\r\n\r\n", 400);
        refused("GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", 400);
        refused("GET /\r\n\r\n", 400);
        refused("\u{16}\u{3}\u{1}", 400);
    }

    #[test]
    fn a_lone_line_feed_is_found_in_heads_of_any_length() {
        for length in [0, 200, 255, 256, 510, 5000] {
            let long = get(&format!("X: {}\r\n", "y".repeat(length)));
            refused(&long, 0);
            refused(&long.replacen("Host: a\r", "Host: a", 1), 400);
        }
    }

    #[test]
    fn other_versions_are_505_and_other_protocols_400() {
        refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
        refused("GET / HTTP/1.2\r\n\r\n", 505);
        refused("GET / HTTP/0.9\r\n\r\n", 505);
        refused("GET / HTTP/2", 505);
        refused("GET / RTSP/1.0\r\n\r\n", 400);
        refused("GET / http/1.1\r\n\r\n", 400);
    }

    #[test]
    fn limits_hold_for_complete_and_for_incomplete_heads() {
        let limits = HeadLimits { line: 24, head: 60, fields: 2 };
        let line = |len: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(len - 14));
        assert_eq!(verdict(&line(24), &limits), 0);
        assert_eq!(verdict(&line(25), &limits), 414);
        assert_eq!(verdict(&line(24)[..25], &limits), 1);
        assert_eq!(verdict(&line(25)[..24], &limits), 1);
        assert_eq!(verdict(&line(25)[..25], &limits), 414);
        assert_eq!(verdict(&format!("\r\n{}", line(24)), &limits), 0);
        assert_eq!(verdict("GET /aaaaaaaaaaaaaaaaaaaaa HTTP/9.9", &limits), 414);
        assert_eq!(verdict("GET /aaaaaaa HTTP/9.9", &limits), 505);
        assert_eq!(verdict("GET /a HTTP/1.0\r\nA: aaaaaaaaaa\rb", &limits), 400);
        let field = |len: usize| format!("GET / HTTP/1.0\r\nA:  {} \r\n\r\n", "a".repeat(len - 1));
        assert_eq!(verdict(&field(24), &limits), 0);
        assert_eq!(verdict(&field(25), &limits), 431);
        let limits = HeadLimits { line: 60, ..limits };
        let head = |len: usize| format!("GET / HTTP/1.0\r\nA: {}\r\n\r\n", "a".repeat(len - 23));
        assert_eq!(head(60).len(), 60);
        assert_eq!(verdict(&head(60), &limits), 0);
        assert_eq!(verdict(&head(61), &limits), 431);
        assert_eq!(verdict(&head(61)[..59], &limits), 1);
        assert_eq!(verdict(&head(61)[..60], &limits), 431);
        assert_eq!(verdict(&"\r\n".repeat(30), &limits), 431);
        assert_eq!(verdict(&line(61)[..59], &limits), 1);
        assert_eq!(verdict(&line(61)[..60], &limits), 414);
        assert_eq!(verdict(&line(58), &limits), 431);
    }

    #[test]
    fn one_field_too_many_is_a_431() {
        for fields in [1, 2, 100, MAX_FIELDS] {
            let limits = HeadLimits { fields, ..HeadLimits::default() };
            let with = |count: usize| get(&"X: y\r\n".repeat(count - 1));
            assert_eq!(verdict(&with(fields), &limits), 0, "{fields}");
            assert_eq!(verdict(&with(fields + 1), &limits), 431, "{fields}");
        }
        let limits = HeadLimits { fields: usize::MAX, ..HeadLimits::default() };
        assert_eq!(verdict(&get(&"X: y\r\n".repeat(MAX_FIELDS)), &limits), 431);
    }
}
