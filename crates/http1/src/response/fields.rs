//! The fields that responses of a file server have.

use crate::coding::ContentCoding;
use crate::conditional::Validators;
use crate::date;
use crate::field_list::FieldList;
use crate::range::ByteRange;
use crate::status::Status;

/// The one line of text that a response without a file has as its content: the status, and if it is not empty, the reason.
fn text_of(status: Status, reason: &str) -> [&str; 4] {
    match reason {
        "" => [status.text(), "", "", "\n"],
        reason => [status.text(), ": ", reason, "\n"],
    }
}

/// Appends the content of a response with the fields of [`FieldList::text`].
pub fn push_text(out: &mut Vec<u8>, status: Status, reason: &str) {
    text_of(status, reason).iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// Each adds a field, or those that belong together.
impl FieldList {
    /// `Content-Type`
    pub fn content_type(&mut self, value: &str) -> &mut Self {
        self.push("Content-Type", value.as_bytes())
    }

    /// `Content-Encoding`; no field for a representation as it is.
    pub fn content_encoding(&mut self, coding: Option<ContentCoding>) -> &mut Self {
        match coding {
            Some(coding) => self.push("Content-Encoding", coding.name().as_bytes()),
            None => self,
        }
    }

    /// `Vary: Accept-Encoding`, if the representation was chosen by that field (RFC 9110 section 12.5.5).
    pub fn varies_by_coding(&mut self, varies: bool) -> &mut Self {
        if varies { self.push("Vary", b"Accept-Encoding") } else { self }
    }

    /// `Content-Length` in bytes.
    pub fn content_length(&mut self, length: u64) -> &mut Self {
        self.push_with("Content-Length", |out| push_decimal(out, length))
    }

    /// `Last-Modified`, never later than `now` (RFC 9110 section 8.8.2.1), and `ETag`, as far as there
    /// are validators.
    pub fn validators(&mut self, validators: &Validators, now: u64) -> &mut Self {
        if let Some(modified) = validators.modified {
            self.push("Last-Modified", &date::format(modified.min(now)));
        }
        if let Some(tag) = &validators.etag {
            self.push("ETag", tag.as_bytes());
        }
        self
    }

    /// `Accept-Ranges: bytes`
    pub fn accept_ranges(&mut self) -> &mut Self {
        self.push("Accept-Ranges", b"bytes")
    }

    /// `Content-Range` of a 206: `range` of a representation of `length` bytes.
    pub fn content_range(&mut self, range: ByteRange, length: u64) -> &mut Self {
        self.push_with("Content-Range", |out| push_range(out, range, length))
    }

    /// `Content-Range` of a 416: tells the client that the representation has `length` bytes.
    pub fn unsatisfied_range(&mut self, length: u64) -> &mut Self {
        self.push_with("Content-Range", |out| {
            out.extend_from_slice(b"bytes */");
            push_decimal(out, length);
        })
    }

    /// `Location` of a 301 that adds the closing slash to a directory: `name` as
    /// [`path::resolve`](crate::path::resolve) left it, escaped anew, and the query.
    pub fn directory_location(&mut self, name: &[u8], query: Option<&[u8]>) -> &mut Self {
        self.push_with("Location", |out| {
            out.push(b'/');
            if !name.is_empty() {
                push_path(out, name);
                out.push(b'/');
            }
            if let Some(query) = query {
                out.push(b'?');
                push_escaped(out, query, is_query_byte);
            }
        })
    }

    /// `X-Content-Type-Options: nosniff`, for bodies that the server makes itself and that contain text of clients or names of
    /// files: a browser takes the body for its Content-Type and nothing else
    /// (<https://fetch.spec.whatwg.org/#x-content-type-options-header>).
    pub fn nosniff(&mut self) -> &mut Self {
        self.push("X-Content-Type-Options", b"nosniff")
    }

    /// What a response says of a line of text as its content, which [`push_text`] writes.
    pub fn text(&mut self, status: Status, reason: &str) -> &mut Self {
        let length: usize = text_of(status, reason).iter().map(|part| part.len()).sum();
        self.content_type("text/plain; charset=utf-8").nosniff().content_length(length as u64)
    }
}

/// Appends the value of `Content-Range`: `range` of a representation of `length` bytes.
pub(super) fn push_range(out: &mut Vec<u8>, range: ByteRange, length: u64) {
    out.extend_from_slice(b"bytes ");
    push_decimal(out, range.start);
    out.push(b'-');
    push_decimal(out, range.end - 1);
    out.push(b'/');
    push_decimal(out, length);
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

    /// The fields that `add` adds, as text.
    fn added(add: impl FnOnce(&mut FieldList)) -> String {
        let mut fields = FieldList::default();
        add(&mut fields);
        let line = |(name, value): (&str, &[u8])| format!("{name}: {}\n", value.escape_ascii());
        fields.iter().map(line).collect()
    }

    #[test]
    fn a_file_s_fields_come_in_the_order_of_the_calls() {
        let times = FileTimes { size: 100, modified: (2, 0), changed: (2, 0) };
        let fields = added(|fields| {
            fields
                .content_type("text/html")
                .content_length(10)
                .content_range(ByteRange { start: 90, end: 100 }, u64::MAX)
                .validators(&Validators::of_times(&times, None, 9), u64::MAX)
                .accept_ranges();
        });
        assert_eq!(
            fields,
            "Content-Type: text/html\nContent-Length: 10\n\
             Content-Range: bytes 90-99/18446744073709551615\n\
             Last-Modified: Thu, 01 Jan 1970 00:00:02 GMT\n\
             ETag: \\\"200000000-64\\\"\nAccept-Ranges: bytes\n"
        );
        assert_eq!(added(|it| _ = it.unsatisfied_range(0)), "Content-Range: bytes */0\n");
    }

    #[test]
    fn a_line_of_text_has_the_length_that_is_said() {
        for (reason, expected) in
            [("no Host field", "400 Bad Request: no Host field\n"), ("", "400 Bad Request\n")]
        {
            let mut text = Vec::new();
            push_text(&mut text, Status::BadRequest, reason);
            assert_eq!(text, expected.as_bytes());
            let fields = added(|it| _ = it.text(Status::BadRequest, reason));
            assert!(fields.ends_with(&format!("Content-Length: {}\n", expected.len())));
        }
    }

    #[test]
    fn a_directory_s_location_is_escaped_and_local() {
        let location =
            |name: &[u8], query: Option<&[u8]>| added(|it| _ = it.directory_location(name, query));
        assert_eq!(location(b"a/b", None), "Location: /a/b/\n");
        assert_eq!(location(b"", None), "Location: /\n");
        assert_eq!(location(b"a b%\xff?\r\n", None), "Location: /a%20b%25%FF%3F%0D%0A/\n");
        assert_eq!(location(b"a", Some(b"b=%20\r\n\xff?")), "Location: /a/?b=%20%0D%0A%FF?\n");
    }
}
