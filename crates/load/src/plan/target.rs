//! URLs: where requests go and what they ask for.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idna::AsciiDenyList;

/// An `http://` or `https://` URL, as far as a load generator needs it. Without a scheme it is one of HTTP:
/// `127.0.0.1:8080/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    /// Host, and port unless it is the scheme's own: what goes into the Host field.
    pub authority: String,
    /// The host as it is looked up: an IPv6 address is without brackets, and has its zone.
    host: String,
    port: u16,
    /// Path and query: what goes into the request line.
    pub path: String,
    /// User and password as Basic authentication sends them (RFC 7617).
    basic: Option<String>,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    const ALL: [Scheme; 2] = [Scheme::Http, Scheme::Https];

    fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port of a URL that names none.
    fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

const EXAMPLE: &str = "write it as http://127.0.0.1:8080/path";

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let (scheme, rest) = split_scheme(text)?;
        Url::behind_scheme(text, scheme, rest)
    }
}

/// Splits the scheme off, which is case-insensitive (RFC 3986 section 3.1). A URL without one is an http URL,
/// as it is for browsers, curl and other generators.
fn split_scheme(text: &str) -> Result<(Scheme, &str), String> {
    let no_http = || format!("'{text}' is no http:// or https:// URL: {EXAMPLE}");
    let Some((scheme, rest)) = text.split_once(':') else { return Ok((Scheme::Http, text)) };
    let known = Scheme::ALL.into_iter().find(|known| scheme.eq_ignore_ascii_case(known.name()));
    match (known, rest.strip_prefix("//")) {
        (Some(scheme), Some(rest)) => Ok((scheme, rest)),
        (Some(_), None) => Err(no_http()),
        (None, Some(_)) if !scheme.contains(['/', '?', '#', '@']) => Err(no_http()),
        _ => Ok((Scheme::Http, text)),
    }
}

/// Whether a URL begins with a scheme and `://`, which `a://` and `u:p@a://` do not in a URL without one.
pub(crate) fn has_scheme(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else { return false };
    ["http", "https", "ftp", "file", "ws", "wss"].iter().any(|it| scheme.eq_ignore_ascii_case(it))
}

impl Url {
    /// Reads the URL `text`, which is `rest` behind its scheme.
    fn behind_scheme(text: &str, scheme: Scheme, rest: &str) -> Result<Url, String> {
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (Some(user), server),
            None => (None, authority),
        };
        let parts = [user.unwrap_or_default(), path];
        if let Some(odd) = parts.iter().flat_map(|it| it.chars()).find(|c| !c.is_ascii_graphic()) {
            return Err(format!("{text:?}: write {odd:?} percent-encoded (RFC 3986)"));
        }
        if user.is_some_and(|user| user.contains('@')) {
            return Err(format!("'{text}': write the '@' of a user or password as %40"));
        }
        let (host, port) = split_server(server, scheme.default_port())
            .ok_or_else(|| format!("'{text}' has no valid host and port: {EXAMPLE}"))?;
        let (host, shown) = looked_up(host)
            .ok_or_else(|| format!("'{text}': '{host}' is no valid host name: {EXAMPLE}"))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Url {
            scheme,
            authority: match port == scheme.default_port() {
                true => shown,
                false => format!("{shown}:{port}"),
            },
            host,
            port,
            path: format!("{slash}{path}"),
            basic: user.map(basic),
        })
    }
}

/// Host and port of what stands behind a user. An empty port is the default one (RFC 3986 section 3.2.3).
fn split_server(server: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = match server.find(']') {
        Some(end) if server.starts_with('[') => server.split_at(end + 1),
        _ => server.split_at(server.find(':').unwrap_or(server.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        None => return None,
        Some("") => default_port,
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().ok()?
        }
        Some(_) => return None,
    };
    Some((host, port))
}

/// A host as it is looked up, and as the Host field has it. The zone of an IPv6 address (RFC 6874) means
/// something on this machine only, and is never sent. Names that are not ASCII are converted as browsers and
/// curl do (UTS 46, nontransitional).
fn looked_up(host: &str) -> Option<(String, String)> {
    if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (address, zone) = match inside.split_once('%') {
            Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
            None => (inside, None),
        };
        address.parse::<Ipv6Addr>().ok()?;
        let zone = match zone {
            None => String::new(),
            Some(zone) if !zone.is_empty() && zone.bytes().all(is_in_host) => format!("%{zone}"),
            Some(_) => return None,
        };
        return Some((format!("{address}{zone}"), format!("[{address}]")));
    }
    let name = match host.is_ascii() {
        true => Cow::Borrowed(host),
        false => idna::domain_to_ascii_cow(host.as_bytes(), AsciiDenyList::URL).ok()?,
    };
    let is_name = !name.is_empty() && name.bytes().all(is_in_host);
    is_name.then(|| (name.to_string(), name.to_string()))
}

/// Whether a host name may have `byte`, without percent-encoding.
fn is_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The credentials of `user:password`, which are percent-encoded in a URL.
fn basic(user: &str) -> String {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = [percent_decoded(name), percent_decoded(password)].join(&b':');
    STANDARD.encode(decoded)
}

/// `text` with each `%` and two hexadecimal digits as the byte they stand for. Other percent signs remain.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|it| it.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if first == b'%' => {
                decoded.push(byte);
                rest = &after[2..];
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    decoded
}

impl Url {
    /// Whether TLS is spoken with the server.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Host and port for people. Unlike the Host field it has the zone of an IPv6 address.
    pub(crate) fn server(&self) -> String {
        let Some((address, zone)) = self.host.split_once('%') else {
            return self.authority.clone();
        };
        let port =
            self.authority.split_once("]:").map_or(String::new(), |(_, port)| format!(":{port}"));
        format!("[{address}%25{zone}]{port}")
    }

    /// The host as it is looked up, with its zone.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The host as a certificate has it: a zone means something on this machine only.
    pub(crate) fn name(&self) -> &str {
        self.host.split('%').next().unwrap_or(&self.host)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// User and password, encoded for an Authorization field (`Basic …`).
    pub(crate) fn basic(&self) -> Option<&str> {
        self.basic.as_deref()
    }

    /// The same path at `server`, whose own path does not matter. The user is the one of `server`, if it has one.
    #[must_use]
    pub fn at(self, server: &Url) -> Url {
        let basic = server.basic.clone().or(self.basic);
        Url { path: self.path, basic, ..server.clone() }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.server(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parts(text: &str) -> (String, String, u16, String) {
        let url: Url = text.parse().unwrap();
        (url.authority, url.host, url.port, url.path)
    }

    #[test]
    fn urls_have_their_parts() {
        let expect = |a: &str, h: &str, port, p: &str| (a.into(), h.into(), port, p.into());
        assert_eq!(parts("http://a"), expect("a", "a", 80, "/"));
        assert_eq!(parts("http://a:8080/b?c#d"), expect("a:8080", "a", 8080, "/b?c"));
        assert_eq!(parts("http://[::1]:81?q"), expect("[::1]:81", "::1", 81, "/?q"));
        assert_eq!(parts("http://[::1]/"), expect("[::1]", "::1", 80, "/"));
        assert_eq!(parts("127.0.0.1:81/b"), expect("127.0.0.1:81", "127.0.0.1", 81, "/b"));
        assert_eq!(parts("a/b?http://c"), expect("a", "a", 80, "/b?http://c"));
        assert_eq!(parts("[::1]:81"), expect("[::1]:81", "::1", 81, "/"));
        assert_eq!(parts("HTTP://A:80/"), expect("A", "A", 80, "/"));
        assert_eq!(parts("hTTp://a:0081?q"), expect("a:81", "a", 81, "/?q"));
        assert_eq!(parts("http://a:/"), expect("a", "a", 80, "/"));
        assert_eq!(parts("http://a/#é"), expect("a", "a", 80, "/"));
        assert_eq!(parts("https://a"), expect("a", "a", 443, "/"));
        assert_eq!(parts("HTTPS://a:443/b"), expect("a", "a", 443, "/b"));
        assert_eq!(parts("https://a:80/"), expect("a:80", "a", 80, "/"));
        assert_eq!(parts("http://a:443/"), expect("a:443", "a", 443, "/"));
        assert_eq!(parts("https://[::1]:8443?q"), expect("[::1]:8443", "::1", 8443, "/?q"));
        let link_local = expect("[fe80::1]:81", "fe80::1%lo", 81, "/");
        assert_eq!(parts("http://[fe80::1%25lo]:81/"), link_local);
        assert_eq!(parts("http://[fe80::1%lo]:81/"), link_local);
        let shown = |text: &str| text.parse::<Url>().unwrap().to_string();
        assert_eq!(shown("[fe80::1%lo]:81"), "http://[fe80::1%25lo]:81/");
        assert_eq!(shown("[fe80::1%25lo]/a"), "http://[fe80::1%25lo]/a");
        assert_eq!(shown("hTTps://a:443/b"), "https://a/b");
        assert_eq!(shown("https://a:80"), "https://a:80/");
    }

    #[test]
    fn a_server_brings_its_scheme_along() {
        let of = |text: &str| text.parse::<Url>().unwrap();
        assert!(of("https://a").is_https() && !of("a:443").is_https());
        assert_eq!(of("https://a/x").at(&of("b:81")), of("http://b:81/x"));
        assert_eq!(of("http://a/x").at(&of("https://b")), of("https://b/x"));
        assert_ne!(of("https://a:81"), of("http://a:81"));
    }

    #[test]
    fn names_in_any_script_are_looked_up_as_browsers_do() {
        for (text, host) in [
            ("http://bücher.EXAMPLE/", "xn--bcher-kva.example"),
            ("http://straße.example", "xn--strae-oqa.example"),
            ("例え.jp:81/x", "xn--r8jz45g.jp"),
            ("http://a。b/", "a.b"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.host(), url.authority.starts_with(host)), (host, true), "{text}");
        }
    }

    #[test]
    fn user_and_password_are_decoded_for_basic_authentication() {
        for (text, user) in [
            ("http://me@a/", "me:"),
            ("http://me:pw@a/", "me:pw"),
            ("me:p:w@a", "me:p:w"),
            ("http://m%65:p%40%3a%zz%4@a/@b", "me:p@:%zz%4"),
            ("http://:@a/", ":"),
        ] {
            let url: Url = text.parse().unwrap();
            let sent = STANDARD.decode(url.basic().unwrap()).unwrap();
            assert_eq!((&url.host[..], sent), ("a", user.as_bytes().to_vec()), "{text}");
            assert!(!url.to_string().contains("me"), "{url}");
        }
        let of = |text: &str| text.parse::<Url>().unwrap();
        assert_eq!(of("http://u:p@a/x").at(&of("b")).basic(), of("u:p@c").basic());
        assert_eq!(of("http://u:p@a/x").at(&of("v:q@b")).basic(), of("v:q@c").basic());
    }

    proptest::proptest! {
        /// Whatever is accepted is safe in a request line and a Host field, and is read again as the same URL.
        #[test]
        fn accepted_urls_are_safe_to_send(text in "(?i:(https?://)?)\\PC{0,12}[@:/?#\\[\\]%a-z0-9é。\u{0}- ]{0,20}") {
            if let Ok(url) = text.parse::<Url>() {
                for sent in [&url.authority, &url.path] {
                    proptest::prop_assert!(!sent.is_empty() && sent.bytes().all(|b| b.is_ascii_graphic()));
                }
                let again = Url { basic: url.basic.clone(), ..url.to_string().parse().unwrap() };
                proptest::prop_assert!(again == url, "{:?} {:?}", url, again);
            }
        }
    }

    #[test]
    fn other_urls_are_refused_with_the_remedy() {
        for (text, remedy) in [
            ("ftp://a/", "http://127.0.0.1:8080/path"),
            ("ftp://a/", "no http:// or https:// URL"),
            ("https:/a/", "http://127.0.0.1:8080/path"),
            ("https://a b/", "http://127.0.0.1:8080/path"),
            ("/only/a/path", "http://127.0.0.1:8080/path"),
            ("mailto:a", "http://127.0.0.1:8080/path"),
            ("http://", "http://127.0.0.1:8080/path"),
            ("http://:80/", "http://127.0.0.1:8080/path"),
            ("http://a:b/", "http://127.0.0.1:8080/path"),
            ("http://a:99999/", "http://127.0.0.1:8080/path"),
            ("http:a/", "http://127.0.0.1:8080/path"),
            ("http:/a/", "http://127.0.0.1:8080/path"),
            ("http://a:+80/", "http://127.0.0.1:8080/path"),
            ("http://a:80x/", "http://127.0.0.1:8080/path"),
            ("http://a%41/", "http://127.0.0.1:8080/path"),
            ("http://a b/", "http://127.0.0.1:8080/path"),
            ("http://a\"b/", "http://127.0.0.1:8080/path"),
            ("http://ａ／ｂ/", "http://127.0.0.1:8080/path"),
            ("http://[1.2.3.4]/", "http://127.0.0.1:8080/path"),
            ("http://[fe80::1%]/", "http://127.0.0.1:8080/path"),
            ("http://u@v@a/", "%40"),
            ("http://u v@a/", "percent-encoded"),
            ("http://a/é", "percent-encoded"),
            ("http://[::1/", "http://127.0.0.1:8080/path"),
            ("http://a/b c", "percent-encoded"),
            ("http://a/b\r\nc", "percent-encoded"),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(remedy) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
