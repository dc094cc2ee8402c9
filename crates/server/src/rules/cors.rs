//! Cross-origin requests (the CORS protocol of the Fetch standard): which pages of other sites may read what is served.

use std::str::FromStr;

use drover_http1::Request;

/// An origin whose pages may read responses: `https://app.example.org`, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Pages of every site.
    Any,
    /// Pages of this site, as browsers write it: scheme, host, and the port unless it is the scheme's own.
    One(String),
}

impl FromStr for AllowedOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowedOrigin, String> {
        if text == "*" {
            return Ok(AllowedOrigin::Any);
        }
        let origin = text.to_ascii_lowercase();
        let is_origin = origin.split_once("://").is_some_and(|(scheme, host)| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#@*,\"<>\\".contains(&byte);
            !scheme.is_empty() && !host.is_empty() && host.bytes().all(is_plain)
        });
        let port = if origin.starts_with("https:") { ":443" } else { ":80" };
        if !is_origin || origin.ends_with(port) {
            return Err(format!(
                "{text} is no origin: write * or SCHEME://HOST, with :PORT unless it is the scheme's own, and no slash at \
                 the end, as in https://app.example.org"
            ));
        }
        Ok(AllowedOrigin::One(origin))
    }
}

/// Fields that scripts of other sites may read too: without them a script cannot resume a download or compare versions. Browsers
/// show the rest of what matters (`Content-Type`, `Last-Modified`, …) anyway.
const EXPOSED: &str = "Access-Control-Expose-Headers: Accept-Ranges, Content-Encoding, Content-Length, Content-Range, ETag\r\n";

/// What responses say of the origins that may read them, laid out as lines of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// The lines that every response has.
    always: Vec<u8>,
    /// For each origin: those, and what a response to a request of this origin has in addition.
    origins: Vec<(String, Vec<u8>)>,
}

/// What a response has of [`Cors`].
#[derive(Clone, Copy, Default)]
pub(crate) struct CorsLines<'c> {
    /// All lines.
    pub(crate) all: &'c [u8],
    /// Those of them that other responses do not have.
    pub(crate) own: &'c [u8],
}

impl Cors {
    /// The lines for these origins; `None`: there are none.
    #[must_use]
    pub fn new(allowed: &[AllowedOrigin]) -> Option<Cors> {
        if allowed.is_empty() {
            return None;
        }
        if allowed.contains(&AllowedOrigin::Any) {
            let always = format!("Access-Control-Allow-Origin: *\r\n{EXPOSED}").into_bytes();
            return Some(Cors { always, origins: Vec::new() });
        }
        // Caches must not give the response to one origin to another.
        let always = b"Vary: Origin\r\n".to_vec();
        let lines = |allowed: &AllowedOrigin| match allowed {
            AllowedOrigin::Any => None,
            AllowedOrigin::One(origin) => {
                let own = format!("Access-Control-Allow-Origin: {origin}\r\n{EXPOSED}");
                Some((origin.clone(), [&always, own.as_bytes()].concat()))
            }
        };
        let origins = allowed.iter().filter_map(lines).collect();
        Some(Cors { always, origins })
    }

    /// The lines that every response has.
    pub(crate) fn always(&self) -> &[u8] {
        &self.always
    }

    /// The lines of the response to a request.
    pub(crate) fn lines_for(&self, request: &Request<'_>) -> CorsLines<'_> {
        let all = match self.origins.is_empty() {
            true => &self.always,
            false => self.lines_of(request.field("Origin")).unwrap_or(&self.always),
        };
        CorsLines { all, own: &all[self.always.len()..] }
    }

    fn lines_of(&self, origin: Option<&[u8]>) -> Option<&Vec<u8>> {
        let origin = origin?;
        let lines = self.origins.iter().find(|(allowed, _)| allowed.as_bytes() == origin);
        lines.map(|(_, lines)| lines)
    }

    /// Whether a request asks what a page may do, and the page's origin may.
    pub(crate) fn is_granted_preflight(&self, request: &Request<'_>) -> bool {
        let origin = request.field("Origin");
        let is_allowed = self.origins.is_empty() || self.lines_of(origin).is_some();
        origin.is_some() && is_allowed && request.field("Access-Control-Request-Method").is_some()
    }
}

#[cfg(test)]
mod tests {
    use drover_http1::{HeadLimits, request};

    use super::*;

    fn lines(allowed: &[&str], fields: &str) -> (String, String, bool) {
        let allowed: Vec<_> = allowed.iter().map(|it| it.parse().unwrap()).collect();
        let cors = Cors::new(&allowed).unwrap();
        let input = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let request = request::parse(input.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let CorsLines { all, own } = cors.lines_for(&request);
        let text = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
        (text(all), text(own), cors.is_granted_preflight(&request))
    }

    #[test]
    fn an_origin_that_may_read_is_repeated_and_no_other() {
        let two = ["https://a.example", "http://b.example:8080"];
        let vary = "Vary: Origin\r\n";
        let b = &format!("Access-Control-Allow-Origin: http://b.example:8080\r\n{EXPOSED}");
        let is = |fields: &str, own: &str| {
            assert_eq!(
                lines(&two, fields),
                (format!("{vary}{own}"), own.into(), false),
                "{fields}"
            );
        };
        is("Origin: http://b.example:8080\r\n", b);
        is("origin: http://b.example:8080\r\n", b);
        is("", "");
        is("Origin: http://b.example\r\n", "");
        is("Origin: null\r\n", "");
        is("Origin: http://b.example:80801\r\n", "");
        let any = format!("Access-Control-Allow-Origin: *\r\n{EXPOSED}");
        assert_eq!(lines(&["*", "http://a"], "Origin: http://c\r\n"), (any, "".into(), false));
        assert_eq!(Cors::new(&[]), None);
    }

    #[test]
    fn a_preflight_is_granted_to_who_may_read() {
        let asks = "Access-Control-Request-Method: GET\r\n";
        let is_granted = |allowed: &str, origin: &str| {
            lines(&[allowed], &format!("Origin: {origin}\r\n{asks}")).2
        };
        assert!(is_granted("*", "http://a"));
        assert!(is_granted("http://a", "http://a"));
        assert!(!is_granted("http://a", "http://b"));
        assert!(!lines(&["*"], asks).2);
        assert!(!lines(&["*"], "Origin: http://a\r\n").2);
    }

    #[test]
    fn what_is_no_origin_is_told_with_what_would_be_one() {
        for text in [
            "example.org",
            "https://a/",
            "https://",
            "null",
            "https://*.a",
            "https://a:443",
            "http://a b",
        ] {
            let error = text.parse::<AllowedOrigin>().unwrap_err();
            assert!(error.contains("https://app.example.org"), "{error}");
        }
        let upper = "HTTPS://App.Example.ORG".parse();
        assert_eq!(upper, Ok(AllowedOrigin::One("https://app.example.org".into())));
    }
}
