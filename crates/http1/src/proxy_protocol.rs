//! The PROXY protocol, versions 1 and 2: what a proxy says of a connection before the client's first byte.
//!
//! HAProxy's specification: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. A header that is not exactly as
//! it demands is malformed, and its connection is to be closed.

// Addresses as values: core has no sockets.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The most bytes of a line of version 1, with its end (section 2.1).
const LINE_MOST: usize = 107;

/// The first bytes of version 1.
const NAME: &[u8] = b"PROXY ";

/// The first bytes of version 2 (section 2.2).
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes of version 2 before the addresses.
const FIXED: usize = 16;

/// The most bytes that [`parse`] needs to have at once.
pub const NEEDED_MOST: usize = FIXED + UNIX_ADDRESSES;

/// The bytes of a pair of addresses.
const IPV4_ADDRESSES: usize = 12;
const IPV6_ADDRESSES: usize = 36;
const UNIX_ADDRESSES: usize = 216;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Who has connected to the proxy.
    pub source: ProxySource,
    /// The bytes of the header. In version 2 it ends with extensions (TLVs), which need not be there when the rest is
    /// parsed, and are to be skipped.
    pub len: usize,
}

/// Who has connected to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxySource {
    /// The proxy itself, as for a health check, or a client that it says nothing of (`LOCAL`, `UNKNOWN`, `UNSPEC`): the
    /// peer of the connection counts.
    Peer,
    /// A client of TCP.
    Ip(SocketAddr),
    /// A client of a unix(7) socket.
    Unix,
}

/// What has come is no header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedProxyHeader;

impl std::fmt::Display for MalformedProxyHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no header of the PROXY protocol, version 1 or 2")
    }
}

impl std::error::Error for MalformedProxyHeader {}

/// Parses the header at the beginning of `input`. `None`: more bytes are needed.
///
/// # Errors
/// What has come can be the beginning of no header.
pub fn parse(input: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let begins = |with: &[u8]| input.iter().zip(with).all(|(a, b)| a == b);
    if begins(NAME) && !input.is_empty() {
        parse_line(input)
    } else if begins(SIGNATURE) {
        parse_binary(input)
    } else {
        Err(MalformedProxyHeader)
    }
}

/// Version 1: `PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n`.
fn parse_line(input: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let most = &input[..input.len().min(LINE_MOST)];
    let Some(end) = most.iter().position(|byte| b"\r\n".contains(byte)) else {
        return if input.len() < LINE_MOST { Ok(None) } else { Err(MalformedProxyHeader) };
    };
    match most[end..] {
        [b'\r', b'\n', ..] => {}
        [b'\r'] if end + 2 <= LINE_MOST => return Ok(None),
        _ => return Err(MalformedProxyHeader),
    }
    let rest = most.get(NAME.len()..end).ok_or(MalformedProxyHeader)?;
    let text = std::str::from_utf8(rest).map_err(|_| MalformedProxyHeader)?;
    let mut words = text.split(' ');
    let source = match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => ProxySource::Peer,
        Some("TCP4") => source_of_words::<Ipv4Addr>(words)?,
        Some("TCP6") => source_of_words::<Ipv6Addr>(words)?,
        _ => return Err(MalformedProxyHeader),
    };
    Ok(Some(ProxyHeader { source, len: end + 2 }))
}

/// Reads `SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT`.
fn source_of_words<'t, A: FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'t str>,
) -> Result<ProxySource, MalformedProxyHeader> {
    let mut next = || words.next().ok_or(MalformedProxyHeader);
    let (source, destination) = (next()?, next()?);
    let (source_port, destination_port) = (next()?, next()?);
    let address = |text: &str| text.parse::<A>().map_err(|_| MalformedProxyHeader);
    let (source, _) = (address(source)?, address(destination)?);
    let (port, _) = (port(source_port)?, port(destination_port)?);
    match words.next() {
        Some(_) => Err(MalformedProxyHeader),
        None => Ok(ProxySource::Ip(SocketAddr::new(source.into(), port))),
    }
}

/// A decimal number without a sign or leading zeros.
fn port(text: &str) -> Result<u16, MalformedProxyHeader> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_padded = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && !is_padded).ok_or(MalformedProxyHeader)
}

/// Version 2: signature, version and command, family and protocol, length of the rest, addresses, extensions.
fn parse_binary(input: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let Some((fixed, rest)) = input.split_first_chunk::<FIXED>() else { return Ok(None) };
    let [.., command, family, high, low] = *fixed;
    let behind = usize::from(u16::from_be_bytes([high, low]));
    let needed = match (command, family) {
        // LOCAL has any family.
        (0x20, _) | (0x21, 0x00) => 0,
        (0x21, 0x11) => IPV4_ADDRESSES,
        (0x21, 0x21) => IPV6_ADDRESSES,
        (0x21, 0x31) => UNIX_ADDRESSES,
        _ => return Err(MalformedProxyHeader),
    };
    if behind < needed {
        return Err(MalformedProxyHeader);
    }
    let Some(addresses) = rest.get(..needed) else { return Ok(None) };
    // Source and destination address, then source and destination port.
    let source = match *addresses {
        [] => ProxySource::Peer,
        [a, b, c, d, _, _, _, _, high, low, _, _] => ip([a, b, c, d], [high, low]),
        _ => match addresses.split_first_chunk::<16>() {
            Some((address, rest)) if needed == IPV6_ADDRESSES => ip(*address, [rest[16], rest[17]]),
            _ => ProxySource::Unix,
        },
    };
    Ok(Some(ProxyHeader { source, len: FIXED + behind }))
}

fn ip(address: impl Into<IpAddr>, port: [u8; 2]) -> ProxySource {
    ProxySource::Ip(SocketAddr::new(address.into(), u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_of(input: &[u8]) -> Result<Option<ProxySource>, MalformedProxyHeader> {
        Ok(parse(input)?.map(|header| header.source))
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, rest].concat()
    }

    #[test]
    fn a_line_names_the_client() {
        let ip = |text: &str| Ok(Some(ProxySource::Ip(text.parse().unwrap())));
        let line = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\nGET";
        assert_eq!(source_of(line), ip("192.0.2.7:4711"));
        assert_eq!(parse(line).unwrap().unwrap().len, line.len() - 3);
        assert_eq!(source_of(b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n"), ip("[2001:db8::7]:0"));
        assert_eq!(source_of(b"PROXY UNKNOWN\r\n"), Ok(Some(ProxySource::Peer)));
        assert_eq!(source_of(b"PROXY UNKNOWN what ever\r\n"), Ok(Some(ProxySource::Peer)));
        let ones = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let longest = format!("PROXY UNKNOWN {ones} {ones} 65535 65535\r\n");
        assert_eq!(longest.len(), LINE_MOST);
        assert_eq!(source_of(longest.as_bytes()), Ok(Some(ProxySource::Peer)));
    }

    #[test]
    fn a_line_that_is_not_exactly_right_is_malformed() {
        for wrong in [
            "PROXY TCP4 192.0.2.7 192.0.2.1 4711\r\n",
            "PROXY TCP4 192.0.2.7 192.0.2.1 4711 80 \r\n",
            "PROXY TCP4  192.0.2.7 192.0.2.1 4711 80\r\n",
            "PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\n",
            "PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\r\n",
            "PROXY TCP4 192.0.2.07 192.0.2.1 4711 80\r\n",
            "PROXY TCP4 192.0.2.7 192.0.2.1 +4711 80\r\n",
            "PROXY TCP4 192.0.2.7 192.0.2.1 04711 80\r\n",
            "PROXY TCP4 192.0.2.7 192.0.2.1 65536 80\r\n",
            "PROXY TCP4 2001:db8::7 ::1 4711 80\r\n",
            "PROXY TCP6 192.0.2.7 192.0.2.1 4711 80\r\n",
            "PROXY UDP4 192.0.2.7 192.0.2.1 4711 80\r\n",
            "PROXY \r\n",
            "PROXY\r\n",
            "proxy UNKNOWN\r\n",
            "GET / HTTP/1.1\r\n",
            " ",
        ] {
            assert_eq!(parse(wrong.as_bytes()), Err(MalformedProxyHeader), "{wrong:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(LINE_MOST - 14 - 2));
        assert_eq!(parse(format!("{long}\r\n").as_bytes()).unwrap().unwrap().len, LINE_MOST);
        assert_eq!(parse(format!("{long}x\r").as_bytes()), Err(MalformedProxyHeader));
        assert_eq!(parse(format!("{long}x").as_bytes()), Ok(None));
        assert_eq!(parse(format!("{long}xx").as_bytes()), Err(MalformedProxyHeader));
    }

    #[test]
    fn the_binary_form_names_the_client_and_may_have_extensions() {
        let ipv4 = [192, 0, 2, 7, 192, 0, 2, 1, 0x12, 0x67, 0, 80];
        let client = ProxySource::Ip("192.0.2.7:4711".parse().unwrap());
        assert_eq!(source_of(&binary(0x21, 0x11, &ipv4)), Ok(Some(client)));
        let extended = binary(0x21, 0x11, &[&ipv4[..], &[4, 0, 1, 0]].concat());
        let header = Ok(Some(ProxyHeader { source: client, len: 32 }));
        // The extensions need not be there.
        assert_eq!([parse(&extended), parse(&extended[..28])], [header; 2]);
        assert_eq!(parse(&extended[..27]), Ok(None));
        let mut ipv6 = [0; 36];
        (ipv6[15], ipv6[31], ipv6[33]) = (1, 2, 3);
        let client = ProxySource::Ip("[::1]:3".parse().unwrap());
        assert_eq!(source_of(&binary(0x21, 0x21, &ipv6)), Ok(Some(client)));
        assert_eq!(source_of(&binary(0x21, 0x31, &[0; 216])), Ok(Some(ProxySource::Unix)));
        for peer in [(0x21, 0x00), (0x20, 0x00), (0x20, 0x11), (0x20, 0xff)] {
            assert_eq!(source_of(&binary(peer.0, peer.1, &[])), Ok(Some(ProxySource::Peer)));
            assert_eq!(parse(&binary(peer.0, peer.1, &[1, 2])).unwrap().unwrap().len, 18);
        }
    }

    #[test]
    fn other_binary_forms_are_malformed() {
        // Datagrams, other families, versions and commands, and addresses that are cut.
        for (command, family) in
            [(0x21, 0x12), (0x21, 0x10), (0x21, 0x41), (0x11, 0x11), (0x22, 0x11), (0x31, 0x11)]
        {
            let input = binary(command, family, &[0; 216]);
            assert_eq!(parse(&input), Err(MalformedProxyHeader), "{command:x} {family:x}");
        }
        for (family, needed) in [(0x11, 12), (0x21, 36), (0x31, 216)] {
            let cut = binary(0x21, family, &vec![0; needed - 1]);
            assert_eq!(parse(&cut), Err(MalformedProxyHeader));
        }
        assert_eq!(parse(b"\r\n\r\n\0\r\nQUIT\r"), Err(MalformedProxyHeader));
    }
}
