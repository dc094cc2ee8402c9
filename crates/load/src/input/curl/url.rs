//! A URL as curl takes it: what it expands, and how it writes the path.

use std::net::Ipv4Addr;

use crate::input::urls;
use crate::plan::target::{Url, has_scheme};

/// How a URL is read.
pub(super) struct UrlOptions<'a> {
    /// Whether `[]{}` stand for themselves (`--globoff`).
    pub(super) globoff: bool,
    /// Whether `/../` and `/./` remain (`--path-as-is`).
    pub(super) path_as_is: bool,
    /// What `--get` adds to the query.
    pub(super) query: Option<&'a str>,
    /// What takes the place of the URL's server.
    pub(super) server: Option<&'a Url>,
}

/// Reads `text` as curl does.
///
/// # Errors
/// One line, for what curl refuses, would make several requests of, or reads differently from version to version.
pub(super) fn read(text: &str, options: &UrlOptions) -> Result<Url, String> {
    let mut text = match options.globoff {
        true => text.to_string(),
        false => without_globs(text)?,
    };
    // For curl, a URL without a scheme is an http URL, unless its host begins with the name of another one.
    if !has_scheme(&text) && !text.starts_with('/') {
        let others = ["ftp.", "dict.", "ldap.", "imap.", "smtp.", "pop3."];
        let begins = |other: &&&str| {
            text.get(..other.len()).is_some_and(|it| it.eq_ignore_ascii_case(other))
        };
        if let Some(other) = others.iter().find(begins) {
            return Err(format!(
                "'{text}' is for curl no http URL, because of its '{other}': write http://"
            ));
        }
        let server = text.split(['/', '?', '#']).next().unwrap_or_default();
        if server.ends_with(':') {
            return Err(format!("'{text}' has neither a scheme nor a port: write http://"));
        }
        text.insert_str(0, "http://");
    }
    if let Some(query) = options.query {
        text.truncate(text.find('#').unwrap_or(text.len()));
        let mark = match text.split_once('?') {
            None if query.is_empty() => "",
            None => "?",
            Some((_, "")) => "",
            Some(_) => "&",
        };
        text = format!("{text}{mark}{query}");
    }
    let mut url = urls::at(&text, options.server)?;
    if options.server.is_none() && is_other_ipv4(&url) {
        return Err(format!("'{text}': write the IPv4 address as four decimal numbers"));
    }
    url.path = path(&url.path, options)?;
    Ok(url)
}

/// `text` with `\[`, `\]`, `\{` and `\}` as the characters that they protect from curl's globbing.
fn without_globs(text: &str) -> Result<String, String> {
    let mut literal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let protects = letter == '\\' && rest[1..].starts_with(['[', ']', '{', '}']);
        let taken = match letter {
            '\\' if protects => {
                literal.push_str(&rest[1..2]);
                2
            }
            '[' if literal_brackets(rest).is_some() => {
                let brackets = literal_brackets(rest).unwrap_or_default();
                literal.push_str(brackets);
                brackets.len()
            }
            '[' | ']' | '{' | '}' => {
                return Err(format!(
                    "'{letter}' in '{text}' is for curl a part of several URLs: write '\\{letter}', or add --globoff"
                ));
            }
            _ => {
                literal.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    Ok(literal)
}

/// Brackets that curl does not expand: around an IPv6 address, and around nothing.
fn literal_brackets(text: &str) -> Option<&str> {
    let inside = text[1..].split_once(']')?.0;
    let address = inside.split('%').next().unwrap_or_default();
    let is_literal = inside.is_empty() || address.parse::<std::net::Ipv6Addr>().is_ok();
    is_literal.then(|| &text[..inside.len() + 2])
}

/// Whether a host is an IPv4 address in one of the forms that curl writes anew: `127.1`, `0x7f000001`.
fn is_other_ipv4(url: &Url) -> bool {
    let host = url.host().trim_end_matches('.');
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = |text: &str| {
        let hex = text.strip_prefix("0x").or(text.strip_prefix("0X"));
        match hex {
            Some(digits) => digits.bytes().all(|it| it.is_ascii_hexdigit()),
            None => !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()),
        }
    };
    is_number(last) && host.parse::<Ipv4Addr>().is_err()
}

/// Path and query, without `.` and `..` in the path (RFC 3986 section 5.2.4).
fn path(path: &str, options: &UrlOptions) -> Result<String, String> {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let segments = || path.split('/').skip(1);
    if options.path_as_is {
        if options.query.is_some() && segments().any(is_dots) {
            // Most versions of curl resolve them, because --get has them write the URL anew.
            return Err(
                "--get and --path-as-is contradict each other for a path with '..'".to_string()
            );
        }
        return Ok(format!("{path}{query}"));
    }
    if segments().any(|segment| {
        segment.contains('%') && is_dots(&segment.to_ascii_lowercase().replace("%2e", "."))
    }) {
        return Err(format!(
            "'{path}': versions of curl differ in what '%2e' between slashes is: add --path-as-is to send it"
        ));
    }
    let mut kept: Vec<&str> = Vec::new();
    let count = segments().count();
    for (number, segment) in (1..).zip(segments()) {
        let is_last = number == count;
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    Ok(format!("/{}{query}", kept.join("/")))
}

fn is_dots(segment: &str) -> bool {
    segment == "." || segment == ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: UrlOptions =
        UrlOptions { globoff: false, path_as_is: false, query: None, server: None };

    #[track_caller]
    fn sent(text: &str, options: &UrlOptions) -> String {
        read(text, options).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    #[test]
    fn urls_are_written_as_curl_writes_them() {
        for (text, expected) in [
            ("a", "http://a/"),
            ("http://a/../b/./c/../d?x=/../y#f", "http://a/b/d?x=/../y"),
            ("http://a/b/..", "http://a/"),
            ("http://a/b/.", "http://a/b/"),
            ("http://a//b/../../c", "http://a/c"),
            ("http://a/.../..b/c..", "http://a/.../..b/c.."),
            ("http://a/\\[b\\]?\\{c\\}&d[]=\\x", "http://a/[b]?{c}&d[]=\\x"),
            ("http://[::1]:81/[]", "http://[::1]:81/[]"),
            ("https://a:443/b/../c", "https://a/c"),
        ] {
            assert_eq!(sent(text, &PLAIN), expected);
        }
        let as_is = UrlOptions { globoff: true, path_as_is: true, ..PLAIN };
        assert_eq!(sent("http://a/../%2e./[b]\\[", &as_is), "http://a/../%2e./[b]\\[");
        for (text, query, expected) in [
            ("http://a", "", "/"),
            ("http://a/?", "b", "/?b"),
            ("a?b#c", "d=e", "/?b&d=e"),
            ("a/b", "c", "/b?c"),
        ] {
            let options = UrlOptions { query: Some(query), ..PLAIN };
            assert_eq!(sent(text, &options), format!("http://a{expected}"));
        }
    }

    #[test]
    fn what_curl_reads_otherwise_is_refused() {
        for (text, reason) in [
            ("http://a/[1-3]", "'\\['"),
            ("http://a/%2E./b", "--path-as-is"),
            ("http://a/{b,c}", "'\\{'"),
            ("http://a/b]", "'\\]'"),
            ("ftp.example/", "write http://"),
            ("FTP.example/", "write http://"),
            ("a:/b", "write http://"),
            ("a:///b", "write http://"),
            ("u@a://b", "write http://"),
            ("http://127.1/", "four decimal numbers"),
            ("http://0x7f.1/", "four decimal numbers"),
            ("http://a/b c", "percent-encoded"),
            ("/a", "--target"),
            ("file:///a", "no http:// or https:// URL"),
        ] {
            let error = read(text, &PLAIN).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.contains(reason) && !error.contains('\n'), "{text}: {error}");
        }
        let both = UrlOptions { path_as_is: true, query: Some("a"), ..PLAIN };
        assert!(read("http://a/../b", &both).unwrap_err().contains("--get"));
    }

    proptest::proptest! {
        #[test]
        fn paths_without_dots_remain_and_no_dots_remain(text in "[./a%2eE?]{0,20}") {
            if let Ok(path) = path(&format!("/{text}"), &PLAIN) {
                let before = path.split('?').next().unwrap();
                proptest::prop_assert!(before.starts_with('/') && !before.split('/').any(is_dots));
                proptest::prop_assert_eq!(&super::path(&path, &PLAIN).unwrap(), &path);
            }
        }
    }
}
