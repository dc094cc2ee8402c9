//! Paths that have moved.

use std::str::FromStr;

use drover_http1::Status;
use drover_http1::response::push_path;

/// A path that has moved: `/old /new`, `/blog/* https://blog.example.org/* 302`.
///
/// The first word is a path, decoded, or the beginning of paths that ends in `/*`. The second word is where clients
/// are sent: a path, or a URL; a `*` at its end stands for the rest of the path. A third word is the status: 301 (which
/// is taken without it), 302, 307 or 308.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    from: String,
    to: String,
    status: Status,
}

impl FromStr for Redirect {
    type Err = String;

    fn from_str(text: &str) -> Result<Redirect, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (from, to, status) = match words[..] {
            [from, to] => (from, to, Status::MovedPermanently),
            [from, to, "301"] => (from, to, Status::MovedPermanently),
            [from, to, "302"] => (from, to, Status::Found),
            [from, to, "307"] => (from, to, Status::TemporaryRedirect),
            [from, to, "308"] => (from, to, Status::PermanentRedirect),
            [_, _, status] => return Err(format!("{status} is none of 301, 302, 307, 308")),
            _ => return Err("write FROM TO, or FROM TO STATUS, for example '/old /new 302'".into()),
        };
        if !from.starts_with('/') {
            return Err(format!("{from} is no path: a path begins with a slash"));
        }
        if from.strip_suffix("/*").unwrap_or(from).contains('*') {
            return Err(format!("{from}: a * stands at the end, behind a slash, or nowhere"));
        }
        // To browsers a backslash is a slash, two slashes at the beginning of a path begin a host, and so does what follows any
        // number of them in a URL (the URL standard, section 4.4).
        let is_path = to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\");
        let host = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://"));
        let has_host = |it: &str| !it.is_empty() && !it.starts_with(['/', '\\', '?', '#']);
        if !(is_path || host.is_some_and(has_host)) {
            return Err(format!(
                "{to} is neither a path nor an http:// or https:// URL with a host"
            ));
        }
        // Behind https://example.org a client could write .evil.example, or @evil.example.
        let authority = to.split_once("://").map_or("/", |(_, rest)| rest);
        if to.ends_with('*') && !authority.contains(['/', '?', '#']) {
            return Err(format!(
                "{to}: the * would be part of the host, and clients could choose another; write a slash before it"
            ));
        }
        if to.ends_with('*') && !from.ends_with("/*") {
            return Err(format!("{to}: there is no rest of a path to put in the place of *"));
        }
        if !to.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{to} has bytes that may not stand in a URL: percent-encode them"));
        }
        Ok(Redirect { from: from.into(), to: to.into(), status })
    }
}

impl Redirect {
    /// Where a client is sent that asks for `path`, decoded, with a slash at the front; `None`: this path has not
    /// moved. The query is kept unless the new place has one of its own; it stands before a fragment (RFC 3986 section 3).
    pub(crate) fn location(&self, path: &[u8], query: Option<&[u8]>) -> Option<(Status, Vec<u8>)> {
        let rest = match self.from.strip_suffix('*') {
            Some(beginning) => path.strip_prefix(beginning.as_bytes())?,
            None => (path == self.from.as_bytes()).then_some(&[][..])?,
        };
        let mut location = Vec::new();
        match self.to.strip_suffix('*') {
            Some(to) => {
                // A second slash at the beginning would make the rest a host (RFC 3986 section 4.2), and to browsers a
                // backslash is a slash.
                let host = rest.iter().take_while(|byte| b"/\\".contains(byte)).count();
                let rest = if to == "/" { &rest[host..] } else { rest };
                location.extend_from_slice(to.as_bytes());
                push_path(&mut location, rest);
            }
            None => location.extend_from_slice(self.to.as_bytes()),
        }
        let place = self.to.split('#').next().unwrap_or_default();
        if let Some(query) = query.filter(|_| !place.contains('?')) {
            let end = if place.len() < self.to.len() { place.len() } else { location.len() };
            let query = query.iter().copied().filter(u8::is_ascii_graphic);
            drop(location.splice(end..end, std::iter::once(b'?').chain(query)));
        }
        Some((self.status, location))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(rule: &str, path: &str, query: Option<&str>) -> Option<String> {
        let rule: Redirect = rule.parse().unwrap();
        let (_, location) = rule.location(path.as_bytes(), query.map(str::as_bytes))?;
        Some(String::from_utf8(location).unwrap())
    }

    #[test]
    fn no_client_chooses_the_host() {
        for rule in ["/x/* https://example.org*", "/x/* http://*", "/* https://a.example:8*"] {
            let error = rule.parse::<Redirect>().unwrap_err();
            assert!(error.contains("part of the host"), "{error}");
        }
        for path in ["/x//evil.example/a", "/x/\\evil.example/a", "/x/\\//evil.example/a"] {
            assert_eq!(location("/x/* /*", path, None).as_deref(), Some("/evil.example/a"));
        }
        // To browsers each of these begins with the host that follows.
        for to in [
            "/\\*",
            "/\\a",
            "https:///*",
            "https://\\*",
            "http:////*",
            "https://?*",
            "http://#*",
            "http://",
        ] {
            let error = format!("/x/* {to}").parse::<Redirect>().unwrap_err();
            assert!(error.contains("neither a path nor"), "{to}: {error}");
        }
        let beneath = location("/x/* https://example.org/*", "/x//evil.example", None);
        assert_eq!(beneath.as_deref(), Some("https://example.org//evil.example"));
    }

    #[test]
    fn a_path_or_all_beneath_it_moves() {
        let is = |rule, path, expected: Option<&str>| {
            assert_eq!(location(rule, path, None).as_deref(), expected, "{rule} {path}");
        };
        is("/old /new", "/old", Some("/new"));
        is("/old /new", "/old/", None);
        is("/old /new", "/older", None);
        is("/blog/* https://b.org/* 302", "/blog/a b/", Some("https://b.org/a%20b/"));
        is("/blog/* https://b.org/* 302", "/blog/", Some("https://b.org/"));
        is("/blog/* https://b.org/* 302", "/blog", None);
        is("/blog/* /gone", "/blog/any", Some("/gone"));
        is("/* /new/*", "/x", Some("/new/x"));
    }

    #[test]
    fn the_query_stays_unless_there_is_another() {
        assert_eq!(location("/a /b", "/a", Some("x=1")).as_deref(), Some("/b?x=1"));
        assert_eq!(location("/a /b?y=2", "/a", Some("x=1")).as_deref(), Some("/b?y=2"));
        assert_eq!(location("/a /b", "/a", Some("x\r\ny")).as_deref(), Some("/b?xy"));
        // A query stands before a fragment, and a question mark in a fragment begins none.
        assert_eq!(location("/a /b#c", "/a", Some("x=1")).as_deref(), Some("/b?x=1#c"));
        assert_eq!(location("/a /b#c?d", "/a", Some("x=1")).as_deref(), Some("/b?x=1#c?d"));
        assert_eq!(location("/a/* /b#*", "/a/c#d", Some("x")).as_deref(), Some("/b?x#c%23d"));
    }

    #[test]
    fn what_is_no_redirect_is_told_with_what_would_be_one() {
        for (rule, what) in [
            ("/a", "FROM TO"),
            ("/a /b 200", "301, 302"),
            ("a /b", "begins with a slash"),
            ("/a*b /b", "at the end"),
            ("/a*  /b", "behind a slash"),
            ("/a //evil.org", "neither a path"),
            ("/a javascript:alert(1)", "neither a path"),
            ("/a /b/*", "no rest"),
            ("/a /\u{e9}", "percent-encode"),
        ] {
            let error = rule.parse::<Redirect>().unwrap_err();
            assert!(error.contains(what), "{rule:?}: {error}");
        }
    }
}
