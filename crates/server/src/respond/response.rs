//! Responses with files: from what was asked for and what was found to a status, fields and content.

use std::rc::Rc;

use drover_http1::conditional::{self, PreconditionOutcome};
use drover_http1::range::{self, ByteRange, Ranges};
use drover_http1::{FieldList, Method, Refusal, Request, Status};

use crate::exchange::{Content, Exchange, FilePart, METHODS, RemainingParts};
use crate::lookup::entry::FileEntry;

/// How long a browser may remember what it may do, in seconds: a day, the longest that any does.
const PREFLIGHT_AGE: &[u8] = b"86400";

/// The refusal of a method that is not served; `None`: the method is.
pub(super) fn refused_method(method: Method) -> Option<Refusal> {
    let status = match method {
        Method::Get | Method::Head | Method::Options => return None,
        Method::Other => Status::MethodNotAllowed,
        Method::Unknown => Status::NotImplemented,
    };
    Some(Refusal { status, reason: "" })
}

impl Exchange {
    /// Answers OPTIONS: the methods, which are those of every path (RFC 9110 section 9.3.7). To a browser that asks for a page of
    /// another site, `is_preflight`, also what that may do; no field of its request changes anything here.
    pub(super) fn tell_options(&mut self, is_preflight: bool) {
        let fields = self.answer(Status::NoContent).push("Allow", METHODS.as_bytes());
        if is_preflight {
            fields
                .push("Access-Control-Allow-Methods", METHODS.as_bytes())
                .push("Access-Control-Allow-Headers", b"*")
                .push("Access-Control-Max-Age", PREFLIGHT_AGE);
        }
    }

    /// Sends the client to the path with the slash.
    pub(super) fn redirect(&mut self, name: &[u8], query: Option<&[u8]>) {
        self.fields.directory_location(name, query);
        self.say(Status::MovedPermanently, "");
    }

    /// Sends the client to where a path has moved.
    pub(super) fn move_to(&mut self, status: Status, location: &[u8]) {
        self.fields.push("Location", location);
        self.say(status, "");
    }

    /// Sends the client to the same path and query at `port` of HTTPS. `host` may have the port of HTTP.
    pub(super) fn move_to_https(&mut self, host: &[u8], port: u16, path: &[u8]) {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let name_len = match host.iter().rposition(|&byte| byte == b':') {
            // The colons of an IPv6 address are in brackets.
            Some(colon) if host[colon + 1..].iter().all(is_digit) => colon,
            _ => host.len(),
        };
        let mut location = b"https://".to_vec();
        location.extend_from_slice(&host[..name_len]);
        if port != 443 {
            location.extend_from_slice(format!(":{port}").as_bytes());
        }
        // Of other methods than GET and HEAD it is what the client has written, which would be part of the host.
        let is_path = path.starts_with(b"/") || path.starts_with(b"?");
        location.extend_from_slice(if is_path { path } else { b"/" });
        self.move_to(Status::PermanentRedirect, &location);
    }

    /// Answers a request for a file: all of the file, parts of it, 304, 412 or 416. `now`: the second of the date.
    ///
    /// Bodies of at most `in_memory` bytes are read by the worker; longer ones are left to the file backend.
    pub(super) fn send_file(
        &mut self,
        entry: &Rc<FileEntry>,
        request: &Request<'_>,
        now: u64,
        in_memory: u64,
    ) {
        let validators = &entry.validators;
        let range = match conditional::evaluate(&request.conditions, validators, now) {
            PreconditionOutcome::NotModified => {
                let fields = self.answer(Status::NotModified).validators(validators, now);
                fields.varies_by_coding(entry.varies).push_all(&entry.added);
                return;
            }
            PreconditionOutcome::PreconditionFailed => {
                return self.say(Status::PreconditionFailed, "");
            }
            PreconditionOutcome::IgnoreRange => None,
            PreconditionOutcome::Proceed => {
                request.range.map(|value| range::parse(value, entry.len))
            }
        };
        match range {
            Some(Ranges::Satisfiable(part)) => self.send_part(entry, part, now, in_memory),
            Some(Ranges::Unsatisfiable) => {
                self.fields.unsatisfied_range(entry.len);
                self.say(Status::RangeNotSatisfiable, "");
            }
            // Where the parts have a coding, their envelope has none: no field says that.
            Some(Ranges::Several(ranges)) if entry.coding.is_none() => {
                self.send_parts(entry, ranges, now, in_memory);
            }
            Some(Ranges::Several(_) | Ranges::Ignore) | None => {
                entry.tell_whole(now, self.answer(Status::Ok));
                self.content = Content::File(FilePart::whole(entry, in_memory));
            }
        }
    }

    fn send_part(&mut self, entry: &Rc<FileEntry>, part: ByteRange, now: u64, in_memory: u64) {
        self.answer(Status::PartialContent)
            .content_type(&entry.content_type)
            .content_encoding(entry.coding)
            .content_length(part.len())
            .content_range(part, entry.len)
            .validators(&entry.validators, now)
            .varies_by_coding(entry.varies)
            .push_all(&entry.added)
            .accept_ranges();
        self.content = Content::File(FilePart { entry: Rc::clone(entry), part, in_memory });
    }

    fn send_parts(
        &mut self,
        entry: &Rc<FileEntry>,
        ranges: Vec<ByteRange>,
        now: u64,
        in_memory: u64,
    ) {
        let parts = RemainingParts::new(entry, ranges, in_memory);
        self.answer(Status::PartialContent)
            .content_type(&parts.content_type())
            .content_length(parts.length)
            .validators(&entry.validators, now)
            .varies_by_coding(entry.varies)
            .push_all(&entry.added)
            .accept_ranges();
        self.content = Content::Parts(Box::new(parts));
    }

    /// Answers with an error that has a file of the site as its content: not a representation of what was asked for, and therefore
    /// without validators and ranges.
    pub(super) fn send_error_page(
        &mut self,
        entry: &Rc<FileEntry>,
        status: Status,
        in_memory: u64,
    ) {
        self.tell_refusal(status);
        self.answer(status)
            .content_type(&entry.content_type)
            .content_encoding(entry.coding)
            .content_length(entry.len)
            .varies_by_coding(entry.varies)
            .push_all(&without_cache_control(&entry.added));
        self.content = Content::File(FilePart::whole(entry, in_memory));
    }
}

/// The fields but for Cache-Control: how long a file may be kept says nothing of an error, and whoever kept a 401 would find it again
/// after having said who they are.
fn without_cache_control(fields: &FieldList) -> FieldList {
    fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("Cache-Control")).collect()
}
