//! The body of a response with several ranges: `multipart/byteranges` (RFC 9110 section 14.6).

use super::fields::push_range;
use super::write::push_field;
use crate::range::ByteRange;

/// What stands around the parts of a body.
#[derive(Clone, Debug)]
pub struct Multipart {
    boundary: [u8; Multipart::BOUNDARY],
    content_type: String,
    /// The length of the representation in bytes.
    length: u64,
}

impl Multipart {
    /// How many hexadecimal digits a boundary has.
    const BOUNDARY: usize = 32;

    /// A body of parts of one representation, which is of this type and has so many bytes. `random` is a number
    /// that nobody can guess: no representation has it within itself.
    #[must_use]
    pub fn new(content_type: &str, length: u64, random: u128) -> Multipart {
        let digit = |place: usize| b"0123456789abcdef"[(random >> (4 * place)) as usize & 15];
        let (boundary, content_type) = (std::array::from_fn(digit), content_type.to_owned());
        Multipart { boundary, content_type, length }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub fn content_type(&self) -> String {
        let boundary = String::from_utf8_lossy(&self.boundary);
        format!("multipart/byteranges; boundary={boundary}")
    }

    /// The length of the whole body in bytes.
    #[must_use]
    pub fn content_length(&self, parts: &[ByteRange]) -> u64 {
        let mut around = Vec::new();
        parts.iter().for_each(|part| self.push_head(*part, &mut around));
        self.push_end(&mut around);
        around.len() as u64 + parts.iter().map(ByteRange::len).sum::<u64>()
    }

    /// Appends what stands in front of a part's bytes.
    pub fn push_head(&self, part: ByteRange, out: &mut Vec<u8>) {
        self.push_boundary(out);
        out.extend_from_slice(b"\r\n");
        push_field(out, "Content-Type", self.content_type.as_bytes());
        out.extend_from_slice(b"Content-Range: ");
        push_range(out, part, self.length);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends what stands behind the last part's bytes.
    pub fn push_end(&self, out: &mut Vec<u8>) {
        self.push_boundary(out);
        out.extend_from_slice(b"--\r\n");
    }

    fn push_boundary(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(&self.boundary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_form_of_the_rfc_and_the_length_that_is_said() {
        let multipart = Multipart::new("text/plain", 1000, 0xfedc_ba98);
        let boundary = "89abcdef000000000000000000000000";
        assert_eq!(multipart.content_type(), format!("multipart/byteranges; boundary={boundary}"));
        let parts = [ByteRange { start: 500, end: 503 }, ByteRange { start: 999, end: 1000 }];
        let mut body = Vec::new();
        for (part, bytes) in parts.iter().zip(["abc", "d"]) {
            multipart.push_head(*part, &mut body);
            body.extend_from_slice(bytes.as_bytes());
        }
        multipart.push_end(&mut body);
        assert_eq!(body.len() as u64, multipart.content_length(&parts));
        let expected = format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 500-502/1000\r\n\r\nabc\
             \r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 999-999/1000\r\n\r\nd\
             \r\n--{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
}
