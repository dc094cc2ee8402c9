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
