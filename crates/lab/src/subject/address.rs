//! The address of a server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// An address for HTTP. It is written as a URL without a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpAddress(pub SocketAddr);

impl HttpAddress {
    /// The address of a port.
    #[must_use]
    pub fn new(ip: IpAddr, port: u16) -> HttpAddress {
        HttpAddress(SocketAddr::new(ip, port))
    }

    /// Reads a URL like `http://127.0.0.1:8080`.
    #[must_use]
    pub fn parse(url: &str) -> Option<HttpAddress> {
        url.strip_prefix("http://")?.trim_end_matches('/').parse().ok().map(HttpAddress)
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}
