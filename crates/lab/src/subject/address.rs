//! The address of a server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// An address for HTTP. It is written as a URL without a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl Address {
    /// The address of a port.
    #[must_use]
    pub fn new(ip: IpAddr, port: u16) -> Address {
        Address(SocketAddr::new(ip, port))
    }

    /// Reads a URL like `http://127.0.0.1:8080`.
    #[must_use]
    pub fn parse(url: &str) -> Option<Address> {
        url.strip_prefix("http://")?.trim_end_matches('/').parse().ok().map(Address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}
