//! The head of a response.

use super::{check, content_length, push_field};
use crate::error::ProtocolFault;
use crate::hpack::{FIELD_OVERHEAD, FieldSink};

/// Makes a head of the fields of one header block. The buffer is used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct ResponseHeadText {
    /// The head: the status line, without reason, and the fields.
    pub(crate) text: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) content_length: Option<u64>,
    fault: Option<ProtocolFault>,
    size: usize,
    most: usize,
}

impl FieldSink for ResponseHeadText {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.size = self.size.saturating_add(name.len() + value.len() + FIELD_OVERHEAD);
        if self.size > self.most || self.fault.is_some() {
            return;
        }
        self.fault = self.take(name, value).err();
    }
}

impl ResponseHeadText {
    /// Begins a head, whose fields may have up to `most` bytes.
    pub(crate) fn begin(&mut self, most: usize) {
        self.text.clear();
        let text = std::mem::take(&mut self.text);
        *self = ResponseHeadText { text, most, ..ResponseHeadText::default() };
    }

    /// Ends the head; tells whether it is complete, and not too large.
    ///
    /// # Errors
    /// The response is malformed (RFC 9113 section 8.1.1).
    pub(crate) fn finish(&mut self) -> Result<bool, ProtocolFault> {
        match self.fault {
            Some(fault) => return Err(fault),
            None if self.size > self.most => return Ok(false),
            // Without Upgrade nothing can be switched to (RFC 9113 section 8.6).
            None if self.status == 0 || self.status == 101 => return Err(ProtocolFault::Status),
            None => {}
        }
        self.text.extend_from_slice(b"\r\n");
        Ok(true)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), ProtocolFault> {
        if name == b":status" {
            let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else {
                return Err(ProtocolFault::Status);
            };
            if self.status != 0 {
                return Err(ProtocolFault::PseudoField);
            }
            let digit = |byte: &u8| u16::from(byte - b'0');
            self.status = 100 * digit(a) + 10 * digit(b) + digit(c);
            self.text.extend_from_slice(b"HTTP/1.1 ");
            self.text.extend_from_slice(value);
            self.text.extend_from_slice(b" \r\n");
            return Ok(());
        }
        if name.starts_with(b":") {
            return Err(ProtocolFault::PseudoField);
        }
        if self.status == 0 {
            return Err(ProtocolFault::Status);
        }
        check(name, value)?;
        if name == b"content-length" {
            let before = self.content_length;
            self.content_length = content_length(before, value)?;
            if before.is_some() {
                return Ok(());
            }
        }
        push_field(&mut self.text, name, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Result<String, ProtocolFault> {
        let mut head = ResponseHeadText::default();
        head.begin(1000);
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes());
        }
        assert!(head.finish()?);
        Ok(String::from_utf8(head.text).unwrap())
    }

    #[test]
    fn a_head_is_one_of_http_1() {
        let fields =
            [(":status", "404"), ("server", "a"), ("content-length", "3"), ("content-length", "3")];
        assert_eq!(
            head(&fields).unwrap(),
            "HTTP/1.1 404 \r\nserver: a\r\ncontent-length: 3\r\n\r\n"
        );
    }

    #[test]
    fn what_is_malformed_is_refused() {
        use ProtocolFault::*;
        for (fields, fault) in [
            (&[("a", "b")][..], Status),
            (&[], Status),
            (&[(":status", "20")], Status),
            (&[(":status", "099")], Status),
            (&[(":status", "2000")], Status),
            (&[(":status", "101")], Status),
            (&[(":status", "200"), (":status", "200")], PseudoField),
            (&[(":status", "200"), (":path", "/")], PseudoField),
            (&[(":status", "200"), ("a", "b"), (":status", "200")], PseudoField),
            (&[(":status", "200"), ("A", "b")], FieldName),
            (&[(":status", "200"), ("connection", "close")], ConnectionField),
        ] {
            assert_eq!(head(fields), Err(fault), "{fields:?}");
        }
    }
}
