//! The addresses of a server, and which of them connections go to.
//!
//! A host name may have several addresses, and its server may listen at one of them only: `localhost` is
//! `::1` and `127.0.0.1` on many machines. All of them are kept, in the order of getaddrinfo(3), and an
//! attempt to connect goes through them. Once one has worked, attempts begin with it, so that all
//! connections of a run go to one address as long as it works.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::bail;
use drover_sys::socket::Address;
use drover_usage::UsageError;

use crate::plan::sources::{Sources, check_is_own};
use crate::plan::target::Url;
use crate::warning::Warning;

/// The most addresses of a host that are tried.
const MOST_ADDRESSES: usize = 16;

/// One address of a server, and from where connections go there.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) sources: Sources,
}

/// The addresses of a server; at least one.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// The host, if it is a name.
    name: Option<String>,
    list: Vec<Endpoint>,
    /// Which address is tried first, and in the lowest bit whether it has worked. Shared by the workers.
    first: AtomicUsize,
}

/// Which address an attempt to connect begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) place: usize,
    /// Whether a connection was opened there, and none was too slow since.
    pub(crate) has_worked: bool,
}

impl Endpoints {
    /// Looks the host of `url` up; `unix`: a socket to connect to in its place.
    ///
    /// # Errors
    /// A host without an address.
    pub(crate) fn resolve(url: &Url, unix: Option<&Path>) -> anyhow::Result<Endpoints> {
        if let Some(path) = unix {
            return Ok(Endpoints::new(None, vec![Address::Unix(path.to_owned())]));
        }
        let host = url.host();
        let mut addresses = Vec::new();
        for address in (host, url.port()).to_socket_addrs().into_iter().flatten() {
            let address = Address::Ip(address);
            if !addresses.contains(&address) && addresses.len() < MOST_ADDRESSES {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            let remedy = match host.split_once('%') {
                Some((_, zone)) => format!("is there an interface '{zone}'?"),
                None => "check its spelling".to_string(),
            };
            bail!("{url}: host '{host}' has no address: {remedy}");
        }
        let literal = url.name().parse::<IpAddr>().is_ok();
        Ok(Endpoints::new((!literal).then(|| host.to_string()), addresses))
    }

    /// The `addresses` of a host, of which there is at least one.
    pub(crate) fn new(name: Option<String>, addresses: Vec<Address>) -> Endpoints {
        let endpoint = |address| Endpoint { address, sources: Sources::Default };
        let list = addresses.into_iter().map(endpoint).collect();
        Endpoints { name, list, first: AtomicUsize::new(0) }
    }

    /// Finds the local addresses from which connections come. An address that cannot be reached from any
    /// of them is left out. Returns a warning about what will run short at every address.
    ///
    /// # Errors
    /// No address of the server can be reached.
    pub(crate) fn find_sources(
        &mut self,
        find: impl Fn(&Address) -> Result<(Sources, Option<Warning>), UsageError>,
    ) -> Result<Option<Warning>, UsageError> {
        let mut shortages = Vec::new();
        let mut refusal = None;
        self.list.retain_mut(|endpoint| match find(&endpoint.address) {
            Ok((sources, shortage)) => {
                endpoint.sources = sources;
                shortages.push(shortage);
                true
            }
            Err(error) => {
                refusal.get_or_insert(error);
                false
            }
        });
        match refusal {
            Some(error) if self.list.is_empty() => Err(error),
            _ => Ok(shortages.into_iter().reduce(Option::and).flatten()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The address that the next attempt begins with.
    pub(crate) fn first(&self) -> First {
        let first = self.first.load(Ordering::Relaxed);
        First { place: first >> 1, has_worked: first & 1 == 1 }
    }

    /// The address that is tried as number `turn` of an attempt that begins with `first`, and its place.
    pub(crate) fn in_turn(&self, first: First, turn: usize) -> (usize, &Endpoint) {
        let place = (first.place + turn) % self.list.len();
        (place, &self.list[place])
    }

    /// A connection was opened at `place`: the next attempts begin there.
    pub(crate) fn has_worked(&self, place: usize) {
        let first = place << 1 | 1;
        // Workers read it for every connection: it is written only when it changes.
        if self.first.load(Ordering::Relaxed) != first {
            self.first.store(first, Ordering::Relaxed);
        }
    }

    /// A connection was not opened in time at the address that has worked: the next attempts begin with
    /// the one behind it.
    pub(crate) fn was_too_slow(&self, place: usize) {
        if self.list.len() > 1 {
            self.first.store(((place + 1) % self.list.len()) << 1, Ordering::Relaxed);
        }
    }

    /// The address that connections go to, as far as is known.
    pub(crate) fn current(&self) -> &Address {
        &self.list[self.first().place].address
    }

    /// The address that a connection was opened at, if one was.
    pub(crate) fn connected(&self) -> Option<&Address> {
        self.first().has_worked.then(|| self.current())
    }

    /// Whether connections go to a server on this machine.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        match self.current() {
            Address::Unix(_) => true,
            Address::Ip(to) => to.ip().is_loopback() || check_is_own(*to).is_ok(),
        }
    }

    /// Adds to `told` that the address at `place` failed, and why. The result names the host once.
    pub(crate) fn tell_failure(&self, told: &mut String, place: usize, error: &io::Error) {
        let address = &self.list[place].address;
        match (&self.name, told.is_empty()) {
            (Some(name), true) => *told += &format!("{name} at {address}: "),
            (Some(_), false) => *told += &format!(", at {address}: "),
            (None, true) => *told += &format!("{address}: "),
            (None, false) => *told += &format!(", {address}: "),
        }
        // The number says nothing more than the text.
        let reason = error.to_string();
        *told += reason.split(" (os error").next().unwrap_or(&reason);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

    use super::*;
    use crate::warning::WarningCode;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| Address::Ip(text.parse().unwrap())).collect()
    }

    fn resolved(url: &str) -> anyhow::Result<Endpoints> {
        Endpoints::resolve(&url.parse().unwrap(), None)
    }

    #[test]
    fn an_attempt_goes_round_and_begins_where_the_last_one_worked() {
        let endpoints = Endpoints::new(None, addresses(&["[::1]:8", "127.0.0.1:8", "127.0.0.2:8"]));
        let round = || (0..3).map(|turn| endpoints.in_turn(endpoints.first(), turn).0);
        assert_eq!(round().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(endpoints.connected(), None);
        endpoints.has_worked(1);
        assert_eq!(endpoints.first(), First { place: 1, has_worked: true });
        assert_eq!(round().collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(endpoints.connected(), Some(endpoints.current()));
        endpoints.was_too_slow(2);
        assert_eq!(endpoints.first(), First { place: 0, has_worked: false });
    }

    #[test]
    fn a_failure_names_host_and_address() {
        let refused = io::Error::from_raw_os_error(111);
        let told = |name: Option<&str>| {
            let list = addresses(&["[::1]:8", "127.0.0.1:8"]);
            let endpoints = Endpoints::new(name.map(String::from), list);
            let mut told = String::new();
            (0..2).for_each(|place| endpoints.tell_failure(&mut told, place, &refused));
            told
        };
        let named = "localhost at [::1]:8: Connection refused, at 127.0.0.1:8: Connection refused";
        assert_eq!(told(Some("localhost")), named);
        assert_eq!(told(None), "[::1]:8: Connection refused, 127.0.0.1:8: Connection refused");
    }

    #[test]
    fn a_host_without_an_address_is_refused_with_the_remedy() {
        let error = resolved("http://no.such.host.invalid/").unwrap_err().to_string();
        assert!(error.contains("'no.such.host.invalid' has no address: check"), "{error}");
        let error = resolved("http://[fe80::1%25nosuch0]/").unwrap_err().to_string();
        assert!(error.contains("interface 'nosuch0'"), "{error}");
    }

    /// The zone is no part of what is sent: it decides where connections go.
    #[test]
    fn the_zone_of_an_address_is_its_scope() {
        for url in ["http://[fe80::1%25lo]:8/", "[fe80::1%lo]:8"] {
            let endpoints = resolved(url).unwrap();
            let Address::Ip(SocketAddr::V6(address)) = endpoints.current() else {
                panic!("{url}: {endpoints:?}");
            };
            // The loopback is the first interface of every network namespace.
            assert_eq!((address.scope_id(), endpoints.name.as_deref()), (1, None), "{url}");
        }
    }

    /// The kernel has a link-local address only together with its interface.
    #[test]
    fn a_link_local_address_of_this_machine_is_on_this_machine() {
        let all = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        // Address, interface, length of the prefix, and scope, in hexadecimal digits; then flags and a name.
        let of_a_link = all.lines().find_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_usable = words[3] == "20" && u8::from_str_radix(words[4], 16) == Ok(0x80);
            let ip = u128::from_str_radix(words[0], 16).ok().filter(|_| is_usable)?;
            Some((Ipv6Addr::from(ip), u32::from_str_radix(words[1], 16).ok()?))
        });
        let Some((ip, interface)) = of_a_link else {
            return drover_testing::skip!("no interface has a link-local address");
        };
        let is_here = |ip, interface| {
            let address = Address::Ip(SocketAddrV6::new(ip, 8, 0, interface).into());
            Endpoints::new(None, vec![address]).is_on_this_machine()
        };
        assert!(is_here(ip, interface));
        let other = Ipv6Addr::from(u128::from(ip) ^ 1);
        assert!(!is_here(other, interface) && !is_here(ip, u32::MAX));
    }

    #[test]
    fn addresses_that_no_source_reaches_are_left_out() {
        let new = || Endpoints::new(None, addresses(&["[::1]:8", "127.0.0.1:8"]));
        let few = || Warning::of(WarningCode::PortsShort, 1, "few");
        let short = || Ok((Sources::Default, Some(few())));
        let mut endpoints = new();
        let only_ipv4 = |address: &Address| match address.ip() {
            Some(SocketAddr::V4(_)) => short(),
            _ => Err(UsageError::new("--source")),
        };
        assert_eq!(endpoints.find_sources(only_ipv4).unwrap(), Some(few()));
        assert_eq!(endpoints.list[0].address, addresses(&["127.0.0.1:8"])[0]);
        new().find_sources(|_| Err(UsageError::new("--source"))).unwrap_err();
        let one_is_short = |address: &Address| match address.ip() {
            Some(SocketAddr::V4(_)) => Ok((Sources::Default, None)),
            _ => short(),
        };
        assert_eq!(new().find_sources(one_is_short).unwrap(), None);
    }
}
