//! The status codes this server speaks, and the refusal that carries one.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal;)*) => {
        /// A status of RFC 9110 section 15 (431: RFC 6585 section 5).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// Every status, in the order of its code.
            pub const ALL: &[Status] = &[$(Status::$name),*];

            /// Code and reason phrase as they stand in a status line: `404 Not Found`.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Status::$name => concat!($code, " ", $reason),)*
                }
            }
        }
    };
}

statuses! {
    /// The client may send the body it announced.
    Continue = 100 "Continue";
    /// The whole representation follows.
    Ok = 200 "OK";
    /// The response says all in its head.
    NoContent = 204 "No Content";
    /// Ranges of the representation follow.
    PartialContent = 206 "Partial Content";
    /// A directory was asked for without its closing slash, or the path has moved.
    MovedPermanently = 301 "Moved Permanently";
    /// The path leads elsewhere for now.
    Found = 302 "Found";
    /// The client's copy is still good.
    NotModified = 304 "Not Modified";
    /// The path leads elsewhere for now; the method stays.
    TemporaryRedirect = 307 "Temporary Redirect";
    /// The path has moved; the method stays.
    PermanentRedirect = 308 "Permanent Redirect";
    /// The request is not HTTP, or could be read in two ways.
    BadRequest = 400 "Bad Request";
    /// The client has to say who it is, and has not, or not rightly.
    Unauthorized = 401 "Unauthorized";
    /// The file exists and may not be read.
    Forbidden = 403 "Forbidden";
    /// No such file.
    NotFound = 404 "Not Found";
    /// The method is known, and none that a file server serves.
    MethodNotAllowed = 405 "Method Not Allowed";
    /// The head did not arrive in time.
    RequestTimeout = 408 "Request Timeout";
    /// `If-Match` or `If-Unmodified-Since` does not hold.
    PreconditionFailed = 412 "Precondition Failed";
    /// The request's body is larger than the server will skip.
    ContentTooLarge = 413 "Content Too Large";
    /// The request target is longer than the limit.
    UriTooLong = 414 "URI Too Long";
    /// No byte of the representation lies in the range.
    RangeNotSatisfiable = 416 "Range Not Satisfiable";
    /// The request expects something of the server that the server does not know.
    ExpectationFailed = 417 "Expectation Failed";
    /// The request names a host that is not served here.
    MisdirectedRequest = 421 "Misdirected Request";
    /// The head is longer than the limit, or has too many fields.
    HeadTooLarge = 431 "Request Header Fields Too Large";
    /// The server failed.
    InternalServerError = 500 "Internal Server Error";
    /// The method, or the body's transfer coding, is unknown here.
    NotImplemented = 501 "Not Implemented";
    /// The server is out of something and says so.
    ServiceUnavailable = 503 "Service Unavailable";
    /// The protocol version is not HTTP/1.0 or HTTP/1.1.
    VersionNotSupported = 505 "HTTP Version Not Supported";
}

impl Status {
    /// The three-digit code.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// Why a request is turned down: the status to answer with and a short reason for people.
///
/// A refusal that comes from [`request::parse`](crate::request::parse) leaves the end of the
/// message unknown, so the connection must be closed after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What to answer.
    pub status: Status,
    /// What was wrong, in a few words without a full stop.
    pub reason: &'static str,
}

impl Refusal {
    /// The head of a request is longer than is allowed.
    pub const HEAD_TOO_LONG: Refusal = Refusal::new(Status::HeadTooLarge, "request head too long");

    pub(crate) const fn new(status: Status, reason: &'static str) -> Self {
        Refusal { status, reason }
    }

    /// A 400, by far the most common refusal.
    pub(crate) const fn bad(reason: &'static str) -> Self {
        Refusal::new(Status::BadRequest, reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.status.text(), self.reason)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_begins_with_the_code_and_codes_ascend() {
        for status in Status::ALL {
            let digits = &status.text()[..4];
            assert_eq!(digits, format!("{} ", status.code()));
        }
        assert!(Status::ALL.is_sorted_by(|a, b| a.code() < b.code()));
    }

    #[test]
    fn refusal_prints_status_and_reason() {
        let refusal = Refusal::bad("no Host field");
        assert_eq!(refusal.to_string(), "400 Bad Request: no Host field");
    }
}
