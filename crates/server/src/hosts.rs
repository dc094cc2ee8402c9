//! Which site a request is for, by the host that it names: virtual hosts.
//!
//! The host is the authority of an absolute target, else the field `Host` (RFC 9112 section 3.3). Names are compared without
//! the port, a dot at their end, and the case of letters (RFC 3986 section 3.2.2); IPv6 addresses in the one form that each has
//! (RFC 5952 section 4). A whole name comes before a wildcard, a longer wildcard before a shorter one.

use std::collections::HashMap;
use std::fmt;
use std::io::{Cursor, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use foldhash::quality::RandomState;

/// The longest name that the Domain Name System has (RFC 1035 section 2.3.4).
const NAME_MOST: usize = 253;

/// Room for an IPv6 address in brackets.
const ADDRESS_MOST: usize = 48;

/// The hosts that a site is for: one name, or all names beneath one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// In lower case, without the `*.` of a wildcard; an IPv6 address in brackets, in its one form.
    name: String,
    is_wildcard: bool,
}

impl FromStr for HostPattern {
    type Err = String;

    /// Reads `example.org`, `192.0.2.1`, `[2001:db8::1]`, or `*.example.org`: the names beneath that one, at any depth.
    fn from_str(text: &str) -> Result<HostPattern, String> {
        let (is_wildcard, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_name = |name: &str| {
            name.split('.').all(|label| {
                let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                !label.is_empty() && !label.starts_with('-') && label.bytes().all(is_of_names)
            })
        };
        let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let right = match in_brackets.map(str::parse::<Ipv6Addr>) {
            Some(address) => address.ok().filter(|_| !is_wildcard).map(|it| format!("[{it}]")),
            None => (name.len() <= NAME_MOST && is_name(name)).then(|| name.to_ascii_lowercase()),
        };
        let why = match right {
            Some(name) => return Ok(HostPattern { name, is_wildcard }),
            None if !text.is_ascii() => "names outside of ASCII are written as xn--…",
            None if text.contains(',') => {
                "each is a name by itself, as in a.test,b.test=/srv, and in a file [\"a.test\", \"b.test\"]"
            }
            None if in_brackets.is_some_and(|address| address.contains('%')) => {
                "clients send addresses without a zone: write what is before the %, as in [fe80::1]"
            }
            None if in_brackets.is_none() && name.contains(':') => {
                "a name is for all ports; an IPv6 address stands in brackets"
            }
            None => "write example.org, or *.example.org for all names beneath it",
        };
        Err(format!("'{text}' is no name of a host: {why}"))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wildcard = if self.is_wildcard { "*." } else { "" };
        write!(f, "{wildcard}{}", self.name)
    }
}

/// The number of a site by the host.
#[derive(Debug, Default)]
pub(crate) struct HostTable {
    whole: HashMap<Vec<u8>, u32, RandomState>,
    /// By the name that others are beneath.
    wildcards: HashMap<Vec<u8>, u32, RandomState>,
}

impl HostTable {
    /// # Errors
    /// A pattern that two sites have.
    pub(crate) fn new<'p>(
        patterns: impl Iterator<Item = (&'p HostPattern, u32)>,
    ) -> Result<HostTable, &'p HostPattern> {
        let mut table = HostTable::default();
        for (pattern, site) in patterns {
            let names = if pattern.is_wildcard { &mut table.wildcards } else { &mut table.whole };
            let before = names.insert(pattern.name.as_bytes().to_vec(), site);
            if before.is_some_and(|before| before != site) {
                return Err(pattern);
            }
        }
        Ok(table)
    }

    /// The site of an authority: a host that may be followed by a port.
    pub(crate) fn find(&self, authority: &[u8]) -> Option<u32> {
        let mut name = [0; NAME_MOST];
        let host = without_port(authority);
        let host = host.strip_suffix(b".").unwrap_or(host);
        let name = name.get_mut(..host.len())?;
        name.copy_from_slice(host);
        let name = without_zone(name);
        name.make_ascii_lowercase();
        let mut room = [0; ADDRESS_MOST];
        let name = in_one_form(name, &mut room);
        if let Some(site) = self.whole.get(name) {
            return Some(*site);
        }
        if self.wildcards.is_empty() {
            return None;
        }
        let dots = name.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        // A name begins with a label: `.example.org` is beneath nothing.
        let mut beneath = dots.filter(|(at, _)| *at > 0).map(|(at, _)| &name[at + 1..]);
        beneath.find_map(|parent| self.wildcards.get(parent).copied())
    }
}

/// Which hosts are answered where others are refused. This protects from DNS rebinding: a page of another site has the name of
/// that site lead to the address of this server, and reads what the browser then takes for a part of the site.
#[derive(Debug)]
pub(crate) struct AllowedHosts(HostTable);

impl AllowedHosts {
    pub(crate) fn new(patterns: &[HostPattern]) -> AllowedHosts {
        let one_site = patterns.iter().map(|pattern| (pattern, 0));
        AllowedHosts(HostTable::new(one_site).unwrap_or_default())
    }

    /// Whether a request for this authority is answered; `None`: the request names none.
    pub(crate) fn has(&self, authority: Option<&[u8]>) -> bool {
        authority.is_none_or(|it| cannot_be_rebound(it) || self.0.find(it).is_some())
    }
}

/// Whether nobody can have the host of `authority` lead elsewhere: it is an address, which no look-up finds, or `localhost`, which
/// browsers never look up (RFC 6761 section 6.3), or empty, which browsers never send.
pub(crate) fn cannot_be_rebound(authority: &[u8]) -> bool {
    let host = without_port(authority);
    let Ok(host) = std::str::from_utf8(host.strip_suffix(b".").unwrap_or(host)) else {
        return false;
    };
    match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            host.is_empty()
                || host.eq_ignore_ascii_case("localhost")
                || host.parse::<Ipv4Addr>().is_ok()
        }
    }
}

/// The host of `authority` as one may name it in a flag, for messages; `None`: it cannot be named.
pub(crate) fn nameable(authority: &[u8]) -> Option<HostPattern> {
    let host = std::str::from_utf8(without_port(authority)).ok()?;
    host.parse().ok().filter(|pattern: &HostPattern| !pattern.is_wildcard)
}

/// The sites of hosts by their names, for the access log.
#[derive(Debug)]
pub(crate) struct NamedSites {
    table: HostTable,
    /// The first name of each site, by the number that the table has.
    names: Vec<String>,
}

impl NamedSites {
    /// `hosts`: the names of each host's site, of which no two have the same.
    pub(crate) fn new<'h>(hosts: impl Iterator<Item = &'h [HostPattern]>) -> NamedSites {
        let hosts: Vec<&[HostPattern]> = hosts.collect();
        let numbered = (0..).zip(&hosts);
        let patterns =
            numbered.flat_map(|(number, names)| names.iter().map(move |it| (it, number)));
        NamedSites {
            table: HostTable::new(patterns).unwrap_or_default(),
            names: hosts
                .iter()
                .filter_map(|names| names.first())
                .map(ToString::to_string)
                .collect(),
        }
    }

    /// The first name of the site that a request for an authority is for; `None`: no host's.
    pub(crate) fn find(&self, authority: &[u8]) -> Option<&str> {
        self.names.get(self.table.find(authority)? as usize).map(String::as_str)
    }
}

/// The host of an authority; what stands in brackets is an address with colons.
pub(crate) fn without_port(authority: &[u8]) -> &[u8] {
    let from = authority.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    match authority[from..].iter().position(|&byte| byte == b':') {
        Some(at) => &authority[..from + at],
        None => authority,
    }
}

/// Removes the zone of a link-local address. Some clients send it, although it means something on their machine only (RFC 6874
/// section 4).
fn without_zone(host: &mut [u8]) -> &mut [u8] {
    match host.iter().position(|&byte| byte == b'%') {
        Some(at) if host.starts_with(b"[") && host.ends_with(b"]") => {
            host[at] = b']';
            &mut host[..=at]
        }
        _ => host,
    }
}

/// An IPv6 address in brackets as names of hosts have it, by way of `room`; other hosts as they are.
fn in_one_form<'n>(host: &'n [u8], room: &'n mut [u8; ADDRESS_MOST]) -> &'n [u8] {
    let inside = host.strip_prefix(b"[").and_then(|it| it.strip_suffix(b"]"));
    let text = inside.and_then(|it| std::str::from_utf8(it).ok());
    let Some(address) = text.and_then(|it| it.parse::<Ipv6Addr>().ok()) else { return host };
    let mut out = Cursor::new(&mut room[..]);
    match write!(out, "[{address}]") {
        Ok(()) => {
            let len = out.position() as usize;
            &room[..len]
        }
        Err(_) => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(patterns: &[&str]) -> HostTable {
        let patterns: Vec<HostPattern> = patterns.iter().map(|it| it.parse().unwrap()).collect();
        HostTable::new(patterns.iter().zip(1..)).unwrap()
    }

    #[test]
    fn a_whole_name_comes_first_then_the_longest_wildcard() {
        let table =
            table(&["example.org", "*.example.org", "*.a.example.org", "b.example.org", "*.org"]);
        for (host, site) in [
            ("example.org", Some(1)),
            ("EXAMPLE.org:8080", Some(1)),
            ("example.org.", Some(1)),
            ("example.org.:80", Some(1)),
            ("x.example.org", Some(2)),
            ("y.x.example.org", Some(2)),
            ("a.example.org", Some(2)),
            ("x.a.example.org", Some(3)),
            ("X.Y.A.example.org", Some(3)),
            ("b.example.org", Some(4)),
            ("other.org", Some(5)),
            ("xexample.org", Some(5)),
            ("org", None),
            ("example.com", None),
            (".example.org", Some(5)),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(table.find(host.as_bytes()), site, "{host}");
        }
        assert_eq!(table.find(&[b'a'; 300]), None);
    }

    #[test]
    fn addresses_are_names_too() {
        let table = table(&["192.0.2.1", "[2001:DB8:0::1]", "[fe80::1]", "[::ffff:192.0.2.1]"]);
        for (host, site) in [
            ("192.0.2.1:80", Some(1)),
            ("[2001:db8::1]", Some(2)),
            ("[2001:db8::1]:80", Some(2)),
            ("[2001:db8::2]:80", None),
            ("[2001:0db8:0:0::0001]", Some(2)),
            ("[2001:db8:0:0:0:0:0:1]:80", Some(2)),
            ("[::ffff:c000:201]", Some(4)),
            ("[::ffff:192.0.2.1].", Some(4)),
            ("[fe80:0::1%25lo]", Some(3)),
            ("[fe80::1]:80", Some(3)),
            ("[fe80::1%25lo]:80", Some(3)),
            ("[FE80::1%lo]", Some(3)),
            ("[fe80::1%lo", None),
            ("[%]", None),
            ("%", None),
            ("2001", None),
        ] {
            assert_eq!(table.find(host.as_bytes()), site, "{host}");
        }
    }

    #[test]
    fn hosts_that_nobody_can_rebind_are_always_allowed() {
        let patterns = ["drover", "*.svc.cluster.local"].map(|it| it.parse().unwrap());
        let allowed = AllowedHosts::new(&patterns);
        assert!(allowed.has(None));
        for host in [
            "",
            ":9090",
            "127.0.0.1",
            "10.1.2.3:9090",
            "127.0.0.1.",
            "[::1]",
            "[2001:db8::1]:9090",
            "localhost",
            "LocalHost.:9090",
            "Drover:9090",
            "drover.",
            "a.b.svc.cluster.local",
        ] {
            assert!(allowed.has(Some(host.as_bytes())), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org",
            "x.localhost",
            "127.0.0.1.example.org",
            "127.1",
            "1.2.3.4.5",
            "0x7f.1",
            "[::1].example.org",
            "[drover]",
            "svc.cluster.local",
            "drover.example.org",
            "drover%2e",
            "localhost..",
        ] {
            assert!(!allowed.has(Some(host.as_bytes())), "{host}");
        }
        assert!(!allowed.has(Some(b"\xff")));
    }

    #[test]
    fn messages_name_a_host_as_a_flag_does() {
        let named = |host: &str| nameable(host.as_bytes()).map(|it| it.to_string());
        assert_eq!(named("Drover.:9090").as_deref(), Some("drover"));
        for host in ["*.a", "a,b", "$(b)", "a%20", "[x]", ""] {
            assert_eq!(named(host), None, "{host}");
        }
    }

    #[test]
    fn what_is_no_name_is_told_why() {
        for (text, why) in [
            ("", "write example.org"),
            ("*", "write example.org"),
            ("a.*.org", "write example.org"),
            ("a b", "write example.org"),
            ("a..b", "write example.org"),
            ("http://a", "all ports"),
            ("a:80", "all ports"),
            ("::1", "in brackets"),
            ("*.[::1]", "write example.org"),
            ("[fe80::1%lo]", "without a zone"),
            ("[fe80::1%25lo]", "without a zone"),
            ("m\u{fc}ller.de", "xn--"),
        ] {
            let error = text.parse::<HostPattern>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        for text in ["a_b.example.org", "*.a", "localhost", "[::1]"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn two_sites_of_one_name_are_told() {
        let of = |text: &str| text.parse::<HostPattern>().unwrap();
        assert_eq!(of("[2001:DB8:0::1]"), of("[2001:db8::1]"));
        let patterns: Vec<HostPattern> = ["a", "*.a", "A."].map(|it| it.parse().unwrap()).into();
        let error = HostTable::new(patterns.iter().zip(1..)).unwrap_err();
        assert_eq!(error.to_string(), "a");
    }
}
