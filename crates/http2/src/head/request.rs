//! The head of a request.

use std::ops::Range;

use super::characters::{is_method, is_path, is_scheme, is_value};
use super::{check, content_length, push_field};
use crate::error::ProtocolFault;
use crate::hpack::{FIELD_OVERHEAD, FieldSink};
use crate::priority::StreamPriority;

/// Makes a head of the fields of one header block. The buffers are used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    /// The head: the request line once all pseudo-fields are known, and the fields.
    pub(crate) text: Vec<u8>,
    /// The values of the pseudo-fields that the request line needs: they may come in any order.
    pseudo: Vec<u8>,
    /// The values of all fields `cookie`, which are one field in HTTP/1 (RFC 9113 section 8.2.3).
    cookies: Vec<u8>,
    pub(crate) facts: RequestHeadFacts,
    progress: Progress,
}

/// What a head says of its request beside its text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestHeadFacts {
    pub(crate) content_length: Option<u64>,
    /// By the field `priority`, in lower than the default's place.
    pub(crate) priority: StreamPriority,
}

/// How far the fields are read.
#[derive(Debug, Default)]
struct Progress {
    fault: Option<ProtocolFault>,
    method: Option<Range<u32>>,
    path: Option<Range<u32>>,
    authority: Option<Range<u32>>,
    has_scheme: bool,
    has_host: bool,
    /// The request line stands in the text: only fields may follow.
    has_line: bool,
    /// The size of all fields (RFC 9113 section 10.5.1), and how large they may be.
    size: usize,
    most: usize,
}

impl FieldSink for RequestHead {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let progress = &mut self.progress;
        progress.size = progress.size.saturating_add(name.len() + value.len() + FIELD_OVERHEAD);
        if progress.size > progress.most || progress.fault.is_some() {
            return;
        }
        let taken = match name {
            [b':', name @ ..] => self.take_pseudo_field(name, value),
            _ => self.take_field(name, value),
        };
        self.progress.fault = taken.err();
    }
}

impl RequestHead {
    /// Begins a head, whose fields may have up to `most` bytes.
    pub(crate) fn begin(&mut self, most: usize) {
        self.text.clear();
        self.pseudo.clear();
        self.cookies.clear();
        self.facts = RequestHeadFacts::default();
        self.progress = Progress { most, ..Progress::default() };
    }

    /// Whether the fields are larger than they may be. The text is no head then.
    pub(crate) fn is_too_large(&self) -> bool {
        self.progress.size > self.progress.most
    }

    /// Has the head count as too large.
    pub(crate) fn refuse(&mut self) {
        self.progress.size = usize::MAX;
    }

    /// Ends the head.
    ///
    /// # Errors
    /// The request is malformed (RFC 9113 section 8.1.1).
    pub(crate) fn finish(&mut self) -> Result<(), ProtocolFault> {
        if let Some(fault) = self.progress.fault {
            return Err(fault);
        }
        if self.is_too_large() {
            return Ok(());
        }
        self.write_line()?;
        if !self.cookies.is_empty() {
            push_field(&mut self.text, b"cookie", &self.cookies);
        }
        self.text.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn take_pseudo_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), ProtocolFault> {
        let progress = &mut self.progress;
        let (slot, is_good) = match name {
            b"method" => (&mut progress.method, is_method(value)),
            b"path" => (&mut progress.path, is_path(value)),
            // User names in URLs are no part of it (RFC 9113 section 8.3.1).
            b"authority" => (&mut progress.authority, is_value(value) && !value.contains(&b'@')),
            b"scheme" if !progress.has_scheme && !progress.has_line => {
                progress.has_scheme = true;
                return if is_scheme(value) { Ok(()) } else { Err(ProtocolFault::PseudoValue) };
            }
            _ => return Err(ProtocolFault::PseudoField),
        };
        if slot.is_some() || progress.has_line {
            return Err(ProtocolFault::PseudoField);
        }
        if !is_good {
            return Err(ProtocolFault::PseudoValue);
        }
        let begin = self.pseudo.len() as u32;
        self.pseudo.extend_from_slice(value);
        *slot = Some(begin..self.pseudo.len() as u32);
        Ok(())
    }

    fn take_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), ProtocolFault> {
        self.write_line()?;
        check(name, value)?;
        match name {
            b"host" => {
                let authority = self.progress.authority.clone().map(|it| self.pseudo_value(it));
                let is_other = authority.is_some_and(|it| !it.eq_ignore_ascii_case(value));
                if is_other || self.progress.has_host {
                    return Err(ProtocolFault::HostMismatch);
                }
                self.progress.has_host = true;
                if self.progress.authority.is_some() {
                    return Ok(());
                }
            }
            b"cookie" => {
                if !self.cookies.is_empty() {
                    self.cookies.extend_from_slice(b"; ");
                }
                self.cookies.extend_from_slice(value);
                return Ok(());
            }
            b"content-length" => {
                let before = self.facts.content_length;
                self.facts.content_length = content_length(before, value)?;
                if before.is_some() {
                    return Ok(());
                }
            }
            b"priority" => self.facts.priority.read(value),
            _ => {}
        }
        push_field(&mut self.text, name, value);
        Ok(())
    }

    fn pseudo_value(&self, range: Range<u32>) -> &[u8] {
        &self.pseudo[range.start as usize..range.end as usize]
    }

    /// Writes the request line and `Host`, once.
    fn write_line(&mut self) -> Result<(), ProtocolFault> {
        if self.progress.has_line {
            return Ok(());
        }
        self.progress.has_line = true;
        let value = |range: Range<u32>| &self.pseudo[range.start as usize..range.end as usize];
        let method = self.progress.method.clone().map(value);
        if method == Some(b"CONNECT") {
            return Err(ProtocolFault::Connect);
        }
        let path = self.progress.path.clone().map(value);
        let (Some(method), Some(path), true) = (method, path, self.progress.has_scheme) else {
            return Err(ProtocolFault::MissingPseudoField);
        };
        let is_of_server = path == b"*" && method == b"OPTIONS";
        if !path.starts_with(b"/") && !is_of_server {
            return Err(ProtocolFault::PseudoValue);
        }
        let text = &mut self.text;
        for part in [method, b" ", path, b" HTTP/1.1\r\n"] {
            text.extend_from_slice(part);
        }
        if let Some(authority) = self.progress.authority.clone().map(value) {
            push_field(text, b"Host", authority);
        }
        Ok(())
    }

    /// Gives the memory back.
    pub(crate) fn release(&mut self) {
        *self = RequestHead::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_within(most: usize, fields: &[(&str, &str)]) -> Result<String, ProtocolFault> {
        let mut head = RequestHead::default();
        head.begin(most);
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes());
        }
        head.finish()?;
        Ok(if head.is_too_large() {
            "too large".into()
        } else {
            String::from_utf8(head.text).unwrap()
        })
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "a.example")];

    fn get(more: &[(&str, &str)]) -> Result<String, ProtocolFault> {
        head_within(10_000, &[&GET, more].concat())
    }

    #[test]
    fn a_head_is_one_of_http_1() {
        let head = get(&[("accept", "*/*"), ("te", "trailers"), ("x-empty", "")]).unwrap();
        let expected = "GET /a?b HTTP/1.1\r\nHost: a.example\r\naccept: */*\r\nte: trailers\r\nx-empty: \r\n\r\n";
        assert_eq!(head, expected);
        let mut reversed = GET;
        reversed.reverse();
        assert_eq!(head_within(1000, &reversed), get(&[]));
    }

    #[test]
    fn host_stands_in_for_the_authority() {
        let without = head_within(1000, &[&GET[..3], &[("host", "b.example")]].concat()).unwrap();
        assert_eq!(without, "GET /a?b HTTP/1.1\r\nhost: b.example\r\n\r\n");
        assert_eq!(get(&[("host", "A.example")]), get(&[]));
        assert_eq!(get(&[("host", "b.example")]), Err(ProtocolFault::HostMismatch));
        assert_eq!(
            get(&[("host", "a.example"), ("host", "a.example")]),
            Err(ProtocolFault::HostMismatch)
        );
    }

    #[test]
    fn crumbs_are_one_cookie() {
        let head = get(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]).unwrap();
        assert!(head.ends_with("\r\nx: y\r\ncookie: a=1; b=2\r\n\r\n"), "{head}");
    }

    #[test]
    fn what_is_malformed_is_refused() {
        use ProtocolFault::*;
        for (field, fault) in [
            (("Accept", "a"), FieldName),
            (("", "a"), FieldName),
            (("a b", "a"), FieldName),
            (("a:b", "a"), FieldName),
            (("a\u{e9}", "a"), FieldName),
            (("a", "b\r"), FieldValue),
            (("a", "b\nc: d"), FieldValue),
            (("a", "\0"), FieldValue),
            (("a", " b"), FieldValue),
            (("a", "b\t"), FieldValue),
            (("a", "b\x7f"), FieldValue),
            (("connection", "close"), ConnectionField),
            (("keep-alive", ""), ConnectionField),
            (("proxy-connection", "a"), ConnectionField),
            (("transfer-encoding", "chunked"), ConnectionField),
            (("upgrade", "h2c"), ConnectionField),
            (("te", "gzip"), ConnectionField),
            (("te", "trailers, gzip"), ConnectionField),
            ((":method", "GET"), PseudoField),
            ((":status", "200"), PseudoField),
            ((":protocol", "websocket"), PseudoField),
            ((":", ""), PseudoField),
            (("content-length", "-1"), ContentLength),
            (("content-length", ""), ContentLength),
            (("content-length", "99999999999999999999"), ContentLength),
        ] {
            assert_eq!(get(&[field]), Err(fault), "{field:?}");
        }
        assert_eq!(get(&[("content-length", "1"), ("content-length", "2")]), Err(ContentLength));
        let same = get(&[("content-length", "1"), ("content-length", "1")]).unwrap();
        assert_eq!(same.matches("content-length").count(), 1);
        assert_eq!(get(&[("a", "b"), (":path", "/")]), Err(PseudoField), "late");
    }

    #[test]
    fn pseudo_fields_are_needed_once_and_valid() {
        for missing in 0..3 {
            let mut fields = GET.to_vec();
            fields.remove(missing);
            assert_eq!(head_within(1000, &fields), Err(ProtocolFault::MissingPseudoField));
        }
        for field in GET {
            let twice = [&GET[..], &[field]].concat();
            assert_eq!(head_within(1000, &twice), Err(ProtocolFault::PseudoField));
        }
        for (name, value) in [
            (":method", ""),
            (":method", "G T"),
            (":scheme", ""),
            (":scheme", "1"),
            (":path", ""),
            (":path", "a"),
            (":path", "*"),
            (":path", "/a b"),
            (":path", "/ HTTP/1.1\r\nx: y"),
            (":authority", "a\r\nb: c"),
            (":authority", "me@a.example"),
        ] {
            let fields = GET.map(|(it, old)| (it, if it == name { value } else { old }));
            assert_eq!(
                head_within(1000, &fields),
                Err(ProtocolFault::PseudoValue),
                "{name} {value}"
            );
        }
        let connect = GET.map(|(it, old)| (it, if it == ":method" { "CONNECT" } else { old }));
        assert_eq!(head_within(1000, &connect), Err(ProtocolFault::Connect));
        let connect = [(":method", "CONNECT"), (":authority", "a:1")];
        assert_eq!(head_within(1000, &connect), Err(ProtocolFault::Connect));
        let options = GET.map(|(it, old)| match it {
            ":method" => (it, "OPTIONS"),
            ":path" => (it, "*"),
            _ => (it, old),
        });
        assert!(head_within(1000, &options).unwrap().starts_with("OPTIONS * HTTP/1.1\r\n"));
    }

    #[test]
    fn size_counts_names_values_and_32_bytes_each() {
        let exact: usize = GET.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert!(head_within(exact, &GET).unwrap().starts_with("GET"));
        assert_eq!(head_within(exact - 1, &GET).unwrap(), "too large");
    }
}
