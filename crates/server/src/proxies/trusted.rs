//! The proxies that are believed what they say of clients: networks, and the peers of unix(7) sockets.

use std::net::IpAddr;

use super::client::ClientAddress;

/// Proxies that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    unix: bool,
}

/// The addresses whose first bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl TrustedProxies {
    /// Reads addresses, networks as `10.0.0.0/8`, and `unix`, with commas between them. Used as a clap `value_parser`.
    ///
    /// # Errors
    /// The message says what is wrong, and how to write it.
    pub fn parse(text: &str) -> Result<TrustedProxies, String> {
        let mut trusted = TrustedProxies::default();
        for item in text.split(',').map(str::trim) {
            match item {
                "unix" => trusted.unix = true,
                network => trusted.networks.push(Network::parse(network)?),
            }
        }
        Ok(trusted)
    }

    /// Trusts those of another list too.
    pub fn add(&mut self, other: &TrustedProxies) {
        self.networks.extend_from_slice(&other.networks);
        self.unix |= other.unix;
    }

    /// Whether nobody is trusted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    pub(crate) fn contains(&self, peer: ClientAddress) -> bool {
        match peer {
            ClientAddress::Ip(address) => self.networks.iter().any(|it| it.contains(address)),
            ClientAddress::Unix => self.unix,
            ClientAddress::Unknown => false,
        }
    }
}

impl Network {
    fn parse(text: &str) -> Result<Network, String> {
        const HOW: &str =
            "write addresses or networks, as in 127.0.0.1,10.0.0.0/8,2001:db8::/32, or unix";
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| HOW)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), |bits| bits.parse().map_err(|_| HOW))?;
        if bits > width {
            return Err(format!("a network of {text} has 0 to {width} bits"));
        }
        let network = Network { address, bits };
        match network.first() {
            first if first == address => Ok(network),
            first => Err(format!("{text} begins at {first}; write {first}/{bits}")),
        }
    }

    /// The first address.
    fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && Network { address, ..self }.first() == self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses_and_no_others() {
        let trusted =
            TrustedProxies::parse("192.0.2.7, 10.0.0.0/8,2001:db8::/33,0.0.0.0/0").unwrap();
        let without_all = TrustedProxies { networks: trusted.networks[..3].to_vec(), unix: true };
        let has = |list: &TrustedProxies, text: &str| {
            list.contains(ClientAddress::Ip(text.parse().unwrap()))
        };
        for inside in ["192.0.2.7", "10.0.0.0", "10.255.255.255", "2001:db8::1", "::ffff:10.1.2.3"]
        {
            assert!(has(&without_all, inside), "{inside}");
        }
        for outside in ["192.0.2.6", "9.255.255.255", "11.0.0.0", "2001:db8:8000::", "::a00:0"] {
            assert!(!has(&without_all, outside), "{outside}");
        }
        assert!(has(&trusted, "255.255.255.255") && !has(&trusted, "::1"));
        assert!(has(&TrustedProxies::parse("::/0").unwrap(), "2001:db8::"));
        assert!(!has(&TrustedProxies::parse("::/0").unwrap(), "192.0.2.1"));
        assert!(
            !trusted.contains(ClientAddress::Unix) && without_all.contains(ClientAddress::Unix)
        );
        assert!(!without_all.contains(ClientAddress::Unknown));
        assert!(
            TrustedProxies::default().is_empty()
                && !TrustedProxies::parse("unix").unwrap().is_empty()
        );
    }

    #[test]
    fn what_is_no_network_is_told() {
        for (wrong, told) in [
            ("", "write"),
            ("localhost", "write"),
            ("10.0.0.0/", "write"),
            ("10.0.0.0/33", "0 to 32"),
            ("::/129", "0 to 128"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("unix,", "write"),
        ] {
            let error = TrustedProxies::parse(wrong).unwrap_err();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }
}
