//! Where a message ends: what `Connection`, `Content-Length` and `Transfer-Encoding` say together.
//!
//! Requests and responses share these rules (RFC 9112 sections 6 and 9.3). Whatever two recipients
//! could read in two ways is refused here, because that difference is what request smuggling
//! lives on: a length that is not plain digits, two lengths, a length beside a transfer coding.

use crate::status::{Refusal, Status};

/// The three fields of one head, gathered field line by field line.
#[derive(Default)]
pub(crate) struct Delimiters {
    length: Option<u64>,
    /// Whether there is a `Transfer-Encoding`.
    has_coding: bool,
    /// Whether the last transfer coding is `chunked`.
    chunked: bool,
    /// Whether there is a transfer coding other than `chunked`.
    unknown: bool,
    close: bool,
    keep_alive: bool,
}

impl Delimiters {
    /// Takes one `Connection` line; all lines of a head count, in any case of letters.
    pub(crate) fn connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Takes one `Content-Length` line. A second line is refused, even with an equal value.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.length.is_some() {
            return Err(Refusal::bad("more than one Content-Length"));
        }
        let length = decimal(value).ok_or(Refusal::bad("Content-Length is not a number"))?;
        self.length = Some(length);
        Ok(())
    }

    /// Takes one `Transfer-Encoding` line; all lines of a head are one list. Nothing may come behind
    /// `chunked`, the only coding known here: the end of a body with another last coding is
    /// unknown (RFC 9112 section 6.3).
    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.has_coding = true;
        for coding in list(value) {
            if self.chunked {
                return Err(Refusal::bad("a transfer coding behind chunked"));
            }
            self.chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.unknown |= !self.chunked;
        }
        Ok(())
    }

    /// What `Content-Length` and `Transfer-Encoding` say about the body.
    pub(crate) fn stated(&self, version: Version) -> Result<Stated, Refusal> {
        if !self.has_coding {
            return Ok(self.length.map_or(Stated::Nothing, Stated::Length));
        }
        if self.length.is_some() {
            return Err(Refusal::bad("both Content-Length and Transfer-Encoding"));
        }
        if version == Version::Http10 {
            return Err(Refusal::bad("Transfer-Encoding in HTTP/1.0"));
        }
        if !self.chunked {
            return Err(Refusal::bad("the last transfer coding is not chunked"));
        }
        if self.unknown {
            return Err(Refusal::new(Status::NotImplemented, "unknown transfer coding"));
        }
        Ok(Stated::Chunked)
    }

    /// Whether the connection outlives this message (RFC 9112 section 9.3).
    pub(crate) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// What a head states about its body.
pub(crate) enum Stated {
    Nothing,
    Length(u64),
    Chunked,
}

/// The version that a message has come in. A start line has one of the first two; others are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// `HTTP/1.0`: a connection ends with the response unless the client asks otherwise.
    Http10,
    /// `HTTP/1.1`: a connection persists unless one side asks otherwise.
    Http11,
    /// `HTTP/2.0`: the request has come over a stream, and stands in the form of HTTP/1.1.
    Http2,
}

impl Version {
    /// Its name, as a start line or a log has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }

    pub(crate) fn from_minor(minor: Option<u8>) -> Self {
        match minor {
            Some(0) => Version::Http10,
            _ => Version::Http11,
        }
    }
}

/// The non-empty elements of a comma-separated list, without the white space around them
/// (RFC 9110 section 5.6.1). Only for lists whose elements cannot quote a comma.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(|element| element.trim_ascii())
        .filter(|element| !element.is_empty())
}

/// A number of plain digits that fits: no sign, no white space, not empty.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_takes_plain_digits_only() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"0042"), Some(42));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "+1", "-1", " 1", "1 ", "1,1", "0x10", "18446744073709551616"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn list_skips_empty_elements_and_white_space() {
        let elements: Vec<&[u8]> = list(b", a ,,\tb, ").collect();
        assert_eq!(elements, [b"a", b"b"]);
    }

    #[test]
    fn close_wins_over_keep_alive() {
        let mut delimiters = Delimiters::default();
        delimiters.connection(b"Keep-Alive");
        assert!(delimiters.persists(Version::Http10));
        delimiters.connection(b"foo, CLOSE");
        assert!(!delimiters.persists(Version::Http10));
        assert!(!delimiters.persists(Version::Http11));
    }
}
