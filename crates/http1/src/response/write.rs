//! Response heads as HTTP/1 writes them, into a buffer that the caller keeps and uses again.
//!
//! [`push_head`] writes the status line, `Server`, `Date` and `Connection`, then the fields of a list. Nothing is formatted
//! through `std::fmt` and nothing is allocated once the buffer has grown to its size.

use crate::date::DateText;
use crate::field_list::FieldList;
use crate::framing::Version;
use crate::status::Status;

/// The whole interim response to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends the interim response 103 (RFC 8297) with these fields.
pub fn push_early_hints(out: &mut Vec<u8>, fields: &FieldList) {
    out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
    push_fields(out, fields);
    out.extend_from_slice(b"\r\n");
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
            (true, Version::Http11 | Version::Http2) => ConnectionField::Implied,
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
}

/// Appends a head: the status line, what every response begins with, and `fields`. Returns where in `out` the value of `Date`
/// begins.
pub fn push_head(
    out: &mut Vec<u8>,
    status: Status,
    common: &Common<'_>,
    fields: &FieldList,
) -> usize {
    for part in ["HTTP/1.1 ", status.text(), "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    if !common.server.is_empty() {
        push_field(out, "Server", common.server.as_bytes());
    }
    let date = out.len() + "Date: ".len();
    push_field(out, "Date", common.date);
    out.extend_from_slice(common.connection.field().unwrap_or_default());
    push_fields(out, fields);
    out.extend_from_slice(b"\r\n");
    date
}

/// Appends a line for each field.
pub fn push_fields(out: &mut Vec<u8>, fields: &FieldList) {
    fields.iter().for_each(|(name, value)| push_field(out, name, value));
}

/// Appends a field.
pub(super) fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date;

    fn written(server: &str, connection: ConnectionField, fields: &FieldList) -> String {
        let date = date::format(784_111_777);
        let mut out = b"before".to_vec();
        let common = Common { server, date: &date, connection };
        let place = push_head(&mut out, Status::PartialContent, &common, fields);
        assert_eq!(out[place..][..date.len()], date);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_has_what_all_have_and_then_its_fields() {
        let fields = FieldList::from_iter([("A", &b"b"[..]), ("C", b"")]);
        assert_eq!(
            written("drover", ConnectionField::Implied, &fields),
            "beforeHTTP/1.1 206 Partial Content\r\nServer: drover\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nA: b\r\nC: \r\n\r\n"
        );
        assert!(!written("", ConnectionField::Implied, &fields).contains("Server"));
    }

    #[test]
    fn connection_is_said_only_where_it_is_not_implied() {
        let line = |version, persists| {
            let connection = ConnectionField::new(version, persists);
            let head = written("", connection, &FieldList::default());
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
}
