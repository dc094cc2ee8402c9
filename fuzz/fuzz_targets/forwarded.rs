//! Whatever a client sends, the client of its request is the address that the trusted proxy in front has seen, or the proxy
//! itself: never an address that the client has made up. Networks have the addresses that arithmetic says.
//!
//! The first line of an input has a list of networks, the second one an address, the rest is what a client sends.
#![no_main]

use std::net::IpAddr;

use drover_http1::{HeadLimits, request};
use drover_server::{ForwardedField, TrustedProxies, fuzzing};
use libfuzzer_sys::fuzz_target;

const CLIENT: &str = "203.0.113.9";
const PROXIES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// Whom the first proxy names in a head with these lines.
fn named(field: ForwardedField, lines: &[Vec<u8>]) -> Option<IpAddr> {
    let head =
        [b"GET / HTTP/1.1\r\nHost: a\r\n", &lines.join(&b"\r\n"[..])[..], b"\r\n\r\n"].concat();
    let limits = HeadLimits::default();
    let request = request::parse(&head, &limits).ok()??;
    let peer = PROXIES[0].parse().expect("an address");
    let nobody = TrustedProxies::parse("192.0.2.0/24").expect("a network");
    assert_eq!(fuzzing::forwarded_client(&nobody, field, peer, &request), None);
    let trusted = TrustedProxies::parse("10.0.0.0/8").expect("a network");
    Some(fuzzing::forwarded_client(&trusted, field, peer, &request).unwrap_or(peer))
}

fn line(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The address is in one of the networks of a list that was accepted.
fn is_in(list: &str, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let address = address.to_canonical();
    list.split(',').map(str::trim).filter(|it| *it != "unix").any(|item| {
        let (network, length) = item.split_once('/').unwrap_or((item, "128"));
        let network: IpAddr = network.parse().expect("the list was accepted");
        let (network, width) = bits(network);
        let length = length.parse::<u32>().expect("the list was accepted").min(width);
        let (address, own_width) = bits(address);
        let differ = network ^ address;
        width == own_width && differ.checked_shr(width - length).unwrap_or(0) == 0
    })
}

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(3, |byte| *byte == b'\n');
    let [list, address, sent] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    if let (Ok(trusted), Ok(address)) = (TrustedProxies::parse(text(list)), text(address).parse()) {
        assert_eq!(fuzzing::is_trusted(&trusted, address), is_in(text(list), address));
    }

    if sent.iter().any(|byte| b"\r\n\0".contains(byte)) {
        return;
    }
    let client = CLIENT.parse().ok();
    for (field, name, sign) in [
        (ForwardedField::XForwardedFor, "X-Forwarded-For: ", ""),
        (ForwardedField::Forwarded, "Forwarded: ", "for="),
    ] {
        let [name, sign, seen] = [name, sign, CLIENT].map(str::as_bytes);
        let next = PROXIES[1].as_bytes();
        // A proxy appends an element, or a line; so does the one behind it.
        for lines in [
            vec![line(&[name, sent, b", ", sign, seen])],
            vec![line(&[name, sent]), line(&[name, sign, seen])],
            vec![line(&[name, sent, b",", sign, seen, b" , ", sign, next])],
            vec![line(&[name, sent]), line(&[name, sign, seen]), line(&[name, sign, next])],
        ] {
            if let Some(named) = named(field, &lines) {
                assert_eq!(Some(named), client, "{}", lines.concat().escape_ascii());
            }
        }
    }
    // A proxy repeats what the client has sent, as a text in quotation marks (RFC 9110 section 5.6.4).
    let quoted = |byte: &u8| if b"\"\\".contains(byte) { vec![b'\\', *byte] } else { vec![*byte] };
    let quoted: Vec<u8> = sent.iter().flat_map(quoted).collect();
    let [seen, next] = [CLIENT, PROXIES[1]].map(str::as_bytes);
    for line in [
        line(&[b"Forwarded: for=", seen, b";host=\"", &quoted, b"\""]),
        line(&[b"Forwarded: proto=http;host=\"", &quoted, b"\";for=", seen]),
        line(&[b"Forwarded: host=\"", &quoted, b"\";secret=\"", &quoted, b"\"; for=", seen]),
        line(&[b"Forwarded: host=\"", &quoted, b"\";for=", seen, b", for=", next]),
    ] {
        if let Some(named) = named(ForwardedField::Forwarded, &[line.clone()]) {
            let is_true = Some(named) == client || PROXIES.contains(&&*named.to_string());
            assert!(is_true, "{named} by {}", line.escape_ascii());
        }
    }
});
