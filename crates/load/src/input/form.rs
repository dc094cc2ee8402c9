//! Bodies of forms, in both of their encodings.

use std::hash::Hasher;

use twox_hash::XxHash64;

/// `text` as a name or value in `application/x-www-form-urlencoded`: a space is `+`.
pub(super) fn url_encoded(text: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b' ' => encoded.push('+'),
            _ if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                encoded.push(byte as char)
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// A part of a form in `multipart/form-data`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) content: Vec<u8>,
}

/// The body of a form in `multipart/form-data` (RFC 7578), and its boundary: `boundary`, or one that no part has.
pub(super) fn multipart(parts: &[Part], boundary: Option<&str>) -> (Vec<u8>, String) {
    let boundary = boundary.map_or_else(|| free_boundary(parts), str::to_string);
    let mut body = Vec::new();
    for part in parts {
        let mut head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"",
            quoted(&part.name)
        );
        if let Some(file) = &part.file_name {
            head += &format!("; filename=\"{}\"", quoted(file));
        }
        if let Some(content_type) = &part.content_type {
            head += &format!("\r\nContent-Type: {content_type}");
        }
        head += "\r\n\r\n";
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&part.content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (body, boundary)
}

/// A boundary as curl's: 24 dashes and 16 digits. It follows from the parts, so that a command is always the same
/// request.
fn free_boundary(parts: &[Part]) -> String {
    let mut hash = XxHash64::with_seed(0);
    loop {
        for part in parts {
            hash.write(part.name.as_bytes());
            hash.write(&part.content);
        }
        let boundary = format!("------------------------{:016x}", hash.finish());
        let is_in =
            |part: &Part| part.content.windows(boundary.len()).any(|it| it == boundary.as_bytes());
        if !parts.iter().any(is_in) {
            return boundary;
        }
        hash.write_u8(0);
    }
}

/// A name within quotes, as browsers and curl write it (HTML, "multipart/form-data encoding algorithm").
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_encoded() {
        assert_eq!(url_encoded("a b&c=é~-._+".as_bytes()), "a+b%26c%3D%C3%A9~-._%2B");
    }

    #[test]
    fn a_form_has_its_parts() {
        let part = |name: &str, content: &str| Part {
            name: name.to_string(),
            content: content.into(),
            ..Part::default()
        };
        let file = Part {
            file_name: Some("b\".txt".to_string()),
            content_type: Some("text/plain".to_string()),
            ..part("f\n", "hello")
        };
        let (body, boundary) = multipart(&[part("a", "1"), file], Some("xyz"));
        assert_eq!(boundary, "xyz");
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--xyz\r\nContent-Disposition: \
             form-data; name=\"f%0A\"; filename=\"b%22.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--xyz--\r\n"
        );
        let first = multipart(&[part("a", "1")], None).1;
        assert_eq!((first.len(), &first), (40, &multipart(&[part("a", "1")], None).1));
        assert_ne!(first, multipart(&[part("a", "2")], None).1);
    }
}
