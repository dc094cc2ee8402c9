//! Responses: from what was asked for and what was found to a head, and a body behind it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use drover_http1::conditional::{self, PreconditionOutcome};
use drover_http1::range::{self, ByteRange, Ranges};
use drover_http1::response::{Common, ConnectionField, Head, push_early_hints};
use drover_http1::{Method, Refusal, Request, Status};
use drover_mech::files::bytes;
use drover_mech::net::Body;
use drover_sys::reserve;

use crate::lookup::entry::{EntrySource, FileEntry, UsualHead};
use crate::lookup::pending::PendingAnswer;
use crate::lookup::watch::WatchedPath;
use crate::respond::parts::RemainingParts;
use crate::worker::clock::DateClock;

/// The value of `Server`.
pub(crate) const SERVER: &str = "drover";

/// The response to one request, from the head that stands in the output to its last byte.
pub(crate) struct Response {
    pub(crate) status: Status,
    /// What is sent behind the output.
    pub(crate) body: Body,
    /// What is sent behind the body, of a response in several parts.
    pub(crate) parts: Option<Box<RemainingParts>>,
    /// How many bytes of the input belong to requests that are done.
    pub(crate) consumed: usize,
    /// What the connection does once the response is sent.
    pub(crate) then: Then,
}

/// What a connection does next.
pub(crate) enum Then {
    /// Receive: the input holds no complete request.
    Receive,
    /// Look at the input again.
    Again,
    /// Find whose connection it is, then look at the input again.
    Identify,
    /// Wait until a file is open or a password verified, then look at the input again.
    Wait(Rc<PendingAnswer>),
    /// Send the other parts of a response, then do this.
    Parts(Box<(RemainingParts, Then)>),
    /// Skip this many bytes that have not been received yet: the rest of a request's body.
    Skip(u64),
    /// Close.
    Close,
    /// Close, after reading what the client may still be sending: closing with unread input makes
    /// the kernel send a reset, which can destroy the response on its way (RFC 9112 section 9.6).
    Linger,
}

impl Response {
    /// A response that stands in the output as a whole.
    pub(crate) fn written(status: Status) -> Response {
        Response::followed_by(Body::None, status)
    }

    /// A response whose head stands in the output, with `body` behind it.
    pub(crate) fn followed_by(body: Body, status: Status) -> Response {
        Response { status, body, parts: None, consumed: 0, then: Then::Receive }
    }
}

/// The methods that are served.
const METHODS: &str = "GET, HEAD, OPTIONS";

/// How long a browser may remember what it may do, in seconds: a day, the longest that any does.
const PREFLIGHT_AGE: &[u8] = b"86400";

/// Writes the response to OPTIONS: the methods, which are those of every path (RFC 9110 section 9.3.7). To a browser that asks
/// for a page of another site, `is_preflight`, also what that may do; no field of its request changes anything here.
pub(crate) fn options(is_preflight: bool, common: &Common<'_>, out: &mut Vec<u8>) -> Response {
    let status = Status::NoContent;
    let head = Head::new(out, status, common).allow(METHODS);
    match is_preflight {
        false => head,
        true => head
            .field("Access-Control-Allow-Methods", METHODS.as_bytes())
            .field("Access-Control-Allow-Headers", b"*")
            .field("Access-Control-Max-Age", PREFLIGHT_AGE),
    }
    .finish();
    Response::written(status)
}

/// The refusal of a method that is not served; `None`: the method is.
pub(crate) fn refused_method(method: Method) -> Option<Refusal> {
    let status = match method {
        Method::Get | Method::Head | Method::Options => return None,
        Method::Other => Status::MethodNotAllowed,
        Method::Unknown => Status::NotImplemented,
    };
    Some(Refusal { status, reason: "" })
}

/// Writes the response to a refused request: one line of text for people.
pub(crate) fn refusal(
    refusal: Refusal,
    common: &Common<'_>,
    with_body: bool,
    out: &mut Vec<u8>,
) -> Response {
    error_head(refusal.status, common, out).text(refusal.reason, with_body);
    Response::written(refusal.status)
}

/// How a client may say who it is (RFC 7617).
const CHALLENGE: &[u8] = b"Basic realm=\"restricted\", charset=\"UTF-8\"";

/// Begins the head of an error, with the fields that its status asks for.
fn error_head<'o>(status: Status, common: &Common<'_>, out: &'o mut Vec<u8>) -> Head<'o> {
    let head = Head::new(out, status, common);
    match status {
        Status::MethodNotAllowed => head.allow(METHODS),
        Status::Unauthorized => head.field("WWW-Authenticate", CHALLENGE),
        Status::ServiceUnavailable => head.field("Retry-After", b"1"),
        _ => head,
    }
}

/// Writes what goes ahead of a response, if there is something.
pub(crate) fn early_hints(lines: &[u8], out: &mut Vec<u8>) {
    if !lines.is_empty() {
        push_early_hints(out, lines);
    }
}

/// Sends the client to the path with the slash.
pub(crate) fn redirect(
    name: &[u8],
    query: Option<&[u8]>,
    common: &Common<'_>,
    with_body: bool,
    out: &mut Vec<u8>,
) -> Response {
    let status = Status::MovedPermanently;
    Head::new(out, status, common).directory_location(name, query).text("", with_body);
    Response::written(status)
}

/// Sends the client to where a path has moved.
pub(crate) fn moved(
    status: Status,
    location: &[u8],
    common: &Common<'_>,
    with_body: bool,
    out: &mut Vec<u8>,
) -> Response {
    Head::new(out, status, common).field("Location", location).text("", with_body);
    Response::written(status)
}

impl FileEntry {
    /// Prepares the usual response; with the body, if it is short and the file has not changed. `lines`: what all responses
    /// have in addition.
    pub(crate) fn prepare(&mut self, clock: &DateClock, lines: &[u8]) {
        // Twice: once behind its head, and once where it is kept.
        let has_room = |content: &Vec<u8>| reserve::probe(2 * content.len()).is_ok();
        let content = self.take_content().filter(has_room);
        let EntrySource::File(file, _) = &self.source else { return };
        let file = Rc::clone(file);
        let (mut usual, mut has_body) = usual_head(self, clock, lines, |bytes| {
            bytes.extend_from_slice(content.as_deref().unwrap_or_default());
            content.is_some() || self.len == 0
        });
        if content.is_some() && reserve::holds(&usual.bytes.borrow()) {
            // Many clients may wait for it, and the reserve is for all.
            (usual, has_body) = usual_head(self, clock, lines, |_| false);
        }
        self.cost += self.watched.as_ref().map_or(0, WatchedPath::cost) + usual.len();
        self.source = if has_body {
            EntrySource::Memory(usual)
        } else {
            EntrySource::File(file, Some(usual))
        };
        self.forms_mut().for_each(|form| form.prepare(clock, lines));
    }
}

/// Writes the usual head of an entry, and has the body put behind it by `append_body`, if it can.
fn usual_head(
    entry: &FileEntry,
    clock: &DateClock,
    lines: &[u8],
    append_body: impl FnOnce(&mut Vec<u8>) -> bool,
) -> (UsualHead, bool) {
    let mut bytes = Vec::new();
    let connection = ConnectionField::Implied;
    let common = Common { server: SERVER, date: clock.date(), connection, lines };
    end_whole(entry, Head::new(&mut bytes, Status::Ok, &common), clock.seconds());
    let label = b"\r\nDate: ";
    let date = bytes.windows(label.len()).position(|at| at == label);
    let date = date.expect("every head has its date") + label.len();
    let head_len = bytes.len();
    let has_body = append_body(&mut bytes);
    if !has_body {
        bytes.truncate(head_len);
    }
    let (bytes, second) = (RefCell::new(bytes.into()), Cell::new(clock.seconds()));
    (UsualHead { bytes, head_len, date, second }, has_body)
}

/// Answers a plain GET of a file whose usual response was prepared; a connection that is to be closed,
/// or kept open for an HTTP/1.0 client, gets one field more, and a client that is told more than others has `lines`. When
/// it is the only response to be sent, `alone`, it is sent from where it is kept.
pub(crate) fn usual(
    entry: &FileEntry,
    usual: &UsualHead,
    clock: &DateClock,
    (connection, lines): (ConnectionField, &[u8]),
    alone: bool,
    out: &mut Vec<u8>,
) -> Response {
    let bytes = usual.dated(clock);
    match (connection.field(), lines) {
        (None, []) if alone && out.is_empty() && matches!(entry.source, EntrySource::Memory(_)) => {
            return Response::followed_by(Body::Shared(Rc::clone(&bytes)), Status::Ok);
        }
        (None, []) => out.extend_from_slice(&bytes),
        (field, lines) => {
            let (head, end_and_body) = bytes.split_at(usual.head_len - b"\r\n".len());
            out.extend_from_slice(head);
            out.extend_from_slice(field.unwrap_or_default());
            out.extend_from_slice(lines);
            out.extend_from_slice(end_and_body);
        }
    }
    let body = match &entry.source {
        EntrySource::File(file, _) if entry.len > 0 => {
            Body::File { file: Rc::clone(file), offset: 0, len: entry.len }
        }
        _ => Body::None,
    };
    Response::followed_by(body, Status::Ok)
}

/// Ends the head of a response with all of a file.
fn end_whole(entry: &FileEntry, head: Head<'_>, now: u64) {
    head.content_type(&entry.content_type)
        .content_encoding(entry.coding)
        .content_length(entry.len)
        .validators(&entry.validators, now)
        .varies_by_coding(entry.varies)
        .lines(&entry.added)
        .accept_ranges()
        .finish();
}

/// Writes the response to a request for a file: all of the file, parts of it, 304, 412 or 416.
///
/// Bodies of at most `in_memory` bytes are read into `out`, behind their head; longer ones are left
/// to the file backend.
pub(crate) fn file(
    entry: &FileEntry,
    request: &Request<'_>,
    common: &Common<'_>,
    now: u64,
    in_memory: u64,
    out: &mut Vec<u8>,
) -> Response {
    let with_body = request.method != Method::Head;
    let validators = &entry.validators;
    let head = |out, status| Head::new(out, status, common);
    let whole = ByteRange { start: 0, end: entry.len };
    let (status, part) = match conditional::evaluate(&request.conditions, validators, now) {
        PreconditionOutcome::NotModified => {
            let status = Status::NotModified;
            let head = head(out, status).validators(validators, now);
            head.varies_by_coding(entry.varies).lines(&entry.added).finish();
            return Response::written(status);
        }
        PreconditionOutcome::PreconditionFailed => {
            let status = Status::PreconditionFailed;
            head(out, status).text("", with_body);
            return Response::written(status);
        }
        PreconditionOutcome::IgnoreRange => (Status::Ok, whole),
        PreconditionOutcome::Proceed => {
            match request.range.map(|value| range::parse(value, entry.len)) {
                Some(Ranges::Satisfiable(part)) => (Status::PartialContent, part),
                Some(Ranges::Unsatisfiable) => {
                    let status = Status::RangeNotSatisfiable;
                    head(out, status).unsatisfied_range(entry.len).text("", with_body);
                    return Response::written(status);
                }
                // The parts have a coding, and their envelope has none: no field says that.
                Some(Ranges::Several(_)) if entry.coding.is_some() => (Status::Ok, whole),
                Some(Ranges::Several(ranges)) => {
                    let parts = RemainingParts::new(entry, ranges, in_memory);
                    return several(entry, parts, common, now, out);
                }
                Some(Ranges::Ignore) | None => (Status::Ok, whole),
            }
        }
    };
    let before = out.len();
    if status == Status::PartialContent {
        head(out, status)
            .content_type(&entry.content_type)
            .content_encoding(entry.coding)
            .content_length(part.len())
            .content_range(part, entry.len)
            .validators(validators, now)
            .varies_by_coding(entry.varies)
            .lines(&entry.added)
            .accept_ranges()
            .finish();
    } else {
        end_whole(entry, head(out, status), now);
    }
    if !with_body {
        return Response::written(status);
    }
    send_part(entry, part, status, in_memory, out).unwrap_or_else(|_| {
        // The head has not been sent yet, so the client can still get an error status.
        out.truncate(before);
        let status = Status::InternalServerError;
        refusal(Refusal { status, reason: "the file could not be read" }, common, true, out)
    })
}

/// Puts a part of a file behind its head, or has it sent behind the head.
fn send_part(
    entry: &FileEntry,
    part: ByteRange,
    status: Status,
    in_memory: u64,
    out: &mut Vec<u8>,
) -> io::Result<Response> {
    let file = match &entry.source {
        EntrySource::Memory(usual) => {
            let body = usual.body();
            out.extend_from_slice(&body[part.start as usize..part.end as usize]);
            return Ok(Response::written(status));
        }
        EntrySource::File(_, _) if part.len() == 0 => return Ok(Response::written(status)),
        EntrySource::File(file, _) => file,
    };
    if part.len() <= in_memory {
        match bytes::try_append_cached(file.as_fd(), part.start, part.len() as usize, out) {
            Ok(()) => return Ok(Response::written(status)),
            // The backend may wait for it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let (file, offset) = (Rc::clone(file), part.start);
    Ok(Response::followed_by(Body::File { file, offset, len: part.len() }, status))
}

/// Writes an error with a file of the site as its body: not a representation of what was asked for, and therefore without
/// validators and ranges.
pub(crate) fn error_page(
    entry: &FileEntry,
    status: Status,
    common: &Common<'_>,
    with_body: bool,
    in_memory: u64,
    out: &mut Vec<u8>,
) -> Response {
    let before = out.len();
    error_head(status, common, out)
        .content_type(&entry.content_type)
        .content_encoding(entry.coding)
        .content_length(entry.len)
        .varies_by_coding(entry.varies)
        .lines(&without_cache_control(&entry.added))
        .finish();
    if !with_body {
        return Response::written(status);
    }
    let whole = ByteRange { start: 0, end: entry.len };
    send_part(entry, whole, status, in_memory, out).unwrap_or_else(|_| {
        out.truncate(before);
        refusal(Refusal { status, reason: "" }, common, true, out)
    })
}

/// The lines of a head but for Cache-Control: how long a file may be kept says nothing of an error, and whoever kept a 401 would
/// find it again after having said who they are.
fn without_cache_control(lines: &[u8]) -> Vec<u8> {
    let name = b"cache-control:";
    let is_it = |line: &[u8]| {
        line.split_at_checked(name.len()).is_some_and(|(start, _)| start.eq_ignore_ascii_case(name))
    };
    lines
        .split_inclusive(|&byte| byte == b'\n')
        .filter(|line| !is_it(line))
        .flatten()
        .copied()
        .collect()
}

/// Writes the response to a request for several parts of a file, as far as it may stand in the output.
fn several(
    entry: &FileEntry,
    mut parts: RemainingParts,
    common: &Common<'_>,
    now: u64,
    out: &mut Vec<u8>,
) -> Response {
    let status = Status::PartialContent;
    Head::new(out, status, common)
        .content_type(&parts.content_type())
        .content_length(parts.length)
        .validators(&entry.validators, now)
        .varies_by_coding(entry.varies)
        .lines(&entry.added)
        .accept_ranges()
        .finish();
    match parts.write(out) {
        Body::None => Response::written(status),
        body => Response { parts: Some(Box::new(parts)), ..Response::followed_by(body, status) },
    }
}

/// One body for every request: `--reply-size`, the micro-server of the papers.
pub(crate) struct Fixed {
    body: Rc<[u8]>,
    /// Head, and body if it is small, of the usual response in the current second.
    usual: Vec<u8>,
    in_memory: bool,
}

/// A body in memory up to this length is copied behind its head. A longer one is cheaper to send from
/// where it is.
const COPIED_MOST: usize = 4 * 1024;

impl Fixed {
    pub(crate) fn new(size: usize) -> Fixed {
        let body = vec![b'x'; size].into();
        Fixed { body, usual: Vec::new(), in_memory: size <= COPIED_MOST }
    }

    /// Prepares the usual response, to an HTTP/1.1 GET on a connection that persists.
    pub(crate) fn prepare(&mut self, common: &Common<'_>) {
        let mut usual = std::mem::take(&mut self.usual);
        usual.clear();
        self.head(common, &mut usual);
        if self.in_memory {
            usual.extend_from_slice(&self.body);
        }
        self.usual = usual;
    }

    /// The usual response.
    pub(crate) fn usual(&self, out: &mut Vec<u8>) -> Response {
        out.extend_from_slice(&self.usual);
        let body = if self.in_memory { Body::None } else { Body::Shared(Rc::clone(&self.body)) };
        Response::followed_by(body, Status::Ok)
    }

    /// A response to a request that is not plain: HEAD, another method, or a connection that closes.
    pub(crate) fn unusual(
        &self,
        common: &Common<'_>,
        with_body: bool,
        out: &mut Vec<u8>,
    ) -> Response {
        self.head(common, out);
        let body = if with_body { Body::Shared(Rc::clone(&self.body)) } else { Body::None };
        Response::followed_by(body, Status::Ok)
    }

    fn head(&self, common: &Common<'_>, out: &mut Vec<u8>) {
        Head::new(out, Status::Ok, common)
            .content_type(drover_http1::mime::DEFAULT)
            .content_length(self.body.len() as u64)
            .finish();
    }
}
