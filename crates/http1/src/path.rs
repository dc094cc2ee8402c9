//! From a request's path to a relative file name that stays below the root.
//!
//! This is the first of two checks. The kernel makes the second one: it resolves the name beneath
//! the root's descriptor (openat2(2), `RESOLVE_BENEATH`), which also stops symbolic links that lead
//! outside.
//!
//! The order of steps matters. The query goes first, then the path is cut at its slashes, then
//! each segment is decoded, once, and only then compared with `.` and `..`: an escaped dot is a
//! dot, and an escaped percent sign never starts a second escape. Three decisions:
//!
//! - An escaped slash is a 404. It is data of one segment (RFC 3986 section 2.2), and no file
//!   name on Unix has a slash in it.
//! - `..` at the root stays at the root (RFC 3986 section 5.2.4), as browsers do.
//! - Empty segments vanish, so the name is never absolute, and a redirect made from it never
//!   begins with two slashes and so never points to another host.
//!
//! Other bytes, UTF-8 or not, stand for themselves, as they do for the kernel.

use crate::status::{Refusal, Status};

/// What a request's path says besides the file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The path ended in a slash or a dot segment: it can only mean a directory.
    pub directory: bool,
    /// A segment of the name begins with a dot, other than a first one that is [`WELL_KNOWN`].
    pub hidden: bool,
    /// What follows the first question mark, undecoded.
    pub query: Option<&'a [u8]>,
}

/// The directory at the root whose contents are meant for everybody (RFC 8615).
pub const WELL_KNOWN: &[u8] = b".well-known";

/// Resolves `path`, the path and query of a request, and leaves the name relative to the root in
/// `name`: segments joined by single slashes, none at either end, empty for the root itself. What
/// `name` held before is lost; its memory is used again.
///
/// # Errors
///
/// 400 for a NUL, a fragment or an escape that is not two hexadecimal digits, 404 for an escaped
/// slash. The contents of `name` are then unspecified.
pub fn resolve<'a>(path: &'a [u8], name: &mut Vec<u8>) -> Result<Resolved<'a>, Refusal> {
    name.clear();
    if path.contains(&b'#') {
        return Err(Refusal::bad("a fragment in the target"));
    }
    let (path, query) = match path.iter().position(|byte| *byte == b'?') {
        Some(mark) => (&path[..mark], Some(&path[mark + 1..])),
        None => (path, None),
    };
    let mut directory = true;
    for segment in path.split(|byte| *byte == b'/') {
        directory = push_segment(segment, name)?;
    }
    Ok(Resolved { directory, hidden: is_hidden(name), query })
}

/// Whether a segment of `name` begins with a dot. `name` is decoded and has no dot segments, so a
/// hidden file has one spelling only.
fn is_hidden(name: &[u8]) -> bool {
    let mut segments = name.split(|byte| *byte == b'/');
    let first = segments.next().filter(|first| *first != WELL_KNOWN);
    first.into_iter().chain(segments).any(|segment| segment.starts_with(b"."))
}

/// Adds one segment to `name`; true if the segment can only stand for a directory.
fn push_segment(segment: &[u8], name: &mut Vec<u8>) -> Result<bool, Refusal> {
    let parent = name.len();
    if parent > 0 {
        name.push(b'/');
    }
    let start = name.len();
    decode(segment, name)?;
    match &name[start..] {
        decoded if decoded.contains(&0) => return Err(Refusal::bad("a NUL in the path")),
        b"" | b"." => name.truncate(parent),
        b".." => {
            let grandparent = name[..parent].iter().rposition(|byte| *byte == b'/');
            name.truncate(grandparent.unwrap_or(0));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn decode(segment: &[u8], name: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut rest = segment;
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        name.extend_from_slice(&rest[..percent]);
        let byte = escaped_byte(&rest[percent + 1..]).ok_or(Refusal::bad("invalid escape"))?;
        if byte == b'/' {
            return Err(Refusal::new(Status::NotFound, "an escaped slash"));
        }
        name.push(byte);
        rest = &rest[percent + 3..];
    }
    name.extend_from_slice(rest);
    Ok(())
}

fn escaped_byte(after_percent: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let value = digit(*after_percent.first()?)? * 16 + digit(*after_percent.get(1)?)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(path: &str) -> Result<(String, bool), u16> {
        let mut name = b"left from before".to_vec();
        match resolve(path.as_bytes(), &mut name) {
            Ok(resolved) => Ok((String::from_utf8(name).unwrap(), resolved.directory)),
            Err(refusal) => Err(refusal.status.code()),
        }
    }

    #[track_caller]
    fn gives(path: &str, name: &str, directory: bool) {
        assert_eq!(resolved(path), Ok((name.to_string(), directory)), "{path}");
    }

    #[test]
    fn plain_paths_lose_their_leading_slash() {
        gives("/", "", true);
        gives("", "", true);
        gives("/a", "a", false);
        gives("/a/b.html", "a/b.html", false);
        gives("/a/", "a", true);
        gives("/...", "...", false);
        gives("/.hidden", ".hidden", false);
        gives("/a\\..\\b", "a\\..\\b", false);
    }

    #[test]
    fn dot_segments_never_climb_above_the_root() {
        for path in [
            "/../etc",
            "/..//../etc",
            "/%2e%2e/etc",
            "/.%2E/%2e./etc",
            "/a/../../etc",
            "/./../etc",
            "../etc",
            "/a/b/../../../../../etc",
        ] {
            gives(path, "etc", false);
        }
        gives("/a/b/..", "a", true);
        gives("/a/b/../", "a", true);
        gives("/a/.", "a", true);
        gives("/a/./b/../c", "a/c", false);
        gives("/..", "", true);
    }

    #[test]
    fn empty_segments_vanish() {
        gives("//a///b//", "a/b", true);
        gives("//evil.example/", "evil.example", true);
    }

    #[test]
    fn escapes_are_decoded_once() {
        gives("/a%20b", "a b", false);
        gives("/%41%4a%4A", "AJJ", false);
        gives("/%252e%252e/x", "%2e%2e/x", false);
        gives("/a%3Fb%23c", "a?b#c", false);
        gives("/%0a", "\n", false);
    }

    #[test]
    fn bytes_that_are_not_utf8_are_kept() {
        let mut name = Vec::new();
        resolve(b"/\xff%fe", &mut name).unwrap();
        assert_eq!(name, b"\xff\xfe");
    }

    #[test]
    fn what_cannot_be_a_file_name_is_refused() {
        for path in ["/%", "/%2", "/%zz", "/%+1", "/a%", "/%00", "/a%00.html", "/a\0", "/a#b"] {
            assert_eq!(resolved(path), Err(400), "{path}");
        }
        assert_eq!(resolved("/..%2fetc"), Err(404));
        assert_eq!(resolved("/a%2Fb"), Err(404));
    }

    #[test]
    fn names_that_begin_with_a_dot_are_hidden_in_any_spelling_and_depth() {
        let hidden = |path: &str| resolve(path.as_bytes(), &mut Vec::new()).unwrap().hidden;
        for path in [
            "/.git",
            "/%2egit/",
            "/%2Egit",
            "/a/.b",
            "//.a",
            "/.a/b",
            "/a/../.b",
            "/...",
            "/..a",
            "/.well-known/.a",
            "/a/.well-known",
            "/.Well-known",
            "/.well-known2",
            "/./.a",
        ] {
            assert!(hidden(path), "{path}");
        }
        for path in [
            "/",
            "/a",
            "/a.b",
            "/a./b",
            "/.",
            "/a/.",
            "/..",
            "/.git/../a",
            "/a?.b",
            "/a%2e",
            "/.well-known",
            "/.well-known/a",
            "//%2ewell-known/",
            "/a/../.well-known/b.c",
        ] {
            assert!(!hidden(path), "{path}");
        }
    }

    #[test]
    fn the_query_is_split_off_undecoded() {
        let mut name = Vec::new();
        let with = resolve(b"/a/?b=%zz/../?c", &mut name).unwrap();
        assert_eq!(with.query, Some(b"b=%zz/../?c".as_slice()));
        assert!(with.directory);
        assert_eq!(name, b"a");
        assert_eq!(resolve(b"/a?", &mut name).unwrap().query, Some(b"".as_slice()));
        assert_eq!(resolve(b"/a", &mut name).unwrap().query, None);
    }
}
