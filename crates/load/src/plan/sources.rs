//! From which local addresses connections come.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use drover_usage::UsageError;

use crate::warning::{Warning, WarningCode};

/// From which local addresses connections come.
///
/// A connection is its two addresses and ports, so one source address reaches one target as often
/// as there are ephemeral ports (ip(7), `ip_local_port_range`). All of 127.0.0.0/8 is local, so
/// towards a loopback address there is no shortage of source addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// The kernel chooses.
    Default,
    /// The addresses of this list, in turn.
    Listed(Arc<[IpAddr]>),
    /// Loopback addresses, one after the other, each for a number of connections.
    Spread {
        /// Connections per address.
        each: u32,
    },
}

/// The part of the ports that is used per address. The kernel takes long to find the last free ports,
/// and other programs use ports too.
const USABLE_PORTS: f64 = 0.7;

/// Over how many addresses connections are spread that are opened again and again. The side that
/// closes first keeps the port for a minute (TIME_WAIT).
const CHURN_ADDRESSES: u32 = 32;

impl Sources {
    /// Finds a way to have `connections` at once from here to `target`, from the addresses `asked`
    /// for if there are any, and warns if local ports will run short; `churn`:
    /// connections are opened again and again.
    pub(crate) fn find(
        target: IpAddr,
        connections: u32,
        churn: bool,
        ports: u32,
        asked: &[IpAddr],
    ) -> Result<(Sources, Option<Warning>), UsageError> {
        let own: Arc<[IpAddr]> =
            asked.iter().copied().filter(|source| source.is_ipv4() == target.is_ipv4()).collect();
        if own.is_empty() && !asked.is_empty() {
            let family = if target.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(UsageError::new(format!(
                "--source: no address there is of the kind of {target}: add an {family} one"
            )));
        }
        let usable = (f64::from(ports) * USABLE_PORTS) as u32;
        let is_ipv4_loopback = matches!(target, IpAddr::V4(address) if address.is_loopback());
        if own.is_empty() && is_ipv4_loopback && (connections > usable || churn) {
            let most = if churn { connections.div_ceil(CHURN_ADDRESSES) } else { usable };
            return Ok((Sources::Spread { each: most.min(usable).max(1) }, None));
        }
        let addresses = own.len().max(1) as u32;
        let shortage = (connections.div_ceil(addresses) > ports).then(|| {
            let text = format!(
                "{connections} connections to {target} need more than the {ports} local ports of \
                 {addresses} address{}: ask for fewer (--connections, --idle), give more addresses \
                 of this machine (--source), widen net.ipv4.ip_local_port_range, or use a target \
                 in 127.0.0.0/8, for which the source addresses are spread",
                if addresses == 1 { "" } else { "es" }
            );
            let missing = u64::from(connections) - u64::from(addresses) * u64::from(ports);
            Warning::of(WarningCode::PortsShort, missing, text)
        });
        Ok((if own.is_empty() { Sources::Default } else { Sources::Listed(own) }, shortage))
    }

    /// The source address of connection `number`; `None`: the kernel chooses.
    pub(crate) fn of(&self, number: u32) -> Option<SocketAddr> {
        match self {
            Sources::Default => None,
            Sources::Listed(addresses) => {
                Some(SocketAddr::from((addresses[number as usize % addresses.len()], 0)))
            }
            Sources::Spread { each } => {
                let host = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 1)) + number / each);
                Some(SocketAddr::from((host, 0)))
            }
        }
    }
}

/// Local addresses to send from, as `--source` takes them, and local ports, as `--local-ports` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceList {
    addresses: Vec<IpAddr>,
    ports: Option<LocalPorts>,
}

impl SourceList {
    /// The addresses of this list, with only `ports` of each.
    #[must_use]
    pub fn with_ports(self, ports: Option<LocalPorts>) -> SourceList {
        SourceList { ports, ..self }
    }

    /// How many ports each address has.
    pub(crate) fn ports_each(&self) -> u32 {
        match &self.ports {
            None => machine_ports().map_or(DEFAULT_PORTS, |ports| ports.len() as u32),
            Some(LocalPorts(ports)) => ports.len() as u32,
        }
    }

    /// Makes `socket` choose its port from the list.
    pub(crate) fn limit_ports(&self, socket: &OwnedFd) -> io::Result<()> {
        match &self.ports {
            None => Ok(()),
            Some(LocalPorts(ports)) => drover_sys::socket::limit_local_ports(socket, ports),
        }
    }
}

/// Some of the ports that the kernel gives out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPorts(RangeInclusive<u16>);

impl std::str::FromStr for LocalPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<LocalPorts, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => first..=last,
            _ => return Err(format!("'{text}' is no range of ports: write it as 40000-40999")),
        };
        if let Some(all) = machine_ports()
            && !(all.contains(ports.start()) && all.contains(ports.end()))
        {
            let (first, last) = (all.start(), all.end());
            return Err(format!(
                "the kernel gives out ports {first} to {last} (net.ipv4.ip_local_port_range): \
                 choose from those, or widen the range"
            ));
        }
        let probe =
            drover_sys::socket::for_connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), None);
        probe
            .and_then(|probe| drover_sys::socket::limit_local_ports(&probe, &ports))
            .map_err(|error| format!("it needs Linux 6.3 or later ({error}); go without it"))?;
        Ok(LocalPorts(ports))
    }
}

/// How many addresses a prefix may stand for.
const LARGEST_PREFIX: u32 = 1 << 16;

impl std::ops::Deref for SourceList {
    type Target = [IpAddr];

    fn deref(&self) -> &[IpAddr] {
        &self.addresses
    }
}

/// Fails unless `address`, of which the port does not count, is one of this machine's: no other can be bound. A link-local one
/// needs its zone. UDP takes no port of TCP's.
pub(super) fn check_is_own(mut address: SocketAddr) -> io::Result<()> {
    address.set_port(0);
    UdpSocket::bind(address).map(drop)
}

impl std::str::FromStr for SourceList {
    type Err = String;

    fn from_str(text: &str) -> Result<SourceList, String> {
        let mut addresses = Vec::new();
        for part in text.split(',') {
            expand(part.trim(), &mut addresses)?;
        }
        for address in &addresses {
            check_is_own((*address, 0).into())
                .map_err(|error| format!("{address} is no address of this machine ({error})"))?;
        }
        Ok(SourceList { addresses, ports: None })
    }
}

/// Adds the addresses that `ADDR` or `ADDR/PREFIX` stands for: all of the prefix but, in IPv4, the
/// first and the last, which name the network and its broadcast (RFC 1122 section 3.2.1.3).
fn expand(part: &str, addresses: &mut Vec<IpAddr>) -> Result<(), String> {
    let wrong = || format!("'{part}' is no address: write 127.0.2.1,127.0.2.2 or 127.0.2.0/28");
    let Some((address, prefix)) = part.split_once('/') else {
        addresses.push(part.parse().map_err(|_| wrong())?);
        return Ok(());
    };
    let prefix: u32 = prefix.parse().map_err(|_| wrong())?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let (bits, width): (u128, u32) = match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let free = width.checked_sub(prefix).ok_or_else(wrong)?;
    let count =
        1u32.checked_shl(free).filter(|count| *count <= LARGEST_PREFIX).ok_or_else(|| {
            format!("'{part}' stands for too many addresses: at most {LARGEST_PREFIX} are used")
        })?;
    let first = bits & !(u128::from(count) - 1);
    let spared = u128::from(address.is_ipv4() && free > 1);
    for bits in first + spared..first + u128::from(count) - spared {
        addresses.push(match address {
            IpAddr::V4(_) => Ipv4Addr::from(bits as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from(bits).into(),
        });
    }
    Ok(())
}

/// How many ephemeral ports a machine gives out that was not told otherwise.
const DEFAULT_PORTS: u32 = 28_232;

/// The ephemeral ports that this machine gives out (ip(7)), as far as it says so.
fn machine_ports() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut words = text.split_whitespace();
    Some(words.next()?.parse().ok()?..=words.next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_addresses_are_spread_when_ports_run_short() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let find = |target, connections, churn| {
            Sources::find(target, connections, churn, 1000, &[]).unwrap()
        };
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
        let shortage = shortage.unwrap().text;
        assert!(shortage.contains("--connections") && shortage.contains("127.0.0.0/8"));
    }

    #[test]
    fn listed_addresses_take_turns_and_must_be_enough() {
        let mut asked: SourceList = "127.0.2.1, 127.0.3.0/30".parse().unwrap();
        // Which not every machine has, and which is refused there.
        asked.addresses.insert(1, Ipv6Addr::LOCALHOST.into());
        let texts: Vec<String> = asked.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["127.0.2.1", "::1", "127.0.3.1", "127.0.3.2"]);
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let find = |target, connections| Sources::find(target, connections, false, 100, &asked);
        let (sources, shortage) = find(loopback, 300).unwrap();
        assert_eq!(sources.of(0), Some("127.0.2.1:0".parse().unwrap()));
        assert_eq!(sources.of(5), Some("127.0.3.2:0".parse().unwrap()));
        assert_eq!(shortage, None);
        let shortage = find(loopback, 301).unwrap().1.unwrap();
        assert_eq!((shortage.code, shortage.count), (WarningCode::PortsShort, Some(1)));
        let shortage = shortage.text;
        assert!(shortage.contains("--source") && shortage.contains("3 addresses"), "{shortage}");
        assert_eq!(find(Ipv6Addr::LOCALHOST.into(), 100).unwrap().1, None);
        let only: SourceList = "127.0.2.1".parse().unwrap();
        let six = Ipv6Addr::LOCALHOST.into();
        let error = Sources::find(six, 1, false, 100, &only).unwrap_err().to_string();
        assert!(error.contains("IPv6"), "{error}");
    }

    #[test]
    fn ports_are_some_of_those_that_the_kernel_gives_out() {
        for text in ["", "x", "5-4", "1-70000", "-"] {
            let error = text.parse::<LocalPorts>().unwrap_err();
            assert!(error.contains("is no range of ports"), "{text}: {error}");
        }
        let all = machine_ports().unwrap();
        let below = all.start() - 1;
        let error = format!("{below}-{}", all.end()).parse::<LocalPorts>().unwrap_err();
        assert!(error.contains("ip_local_port_range"), "{error}");
        let list = SourceList::default();
        assert_eq!(list.ports_each(), all.len() as u32);
        assert_eq!(list.with_ports(Some(LocalPorts(40_000..=40_009))).ports_each(), 10);
    }

    #[test]
    fn addresses_that_are_not_ours_are_refused() {
        for (text, reason) in [
            ("", "is no address:"),
            ("localhost", "is no address:"),
            ("127.0.0.1/33", "is no address:"),
            ("127.0.0.1/8", "too many"),
            ("::/64", "too many"),
            ("192.0.2.1", "no address of this machine"),
        ] {
            let error = text.parse::<SourceList>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let single: SourceList = "127.0.0.9/32".parse().unwrap();
        assert_eq!(*single, [IpAddr::from([127, 0, 0, 9])]);
    }
}
