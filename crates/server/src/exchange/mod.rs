//! One request with its response: what is known of it, from its first byte to its last.
//!
//! A protocol reads a request and begins its [`Exchange`]; the site decides what is answered ([`crate::respond`]); the protocol
//! writes that in its own form, and its status is counted. Observers ([`crate::observe`]) note in it what they want to know of the
//! request, the times of its way, and `Server-Timing`; the access log and the trace read it once, when the response has ended. Of
//! the bytes of a protocol, only what HTTP/1 has prepared passes through here.

mod content;
mod facts;
mod file_part;
mod parts;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use drover_http1::{FieldList, Refusal, Status};
use drover_mech::Key;
use drover_mech::fileio::ReadTimes;
use drover_mech::net::SharedBytes;

pub(crate) use content::{Content, FixedBody};
pub(crate) use facts::{FactsWanted, RequestFacts};
pub(crate) use file_part::{FilePart, whole_left_to_backend};
pub(crate) use parts::RemainingParts;

use crate::lookup::pending::{RequestKey, Requester};
use crate::proxies::client::ClientAddress;

/// One request with its response.
pub(crate) struct Exchange {
    /// The connection and stream of the request, and the pending answer (a file being opened, a password being checked) that it has
    /// waited for.
    pub(crate) requester: Requester,
    /// The client of the connection, if somebody wants to know it.
    pub(crate) client: ClientAddress,
    /// The user whose request it is, if it is one's.
    pub(crate) user: Option<Rc<[u8]>>,
    /// What was asked for, if there is an access log.
    pub(crate) asked: Option<Rc<RequestFacts>>,
    /// The client that a trusted proxy names in the request, if there is an access log.
    pub(crate) named: Option<IpAddr>,
    /// The status of the response.
    pub(crate) status: Status,
    /// The fields that are decided for this response, beside those that its content brings ([`Content::Prepared`],
    /// [`Content::Fixed`]). All of them once it is written, if the access log repeats fields of responses.
    pub(crate) fields: FieldList,
    /// What follows the fields.
    pub(crate) content: Content,
    /// The times and sizes of the response, for the log and the trace; without them as by default.
    pub(crate) way: ResponseWay,
}

/// The way of a response to the client, for observers. Others leave it as it is by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseWay {
    /// How long it took from the first part of the head that was here to its end.
    pub(crate) receive: Duration,
    /// When the request was here; `None`: nobody observes.
    pub(crate) start: Option<Instant>,
    /// How long it then waited for its file to be opened.
    pub(crate) lookup: Duration,
    /// When the kernel had taken the first byte of the response.
    pub(crate) first_byte: Option<Instant>,
    /// The bytes of the head, as the protocol has written it.
    pub(crate) head_len: u64,
    /// The bytes of the content that are sent: none for HEAD.
    pub(crate) content_len: u64,
    /// Whether the file backend moves the content.
    pub(crate) is_file: bool,
    /// How long reads of the file took.
    pub(crate) reads: ReadTimes,
    /// Whether parts follow that are not in the output yet.
    pub(crate) is_open: bool,
    /// Whether the connection goes on.
    pub(crate) persists: bool,
    /// How many responses the connection had before.
    pub(crate) earlier: u64,
}

/// Who waits for an exchange that has not begun.
const NOBODY: RequestKey =
    RequestKey { connection: Key { slot: u32::MAX, generation: 0 }, stream: 0 };

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange {
            requester: Requester { key: NOBODY, awaited: None },
            client: ClientAddress::Unknown,
            user: None,
            asked: None,
            named: None,
            status: Status::Ok,
            fields: FieldList::default(),
            content: Content::None,
            way: ResponseWay::default(),
        }
    }
}

impl Exchange {
    /// Begins anew for another request, after [`Exchange::let_go`]: what stays is memory.
    #[inline]
    pub(crate) fn begin(&mut self, requester: Requester, client: ClientAddress) {
        self.requester = requester;
        self.client = client;
        self.fields.clear();
    }

    /// Lets go of what is shared with others: the open file above all. The rest is overwritten by the next request.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        self.requester.awaited = None;
        self.user = None;
        self.asked = None;
        self.content = Content::None;
    }

    /// Decides anew on a response whose file cannot be read after all: the status 500, or, if the file was an error page, its status
    /// without a page. What the response says of the request, and not of the file, stays.
    #[cold]
    pub(crate) fn refuse_unreadable(&mut self) {
        let is_of_request = |name: &str| {
            name.starts_with("Access-Control-") || ["Vary", "Server-Timing"].contains(&name)
        };
        self.fields = self.fields.iter().filter(|(name, _)| is_of_request(name)).collect();
        self.refuse(match self.status {
            Status::Ok | Status::PartialContent => Refusal {
                status: Status::InternalServerError,
                reason: "the file could not be read",
            },
            status => Refusal { status, reason: "" },
        });
    }

    /// Decides on a response that has no content, or none yet.
    pub(crate) fn answer(&mut self, status: Status) -> &mut FieldList {
        self.status = status;
        self.content = Content::None;
        &mut self.fields
    }

    /// Decides on one line of text for people.
    pub(crate) fn say(&mut self, status: Status, reason: &'static str) {
        self.status = status;
        self.fields.text(status, reason);
        self.content = Content::Text(reason);
    }

    /// Decides on a refusal: the fields that its status asks for, and a line of text.
    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.tell_refusal(refusal.status);
        self.say(refusal.status, refusal.reason);
    }

    /// Decides on what is shown to a CA. A body without memory for it is an error of the server.
    pub(crate) fn show_challenge(&mut self, content: &[u8]) {
        let fill = |bytes: &mut [u8]| -> std::io::Result<()> {
            bytes.copy_from_slice(content);
            Ok(())
        };
        let Ok(bytes) = SharedBytes::new(content.len(), (), fill) else {
            return self.refuse(Refusal { status: Status::ServiceUnavailable, reason: "" });
        };
        let fields = self.answer(Status::Ok).content_type("application/octet-stream").nosniff();
        fields.content_length(content.len() as u64).push("Cache-Control", b"no-store");
        self.content = Content::ProcessWide(bytes);
    }

    /// Adds the fields that the status of an error asks for.
    pub(crate) fn tell_refusal(&mut self, status: Status) {
        match status {
            Status::MethodNotAllowed => self.fields.push("Allow", METHODS.as_bytes()),
            Status::Unauthorized => self.fields.push("WWW-Authenticate", CHALLENGE),
            Status::ServiceUnavailable => self.fields.push("Retry-After", b"1"),
            _ => return,
        };
    }

    /// The values of the response's fields with this name, as one line would have them (RFC 9110 section 5.3).
    pub(crate) fn response_field(&self, name: &str) -> Vec<u8> {
        self.fields.values(name).collect::<Vec<_>>().join(&b", "[..])
    }
}

/// The methods that are served.
pub(crate) const METHODS: &str = "GET, HEAD, OPTIONS";

/// How a client may say who it is (RFC 7617).
const CHALLENGE: &[u8] = b"Basic realm=\"restricted\", charset=\"UTF-8\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_leaves_the_fields_of_the_request() {
        let mut exchange = Exchange::default();
        exchange.answer(Status::PartialContent).push("Access-Control-Allow-Origin", b"*");
        exchange.fields.push("Content-Range", b"bytes 0-1/2").push("Server-Timing", b"lookup");
        exchange.refuse_unreadable();
        assert_eq!(exchange.status, Status::InternalServerError);
        assert_eq!(exchange.response_field("Access-Control-Allow-Origin"), b"*");
        assert_eq!(exchange.response_field("Server-Timing"), b"lookup");
        assert_eq!(exchange.response_field("Content-Range"), b"");
        assert!(matches!(exchange.content, Content::Text(_)));
    }

    #[test]
    fn an_error_page_that_cannot_be_read_leaves_its_status() {
        let mut exchange = Exchange::default();
        exchange.answer(Status::Unauthorized).push("ETag", b"\"a\"");
        exchange.refuse_unreadable();
        assert_eq!(exchange.status, Status::Unauthorized);
        assert_eq!(exchange.response_field("WWW-Authenticate"), CHALLENGE);
        assert_eq!(exchange.response_field("ETag"), b"");
    }
}
