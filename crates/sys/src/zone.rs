//! Zones of IPv6 addresses (RFC 4007 section 11): the interface of a link-local address, which is the same address on every
//! interface. A zone means something on this machine only, and is never sent.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// The number of the interface that a zone names: `eth0`, or `2`.
///
/// # Errors
/// `ENODEV`: there is no such interface. `EMFILE`.
pub fn interface_of(zone: &str) -> io::Result<u32> {
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    match netdevice::name_to_index(&any, zone) {
        Ok(index) => Ok(index),
        Err(error) => {
            let index = zone.parse().map_err(|_| error)?;
            netdevice::index_to_name_inlined(&any, index)?;
            Ok(index)
        }
    }
}

/// An address without the zones that the kernel ignores: only link-local addresses keep theirs. The kernel says the same of
/// a socket that is bound to the address.
#[must_use]
pub fn without_idle_zone(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address
        && !v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(0);
    }
    address
}

/// Whether an address lacks the zone without which no socket can be bound to it.
#[must_use]
pub fn lacks_zone(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

/// Shows an address as a URL has it: `127.0.0.1:8080`, and with a zone `[fe80::1%25eth0]:8080` (RFC 6874). RFC 9844, which
/// replaces that RFC, leaves the form in URLs to programs; curl, wget and `drover load` read this one.
#[derive(Clone, Copy, Debug)]
pub struct InUrl(pub SocketAddr);

impl fmt::Display for InUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => {
                let (ip, port, zone) = (v6.ip(), v6.port(), zone_of(v6.scope_id()));
                write!(f, "[{ip}%25{zone}]:{port}")
            }
            address => address.fmt(f),
        }
    }
}

/// The name of an interface, or its number if the name cannot stand in a URL as it is, or if the interface is gone.
fn zone_of(interface: u32) -> String {
    let name = socket(AddressFamily::UNIX, SocketType::DGRAM, None)
        .and_then(|any| netdevice::index_to_name(any, interface));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.ok().filter(|name| name.bytes().all(is_plain)).unwrap_or_else(|| interface.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel gives the loopback interface the number 1 in every network namespace.
    const LOOPBACK: u32 = 1;

    #[test]
    fn a_zone_is_the_name_or_the_number_of_an_interface() {
        assert_eq!(interface_of("lo").unwrap(), LOOPBACK);
        assert_eq!(interface_of("1").unwrap(), LOOPBACK);
        for wrong in ["", "no-such-one", "4000000000", "-1", "a name that is longer than 16 bytes"]
        {
            assert!(interface_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_zone_is_shown_as_a_url_has_it() {
        for (address, shown) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("[fe80::1%1]:80", "[fe80::1%25lo]:80"),
            ("[fe80::1%4000000000]:80", "[fe80::1%254000000000]:80"),
        ] {
            assert_eq!(InUrl(address.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn only_link_local_addresses_have_a_zone() {
        let idle = |address: &str| without_idle_zone(address.parse().unwrap()).to_string();
        assert_eq!(idle("[::1%1]:80"), "[::1]:80");
        assert_eq!(idle("[fe80::1%1]:80"), "[fe80::1%1]:80");
        assert!(lacks_zone("[fe80::1]:80".parse().unwrap()));
        assert!(!lacks_zone("[fe80::1%1]:80".parse().unwrap()));
        assert!(!lacks_zone("[::1]:80".parse().unwrap()));
    }
}
