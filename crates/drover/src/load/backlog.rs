//! How many connections a server on this machine has not accepted yet.
//!
//! A connection is open for its client as soon as the kernel has completed the handshake; until the
//! server accepts it, it waits in the listening socket's queue. A queue that is full drops the next
//! handshake, which is tried again a second later, and a queue that is not empty when the window
//! begins charges the accepting to the window. The kernel shows the length of the queue as the
//! receive queue of the listening socket in `/proc/net/tcp` (proc_pid_net(5)), where listening
//! sockets come first.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mech::socket::Address;

/// Connections to `target` that wait to be accepted; `None` if its listener cannot be seen here.
pub(super) fn waiting(target: &Address) -> Option<u32> {
    let Address::Ip(target) = *target else { return None };
    if !target.ip().is_loopback() {
        return None;
    }
    let read = |table| waiting_in(BufReader::new(File::open(table).ok()?), target);
    // A listener on [::] takes IPv4 connections too.
    let of_ipv4 = if target.is_ipv4() { read("/proc/net/tcp") } else { None };
    of_ipv4.or_else(|| read("/proc/net/tcp6"))
}

fn waiting_in(table: impl BufRead, target: SocketAddr) -> Option<u32> {
    let mut total = None;
    for line in table.lines().skip(1) {
        match Listener::parse(&line) {
            // With SO_REUSEPORT there are several.
            Some(listener) if listener.takes(target) => {
                *total.get_or_insert(0) += listener.waiting;
            }
            Some(_) => {}
            None => break,
        }
    }
    total
}

struct Listener {
    address: IpAddr,
    port: u16,
    waiting: u32,
}

impl Listener {
    /// Reads a line; `None` if it is not that of a listening socket.
    fn parse(line: &io::Result<String>) -> Option<Listener> {
        const LISTEN: &str = "0A";
        let mut words = line.as_ref().ok()?.split_ascii_whitespace().skip(1);
        let (local, _remote, state, queues) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let (address, port) = local.split_once(':')?;
        let (_, received) = queues.split_once(':')?;
        (state == LISTEN).then_some(Listener {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            waiting: u32::from_str_radix(received, 16).ok()?,
        })
    }

    fn takes(&self, target: SocketAddr) -> bool {
        self.port == target.port() && (self.address == target.ip() || self.address.is_unspecified())
    }
}

/// An address as the kernel prints it: words of 32 bits in the machine's byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| -> Option<[u8; 4]> {
        Some(u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:0000001C 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000002 00:00000000 00000000     0        0 1 1
   2: 00000000:0050 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 1 1
   3: 0100007F:1F90 0100007F:91AB 01 00000000:000000FF 03:00000CCC 00000000     0        0 1 1
   4: 0100007F:0051 00000000:0000 0A 00000000:00000004 00:00000000 00000000     0        0 1 1
";

    fn of(table: &str, target: &str) -> Option<u32> {
        waiting_in(table.as_bytes(), target.parse().unwrap())
    }

    #[test]
    fn the_queues_of_the_targets_listeners_are_added_up() {
        assert_eq!(of(TABLE, "127.0.0.1:8080"), Some(30));
        assert_eq!(of(TABLE, "127.0.0.1:80"), Some(3));
        assert_eq!(of(TABLE, "127.0.0.2:8080"), None);
        // Listening sockets come first: what follows the first other one is not read.
        assert_eq!(of(TABLE, "127.0.0.1:81"), None);
        assert_eq!(of("", "127.0.0.1:81"), None);
    }

    #[test]
    fn a_listener_on_any_ipv6_address_takes_both_kinds() {
        let table = "  sl  local_address remote_address st tx_queue rx_queue\n   \
             0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A \
             00000000:00000005\n   \
             1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A \
             00000000:00000001\n";
        assert_eq!(of(table, "[::1]:80"), Some(6));
        assert_eq!(of(table, "127.0.0.1:80"), Some(5));
    }

    #[test]
    fn the_kernels_table_tells_what_was_not_accepted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(waiting(&address.into()), Some(0));
        let connections: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        assert_eq!(waiting(&address.into()), Some(3));
        listener.accept().unwrap();
        assert_eq!(waiting(&address.into()), Some(2));
        drop((connections, listener));
        assert_eq!(waiting(&address.into()), None);
    }
}
