//! The URLs that a CA may name: https, and plain HTTP to this machine alone, for a CA under test.

use std::fmt;
use std::net::IpAddr;

/// No longer URL is followed.
const LONGEST: usize = 2048;

/// A URL of a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaUrl {
    text: String,
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// Where the path begins in the text.
    path: usize,
}

impl CaUrl {
    /// Reads a URL: `https://host[:port]/path?query`.
    ///
    /// # Errors
    /// What is wrong with it, in a few words.
    pub fn parse(text: &str) -> Result<CaUrl, &'static str> {
        if text.len() > LONGEST || !text.bytes().all(|it| it.is_ascii_graphic()) {
            return Err("it has characters that no URL has, or is too long");
        }
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err("it must begin with https://"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !path.starts_with('/') || path.contains('#') {
            return Err("it must have a path, and no fragment");
        }
        let (host, port) = host_and_port(authority).ok_or("its host or port is invalid")?;
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let url =
            CaUrl { is_tls, port, path: text.len() - path.len(), text: text.to_owned(), host };
        if !is_tls && !url.is_this_machine() {
            return Err("plain http:// is allowed to this machine alone; use https://");
        }
        Ok(url)
    }

    fn is_this_machine(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        address.map_or(self.host == "localhost", |address| address.is_loopback())
    }

    /// The URL as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        &self.text[self.path..]
    }

    /// Host and port as the URL has them, for the field `Host`.
    pub(crate) fn authority(&self) -> &str {
        let begin = if self.is_tls { "https://".len() } else { "http://".len() };
        &self.text[begin..self.path]
    }

    /// The name of a folder for what is kept of the CA with this directory: host, port and path, without what has a meaning in paths.
    #[must_use]
    pub fn folder_name(&self) -> String {
        let plain = |it: char| it.is_ascii_alphanumeric() || ['.', '-'].contains(&it);
        let name = format!("{}{}", self.authority(), self.target());
        let name = name.trim_end_matches('/').replace(|it| !plain(it), "_");
        name.trim_start_matches('.').chars().take(128).collect()
    }
}

impl fmt::Display for CaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = match behind.is_empty() {
                true => None,
                false => Some(behind.strip_prefix(':')?),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_name = |it: u8| it.is_ascii_alphanumeric() || b"-._:".contains(&it);
    if host.is_empty() || !host.bytes().all(is_name) {
        return None;
    }
    let port = match port {
        None => None,
        Some(digits) => {
            let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
            Some(digits.parse::<u16>().ok().filter(|port| is_number && *port > 0)?)
        }
    };
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_of_a_url_are_found() {
        let url = CaUrl::parse("https://ca.example:14000/dir?x=1").unwrap();
        assert_eq!((url.host(), url.port(), url.target()), ("ca.example", 14000, "/dir?x=1"));
        assert_eq!(
            (url.authority(), url.folder_name().as_str()),
            ("ca.example:14000", "ca.example_14000_dir_x_1")
        );
        let url = CaUrl::parse("https://[2001:db8::1]/").unwrap();
        assert_eq!(
            (url.host(), url.port(), url.authority()),
            ("2001:db8::1", 443, "[2001:db8::1]")
        );
        assert!(CaUrl::parse("http://127.0.0.1:4000/d").is_ok());
        assert!(CaUrl::parse("http://[::1]:4000/d").is_ok());
        let letsencrypt = CaUrl::parse(crate::LETS_ENCRYPT).unwrap();
        assert_eq!(letsencrypt.folder_name(), "acme-v02.api.letsencrypt.org_directory");
    }

    #[test]
    fn what_is_no_url_of_a_ca_is_refused() {
        for (text, why) in [
            ("http://ca.example/d", "use https://"),
            ("http://127.0.0.1.example/d", "use https://"),
            ("ftp://ca.example/d", "https://"),
            ("https://ca.example", "path"),
            ("https://ca.example?x", "path"),
            ("https://ca.example/#x", "fragment"),
            ("https:///d", "host"),
            ("https://user@ca.example/d", "host"),
            ("https://ca.example:0/d", "port"),
            ("https://ca.example:99999/d", "port"),
            ("https://ca.example:+1/d", "port"),
            ("https://[::1/d", "host"),
            ("https://ca.example/a b", "characters"),
            ("https://ca.example/\r\nHost: b", "characters"),
        ] {
            let told = CaUrl::parse(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    proptest! {
        #[test]
        fn anything_can_be_asked(text in "(https?://)?\\PC{0,60}") {
            if let Ok(url) = CaUrl::parse(&text) {
                prop_assert!(url.target().starts_with('/') && !url.host().is_empty());
                prop_assert!(!url.folder_name().contains('/') && !url.folder_name().starts_with('.'));
                prop_assert_eq!(format!("{}{}", url.authority(), url.target()), text.split_once("://").unwrap().1);
            }
        }
    }
}
