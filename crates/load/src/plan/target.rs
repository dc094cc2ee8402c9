//! URLs: where requests go and what they ask for.

/// An `http://` URL, as far as a load generator needs it. The scheme may be left out:
/// `127.0.0.1:8080/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port as they were written: what goes into the Host field.
    pub authority: String,
    host: String,
    port: u16,
    /// Path and query: what goes into the request line.
    pub path: String,
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let example = "write it as http://127.0.0.1:8080/path";
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(("https", _)) => {
                return Err(format!("'{text}': TLS is not supported yet: use an http:// URL"));
            }
            Some((scheme, _)) if !scheme.contains(['/', '?', '#']) => {
                return Err(format!("'{text}' is no http:// URL: {example}"));
            }
            // As browsers, curl and other generators do.
            _ => text,
        };
        if let Some(odd) = rest.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!("{text:?}: write {odd:?} percent-encoded (RFC 3986)"));
        }
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_authority(authority)
            .ok_or_else(|| format!("'{text}' has no valid host and port: {example}"))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Url {
            authority: authority.to_string(),
            host: host.to_string(),
            port,
            path: format!("{slash}{path}"),
        })
    }
}

fn split_authority(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() || host.contains('@') {
        return None;
    }
    Some((host, port.map_or(Some(80), |port| port.parse().ok())?))
}

impl Url {
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The same path at `server`, whose own path does not matter.
    #[must_use]
    pub fn at(self, server: &Url) -> Url {
        Url { path: self.path, ..server.clone() }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
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
    }

    #[test]
    fn other_urls_are_refused_with_the_remedy() {
        for (text, remedy) in [
            ("https://a/", "use an http:// URL"),
            ("ftp://a/", "http://127.0.0.1:8080/path"),
            ("/only/a/path", "http://127.0.0.1:8080/path"),
            ("mailto:a", "http://127.0.0.1:8080/path"),
            ("http://", "http://127.0.0.1:8080/path"),
            ("http://:80/", "http://127.0.0.1:8080/path"),
            ("http://a:b/", "http://127.0.0.1:8080/path"),
            ("http://a:99999/", "http://127.0.0.1:8080/path"),
            ("http://me@a/", "http://127.0.0.1:8080/path"),
            ("http://[::1/", "http://127.0.0.1:8080/path"),
            ("http://a/b c", "percent-encoded"),
            ("http://a/b\r\nc", "percent-encoded"),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(remedy) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
