//! The address of a server, and a free port for it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, bind, getsockname,
    setsockopt, socket, sockopt,
};

/// An address for HTTP. It is written as a URL without a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpAddress {
    /// Where the server listens.
    pub socket: SocketAddr,
    /// Whether TLS is spoken there.
    pub is_tls: bool,
}

impl HttpAddress {
    /// The address of a port.
    #[must_use]
    pub fn new(ip: IpAddr, port: u16, is_tls: bool) -> HttpAddress {
        HttpAddress { socket: SocketAddr::new(ip, port), is_tls }
    }

    /// Reads a URL like `http://127.0.0.1:8080`.
    #[must_use]
    pub fn parse(url: &str) -> Option<HttpAddress> {
        let (scheme, address) = url.split_once("://")?;
        let socket = address.trim_end_matches('/').parse().ok()?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        Some(HttpAddress { socket, is_tls })
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.socket)
    }
}

/// A port in the calling thread's network namespace that no socket uses on any address, at this moment.
///
/// A server of which only the command is known may listen on every address, and may not set SO_REUSEADDR. Its bind(2)
/// then fails if any address has a socket with that port, such as a closed connection in TIME_WAIT. The port is
/// therefore taken on every address of both families, without SO_REUSEADDR.
///
/// # Errors
/// What the kernel says, for example if no port is free.
pub(super) fn free_port() -> nix::Result<u16> {
    let every = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
    match bound(AddressFamily::Inet6, &every) {
        Ok(address) => Ok(address.port()),
        // A kernel without IPv6, or with IPv6 disabled.
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => {
            Ok(bound(AddressFamily::Inet, &SockaddrIn::new(0, 0, 0, 0, 0))?.port())
        }
        Err(error) => Err(error),
    }
}

/// The address that the kernel gives to a socket. The socket is closed again.
fn bound<A: SockaddrLike>(family: AddressFamily, address: &A) -> nix::Result<A> {
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    bind(socket.as_raw_fd(), address)?;
    getsockname(socket.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;

    use super::*;
    use crate::wire::{Wire, WireEnd};

    #[test]
    fn a_url_says_whether_tls_is_spoken() {
        for url in ["http://127.0.0.1:8080", "https://[::1]:8443"] {
            let address = HttpAddress::parse(&format!("{url}/")).unwrap();
            assert_eq!(
                (address.to_string().as_str(), address.is_tls),
                (url, url.starts_with("https"))
            );
        }
        assert_eq!(HttpAddress::parse("ftp://127.0.0.1:21"), None);
        assert_eq!(HttpAddress::parse("127.0.0.1:80"), None);
    }

    /// In a network namespace with four ports, three of them have a socket on another address.
    #[test]
    fn a_free_port_has_no_socket_on_any_address() {
        let wire = match Wire::limited(1_000_000_000) {
            Ok(wire) => wire,
            Err(why) => return drover_testing::skip!("{why}"),
        };
        let _there = wire.enter(WireEnd::Subject).unwrap();
        let range = "/proc/sys/net/ipv4/ip_local_port_range";
        if let Err(error) = fs::write(range, "40000 40003") {
            return drover_testing::skip!("{range}: {error}");
        }
        let listen = |port| TcpListener::bind(("127.0.0.9", port)).unwrap();
        let _others: Vec<TcpListener> = (40001..=40003).map(listen).collect();
        // A program that another test starts has the socket of the last call until its exec.
        let found = || loop {
            match free_port() {
                Err(Errno::EADDRINUSE) => std::thread::yield_now(),
                found => return found,
            }
        };
        for _ in 0..20 {
            assert_eq!(found(), Ok(40000));
        }
    }
}
