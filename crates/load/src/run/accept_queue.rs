//! How many connections a server on this machine has not accepted yet.
//!
//! A connection is open for its client as soon as the kernel has completed the handshake; until the
//! server accepts it, it waits in the listening socket's queue. A queue that is full drops the next
//! handshake, which is tried again a second later, and a queue that is not empty when the window
//! begins charges the accepting to the window. The kernel shows the length of the queue as the
//! receive queue of the listening socket in `/proc/net/tcp` (proc_pid_net(5)), where listening
//! sockets come first.

use std::net::SocketAddr;

use drover_sys::socket::Address;

use drover_sys::tcp_table::{IPV4, IPV6, SocketRow, SocketState, rows};

/// Connections to `target` that wait to be accepted; `None` if its listener cannot be seen here.
pub(crate) fn waiting(target: &Address) -> Option<u32> {
    let Address::Ip(target) = *target else { return None };
    if !target.ip().is_loopback() {
        return None;
    }
    // A listener on [::] takes IPv4 connections too.
    let of_ipv4 = if target.is_ipv4() { waiting_in(rows(IPV4), target) } else { None };
    of_ipv4.or_else(|| waiting_in(rows(IPV6), target))
}

/// The sum over all listeners of `target`: with SO_REUSEPORT there are several.
fn waiting_in(rows: impl Iterator<Item = SocketRow>, target: SocketAddr) -> Option<u32> {
    let listening = rows.take_while(|row| row.state == SocketState::Listening);
    let takes = |row: &SocketRow| {
        row.port == target.port() && (row.address == target.ip() || row.address.is_unspecified())
    };
    listening.filter(takes).map(|row| row.received).reduce(|sum, more| sum + more)
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;
    use drover_sys::tcp_table::rows_of;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:0000001C 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000002 00:00000000 00000000     0        0 1 1
   2: 00000000:0050 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 1 1
   3: 0100007F:1F90 0100007F:91AB 01 00000000:000000FF 03:00000CCC 00000000     0        0 1 1
   4: 0100007F:0051 00000000:0000 0A 00000000:00000004 00:00000000 00000000     0        0 1 1
";

    fn of(table: &str, target: &str) -> Option<u32> {
        waiting_in(rows_of(table.as_bytes()), target.parse().unwrap())
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
