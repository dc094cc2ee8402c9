//! The host of a request is found among names and wildcards as a reader of plain lists finds it; a host that can be named in a
//! flag is found by that name; only addresses, localhost and the hosts that are named are answered where others are refused.
//!
//! The first line of an input has the patterns, with blanks between them, the second one the authority.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr};

use drover_server::{HostPattern, fuzzing};
use libfuzzer_sys::fuzz_target;

/// The host in lower case, without port, zone and the dot at its end.
fn host(authority: &[u8]) -> Vec<u8> {
    let authority = authority.to_ascii_lowercase();
    let brackets = authority.iter().rposition(|byte| *byte == b']').map_or(0, |end| end + 1);
    let port = authority[brackets..].iter().position(|byte| *byte == b':');
    let host = &authority[..port.map_or(authority.len(), |at| brackets + at)];
    host.strip_suffix(b".").unwrap_or(host).to_vec()
}

/// The address in brackets.
fn ipv6(host: &[u8]) -> Option<Ipv6Addr> {
    let inside = host.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let address = inside.split(|byte| *byte == b'%').next()?;
    std::str::from_utf8(address).ok()?.parse().ok()
}

fn find(patterns: &[String], authority: &[u8]) -> Option<usize> {
    let host = host(authority);
    if host.len() > 253 {
        return None;
    }
    if let Some(address) = ipv6(&host) {
        return patterns.iter().position(|it| ipv6(it.as_bytes()) == Some(address));
    }
    if let Some(whole) = patterns.iter().position(|it| it.as_bytes() == host) {
        return Some(whole);
    }
    let is_beneath = |pattern: &str| {
        let parent = pattern.strip_prefix('*').map(str::as_bytes);
        parent.is_some_and(|parent| host.ends_with(parent) && host.len() > parent.len())
    };
    let beneath = patterns.iter().enumerate().filter(|(_, it)| is_beneath(it));
    beneath.max_by_key(|(_, it)| it.len()).map(|(at, _)| at)
}

fuzz_target!(|input: &[u8]| {
    let line_end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (patterns, authority) = input.split_at(line_end);
    let authority = authority.strip_prefix(b"\n").unwrap_or_default();
    let Ok(patterns) = std::str::from_utf8(patterns) else { return };
    let patterns: Vec<HostPattern> = patterns.split(' ').filter_map(|it| it.parse().ok()).collect();
    let names: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    for (pattern, name) in patterns.iter().zip(&names) {
        assert_eq!(name.parse().as_ref(), Ok(pattern));
    }
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    let found = match fuzzing::host_of(&patterns, authority) {
        Ok(found) => found.map(|it| it as usize),
        Err(pattern) => return assert_eq!(Some(&pattern.to_string()), twice.map(|(_, it)| it)),
    };
    assert_eq!(twice, None);
    assert_eq!(found, find(&names, authority), "{names:?}");

    if let Some(pattern) = fuzzing::nameable_host(authority) {
        assert_eq!(fuzzing::host_of(&[pattern], authority), Ok(Some(0)));
    }
    let host = host(authority);
    let text = std::str::from_utf8(&host).unwrap_or("other");
    let is_address = ipv6(&host).is_some() && !host.contains(&b'%');
    let is_own =
        is_address || ["", "localhost"].contains(&text) || text.parse::<Ipv4Addr>().is_ok();
    assert_eq!(fuzzing::is_allowed_host(&patterns, authority), is_own || found.is_some());
});
