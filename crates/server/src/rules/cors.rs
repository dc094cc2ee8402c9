//! Cross-origin requests (the CORS protocol of the Fetch standard): which pages of other sites may read what is served.

use std::str::FromStr;

use drover_http1::{FieldList, Request};

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
const EXPOSED: &[u8] = b"Accept-Ranges, Content-Encoding, Content-Length, Content-Range, ETag";

/// What responses say of the origins that may read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// The fields that every response has.
    always: FieldList,
    /// For each origin: what a response to a request of this origin has in addition.
    origins: Vec<(String, FieldList)>,
}

impl Cors {
    /// The fields for these origins; `None`: there are none.
    #[must_use]
    pub fn new(allowed: &[AllowedOrigin]) -> Option<Cors> {
        if allowed.is_empty() {
            return None;
        }
        if allowed.contains(&AllowedOrigin::Any) {
            return Some(Cors { always: fields_for("*"), origins: Vec::new() });
        }
        // Caches must not give the response to one origin to another.
        let always = FieldList::from_iter([("Vary", &b"Origin"[..])]);
        let own = |allowed: &AllowedOrigin| match allowed {
            AllowedOrigin::Any => None,
            AllowedOrigin::One(origin) => Some((origin.clone(), fields_for(origin))),
        };
        let origins = allowed.iter().filter_map(own).collect();
        Some(Cors { always, origins })
    }

    /// The fields that every response has.
    pub(crate) fn always(&self) -> &FieldList {
        &self.always
    }

    /// Adds all that the response to a request has.
    pub(crate) fn tell(&self, request: &Request<'_>, fields: &mut FieldList) {
        fields.push_all(&self.always);
        self.tell_own(request, fields);
    }

    /// Adds what the response to a request has and others do not have.
    pub(crate) fn tell_own(&self, request: &Request<'_>, fields: &mut FieldList) {
        if let Some(own) = self.own_fields(request) {
            fields.push_all(own);
        }
    }

    /// What the response to a request has and others do not have.
    pub(crate) fn own_fields(&self, request: &Request<'_>) -> Option<&FieldList> {
        if self.origins.is_empty() { None } else { self.fields_of(request.field("Origin")) }
    }

    fn fields_of(&self, origin: Option<&[u8]>) -> Option<&FieldList> {
        let origin = origin?;
        let fields = self.origins.iter().find(|(allowed, _)| allowed.as_bytes() == origin);
        fields.map(|(_, fields)| fields)
    }

    /// Whether a request asks what a page may do, and the page's origin may.
    pub(crate) fn is_granted_preflight(&self, request: &Request<'_>) -> bool {
        let origin = request.field("Origin");
        let is_allowed = self.origins.is_empty() || self.fields_of(origin).is_some();
        origin.is_some() && is_allowed && request.field("Access-Control-Request-Method").is_some()
    }
}

/// What allows an origin to read a response.
fn fields_for(origin: &str) -> FieldList {
    FieldList::from_iter([
        ("Access-Control-Allow-Origin", origin.as_bytes()),
        ("Access-Control-Expose-Headers", EXPOSED),
    ])
}

#[cfg(test)]
mod tests {
    use drover_http1::{HeadLimits, request};

    use super::*;
    use crate::rules::headers::tests::texts_of;

    /// What every response says, what the response to a request with these fields says in addition, and whether that is a
    /// preflight that is granted.
    fn told(allowed: &[&str], fields: &str) -> (String, String, bool) {
        let allowed: Vec<_> = allowed.iter().map(|it| it.parse().unwrap()).collect();
        let cors = Cors::new(&allowed).unwrap();
        let input = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let request = request::parse(input.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
        let own = cors.own_fields(&request).map(texts_of).unwrap_or_default();
        (texts_of(cors.always()).concat(), own.concat(), cors.is_granted_preflight(&request))
    }

    #[test]
    fn an_origin_that_may_read_is_repeated_and_no_other() {
        let two = ["https://a.example", "http://b.example:8080"];
        let allows = |origin: &str| texts_of(&fields_for(origin)).concat();
        let b = &allows("http://b.example:8080");
        assert!(b.starts_with("Access-Control-Allow-Origin: http://b.example:8080\n"));
        let is = |fields: &str, own: &str| {
            assert_eq!(
                told(&two, fields),
                ("Vary: Origin\n".into(), own.into(), false),
                "{fields}"
            );
        };
        is("Origin: http://b.example:8080\r\n", b);
        is("origin: http://b.example:8080\r\n", b);
        is("", "");
        is("Origin: http://b.example\r\n", "");
        is("Origin: null\r\n", "");
        is("Origin: http://b.example:80801\r\n", "");
        let any = (allows("*"), String::new(), false);
        assert_eq!(told(&["*", "http://a"], "Origin: http://c\r\n"), any);
        assert_eq!(Cors::new(&[]), None);
    }

    #[test]
    fn a_preflight_is_granted_to_who_may_read() {
        let asks = "Access-Control-Request-Method: GET\r\n";
        let is_granted = |allowed: &str, origin: &str| {
            told(&[allowed], &format!("Origin: {origin}\r\n{asks}")).2
        };
        assert!(is_granted("*", "http://a"));
        assert!(is_granted("http://a", "http://a"));
        assert!(!is_granted("http://a", "http://b"));
        assert!(!told(&["*"], asks).2);
        assert!(!told(&["*"], "Origin: http://a\r\n").2);
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
