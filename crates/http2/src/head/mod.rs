//! The fields of a header block as the head of a message of HTTP/1.1, so that one parser reads both; what RFC 9113 sections 8.1
//! to 8.3 call malformed is refused on the way.

mod characters;
pub(crate) mod request;
pub(crate) mod response;

use crate::error::ProtocolFault;
use crate::hpack::FieldSink;
use characters::{is_name, is_value};

/// What is checked of every field that is no pseudo-field.
fn check(name: &[u8], value: &[u8]) -> Result<(), ProtocolFault> {
    if !is_name(name) {
        return Err(ProtocolFault::FieldName);
    }
    if !is_value(value) {
        return Err(ProtocolFault::FieldValue);
    }
    let is_of_connection = match name.len() {
        2 => name == b"te" && !value.eq_ignore_ascii_case(b"trailers"),
        7 => name == b"upgrade",
        10 => name == b"connection" || name == b"keep-alive",
        16 => name == b"proxy-connection",
        17 => name == b"transfer-encoding",
        _ => false,
    };
    if is_of_connection { Err(ProtocolFault::ConnectionField) } else { Ok(()) }
}

/// Reads another `content-length`, which has to say what the one before has said (RFC 9110 section 8.6).
fn content_length(before: Option<u64>, value: &[u8]) -> Result<Option<u64>, ProtocolFault> {
    let digits = str::from_utf8(value).ok().filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
    let length: u64 = digits.and_then(|it| it.parse().ok()).ok_or(ProtocolFault::ContentLength)?;
    match before {
        Some(before) if before != length => Err(ProtocolFault::ContentLength),
        _ => Ok(Some(length)),
    }
}

fn push_field(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Checks trailers, which nobody keeps.
#[derive(Debug, Default)]
pub(crate) struct TrailerCheck(pub(crate) Option<ProtocolFault>);

impl FieldSink for TrailerCheck {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let result = if name.starts_with(b":") {
            Err(ProtocolFault::PseudoTrailer)
        } else {
            check(name, value)
        };
        self.0 = self.0.or(result.err());
    }
}

/// Drops fields: a block is decoded because the table has to follow it.
pub(crate) struct NoFields;

impl FieldSink for NoFields {
    fn field(&mut self, _name: &[u8], _value: &[u8]) {}
}
