//! Paths in texts: names of files are bytes, and texts of the lab are UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The path as a part of a command line, a configuration file or a list of URLs.
///
/// # Errors
/// In words: the path is not UTF-8, so that no such text can name it.
pub fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| {
        format!(
            "'{}' is not UTF-8, and configuration files and command lines of servers must name it",
            escaped(path.as_os_str())
        )
    })
}

/// The path for people. Bytes that are not UTF-8 are written as `\xFF`.
#[must_use]
pub fn escaped(path: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in path.as_ref().as_bytes().utf8_chunks() {
        text += chunk.valid();
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02X}"));
    }
    text
}

/// A name as a part of a path in a URL. All bytes but the unreserved characters of RFC 3986 are percent-encoded.
#[must_use]
pub fn in_url(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for byte in name.as_ref().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The inverse of [`in_url`].
pub(crate) fn from_url(path: &str) -> OsString {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let code = others.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &others[2..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_path_is_lost() {
        let path = Path::new(OsStr::from_bytes(b"/a\xffb/\xc3\xa9"));
        assert_eq!(escaped(path), "/a\\xFFb/é");
        assert_eq!(in_url(path.file_name().unwrap()), "%C3%A9");
        let name = OsStr::from_bytes(b"a b\xff");
        assert_eq!(in_url(name), "a%20b%FF");
        assert_eq!(from_url("a%20b%FF"), name);
        assert_eq!(utf8(Path::new("/a b")), Ok("/a b"));
        assert!(utf8(path).unwrap_err().starts_with("'/a\\xFFb/é' is not UTF-8"));
    }
}
