//! The text of a file, and how a parser comes by the files that a text names.

/// Reads a file by its name. The error is one line that names the file.
pub type ReadFile<'a> = dyn FnMut(&str) -> Result<Vec<u8>, String> + 'a;

/// The text that `bytes` are in UTF-8, without a byte order mark at its beginning, which editors of Windows write.
///
/// # Errors
/// One line that says what else the bytes may be.
pub fn decode(bytes: &[u8]) -> Result<&str, String> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("it is in UTF-16: save it as UTF-8".to_string());
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        format!("line {line} is not in UTF-8: save it as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_skipped_and_other_encodings_are_named() {
        assert_eq!(decode(b"\xef\xbb\xbfa\xef\xbb\xbf"), Ok("a\u{feff}"));
        assert_eq!(decode(b""), Ok(""));
        assert!(decode(b"\xff\xfea\0").unwrap_err().contains("UTF-16"));
        assert!(decode(b"a\nb\xe9").unwrap_err().contains("line 2"));
    }
}
