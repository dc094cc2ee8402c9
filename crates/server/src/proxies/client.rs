//! Who has sent a request: the peer of its connection, or whom a proxy that is trusted names in the peer's place.

use std::fmt;
use std::io;
use std::net::IpAddr;

use drover_mech::net::Conn;

/// The address of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientAddress {
    Ip(IpAddr),
    /// The peer of a unix(7) socket.
    Unix,
    /// A client that is gone already has no address any more.
    #[default]
    Unknown,
}

impl ClientAddress {
    /// The peer of a connection.
    pub(crate) fn of_peer(conn: &Conn<'_>) -> ClientAddress {
        match conn.peer_addr() {
            Ok(peer) => ClientAddress::Ip(peer.ip()),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => ClientAddress::Unix,
            Err(_) => ClientAddress::Unknown,
        }
    }

    pub(crate) fn ip(self) -> Option<IpAddr> {
        match self {
            ClientAddress::Ip(address) => Some(address),
            ClientAddress::Unix | ClientAddress::Unknown => None,
        }
    }

    /// What stands for a client where clients share something: its IPv4 address, or the /64 prefix of its IPv6 address, of
    /// which a single client usually has every address (RFC 4291 section 2.5.4). `None`: it has no IP address.
    pub(crate) fn network(self) -> Option<IpAddr> {
        Some(match self.ip()?.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            address => address,
        })
    }
}

/// As lines of the access log have it: `unix:` as nginx writes it, `-` for an address that is not known.
impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Ip(address) => address.fmt(f),
            ClientAddress::Unix => f.write_str("unix:"),
            ClientAddress::Unknown => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        let network = |text: &str| {
            ClientAddress::Ip(text.parse().unwrap()).network().map(|it| it.to_string())
        };
        assert_eq!(network("192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(network("::ffff:192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(network("2001:db8:1:2:3:4:5:6").as_deref(), Some("2001:db8:1:2::"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(ClientAddress::Unix.network(), None);
    }
}
