//! Where requests go: URLs, the requests' bytes, and the source addresses of many connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use anyhow::Context;

/// An `http://` URL, as far as a load generator needs it.
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
        if text.starts_with("https://") {
            return Err(format!("'{text}': TLS is not supported yet: use an http:// URL"));
        }
        let example = "write it as http://127.0.0.1:8080/path";
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(format!("'{text}' is no http:// URL: {example}"));
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

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// The request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Method {
    /// Asks for a representation.
    Get,
    /// Asks for its head alone.
    Head,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
        }
    }
}

/// One server and what is asked of it; a connection goes to one origin and asks for its paths in
/// turn.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    authority: String,
    pub(super) address: SocketAddr,
    pub(super) sources: Sources,
    /// The bytes of each request.
    requests: Vec<Vec<u8>>,
}

/// Resolves `urls` and writes their requests; URLs of the same host and port share an origin.
pub(super) fn origins(
    urls: &[Url],
    method: Method,
    fields: &[String],
) -> anyhow::Result<Vec<Origin>> {
    let mut origins: Vec<Origin> = Vec::new();
    for url in urls {
        let request = request(url, method, fields).into_bytes();
        match origins.iter_mut().find(|origin| origin.authority == url.authority) {
            Some(origin) => origin.requests.push(request),
            None => origins.push(Origin {
                authority: url.authority.clone(),
                address: resolve(url)?,
                sources: Sources::Default,
                requests: vec![request],
            }),
        }
    }
    Ok(origins)
}

impl Origin {
    /// The requests as a worker's connections share them.
    pub(super) fn shared_requests(&self) -> Vec<Rc<[u8]>> {
        self.requests.iter().map(|request| Rc::from(&request[..])).collect()
    }
}

fn resolve(url: &Url) -> anyhow::Result<SocketAddr> {
    (&url.host[..], url.port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("{url}: host '{}' has no address: check its spelling", url.host))
}

fn request(url: &Url, method: Method, fields: &[String]) -> String {
    let mut request = format!("{} {} HTTP/1.1\r\n", method.name(), url.path);
    if !fields.iter().any(|field| field.to_ascii_lowercase().starts_with("host:")) {
        request += &format!("Host: {}\r\n", url.authority);
    }
    for field in fields {
        request += field;
        request += "\r\n";
    }
    request + "\r\n"
}

/// Checks a header field given as `Name: value`. Made to be a clap `value_parser`.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn parse_field(text: &str) -> Result<String, String> {
    let is_token = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    match text.split_once(':') {
        Some((name, value)) if is_token(name) && value.bytes().all(|b| b >= b' ' || b == b'\t') => {
            let framing = ["content-length", "transfer-encoding"];
            if framing.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(format!("'{name}': requests have no body"));
            }
            Ok(text.to_string())
        }
        _ => Err(format!("'{text}' is no header field: write it as 'Name: value'")),
    }
}

/// From which local addresses connections come.
///
/// A connection is its two addresses and ports, so one source address reaches one target as often
/// as there are ephemeral ports (ip(7), `ip_local_port_range`). All of 127.0.0.0/8 is local, so
/// towards a loopback address there is no shortage of source addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sources {
    /// The kernel chooses.
    Default,
    /// Each loopback address for so many connections.
    Spread {
        /// How many.
        each: u32,
    },
}

/// Part of the ports that is used per address: the last free ones take the kernel long to find, and
/// others use ports too.
const USABLE_PORTS: f64 = 0.7;

/// Over how many addresses connections are spread that are opened again and again. The side that
/// closes first keeps the port for a minute (TIME_WAIT).
const CHURN_ADDRESSES: u32 = 32;

impl Sources {
    /// Finds a way to have `connections` at once from here to `target`, and says if local ports will
    /// run short all the same; `churn`: they are opened again and again.
    pub(super) fn find(
        target: IpAddr,
        connections: u32,
        churn: bool,
        ports: u32,
    ) -> (Sources, Option<String>) {
        let usable = (f64::from(ports) * USABLE_PORTS) as u32;
        let is_ipv4_loopback = matches!(target, IpAddr::V4(address) if address.is_loopback());
        if connections <= usable && !(churn && is_ipv4_loopback) {
            return (Sources::Default, None);
        }
        if !is_ipv4_loopback {
            let shortage = (connections > ports).then(|| {
                format!(
                    "{connections} connections to {target} need more than the {ports} local ports \
                     there are: ask for fewer (--connections, --idle), widen \
                     net.ipv4.ip_local_port_range, or use a target in 127.0.0.0/8, for which the \
                     source addresses are spread"
                )
            });
            return (Sources::Default, shortage);
        }
        let each = usable.max(1);
        let each =
            if churn { each.min(connections.div_ceil(CHURN_ADDRESSES)).max(1) } else { each };
        (Sources::Spread { each }, None)
    }

    /// The source address of connection `number`; `None`: the kernel chooses.
    pub(super) fn of(self, number: u32) -> Option<SocketAddr> {
        match self {
            Sources::Default => None,
            Sources::Spread { each } => {
                let host = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 1)) + number / each);
                Some(SocketAddr::from((host, 0)))
            }
        }
    }
}

/// How many ephemeral ports this machine gives out (ip(7)).
pub(super) fn local_ports() -> u32 {
    const DEFAULT: u32 = 28_232;
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let read = || {
        let text = text.ok()?;
        let mut words = text.split_whitespace();
        let (first, last): (u32, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (last + 1).checked_sub(first)
    };
    read().unwrap_or(DEFAULT)
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
    }

    #[test]
    fn other_urls_are_refused_with_the_remedy() {
        for (text, remedy) in [
            ("https://a/", "use an http:// URL"),
            ("ftp://a/", "http://127.0.0.1:8080/path"),
            ("127.0.0.1:80", "http://127.0.0.1:8080/path"),
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

    #[test]
    fn requests_are_complete_and_share_an_origin() {
        let urls = ["http://127.0.0.1:8/a", "http://127.0.0.1:9/", "http://127.0.0.1:8/b"];
        let urls = urls.map(|url| url.parse().unwrap());
        let origins = origins(&urls, Method::Get, &["X: y".to_string()]).unwrap();
        assert_eq!(origins.len(), 2);
        assert_eq!(origins[0].address, "127.0.0.1:8".parse().unwrap());
        assert_eq!(origins[0].requests[1], b"GET /b HTTP/1.1\r\nHost: 127.0.0.1:8\r\nX: y\r\n\r\n");
        let head = request(&urls[1], Method::Head, &["host: z".to_string()]);
        assert_eq!(head, "HEAD / HTTP/1.1\r\nhost: z\r\n\r\n");
    }

    #[test]
    fn header_fields_cannot_break_the_request() {
        assert_eq!(parse_field("Accept: */*").unwrap(), "Accept: */*");
        for bad in ["", "a", ": b", "a b: c", "a: b\r\nc: d", "Content-Length: 5"] {
            parse_field(bad).unwrap_err();
        }
    }

    #[test]
    fn source_addresses_are_spread_when_ports_run_short() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let find = |target, connections, churn| Sources::find(target, connections, churn, 1000);
        assert_eq!(find(loopback, 700, false).0, Sources::Default);
        let (spread, _) = find(loopback, 701, false);
        assert_eq!(spread, Sources::Spread { each: 700 });
        assert_eq!(spread.of(699), spread.of(0));
        assert_eq!(spread.of(700), Some("127.0.1.2:0".parse().unwrap()));
        assert_eq!(find(loopback, 64, true).0, Sources::Spread { each: 2 });

        let far = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(find(far, 1000, true), (Sources::Default, None));
        let (sources, shortage) = find(far, 1001, false);
        assert_eq!(sources, Sources::Default);
        let shortage = shortage.unwrap();
        assert!(shortage.contains("--connections") && shortage.contains("127.0.0.0/8"));
    }
}
