//! The kernel's tables of TCP sockets, `/proc/net/tcp` and `/proc/net/tcp6` (proc_pid_net(5)).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The table of sockets of IPv4.
pub const IPV4: &str = "/proc/net/tcp";

/// The table of sockets of IPv6. A socket on `[::]` may take IPv4 connections too.
pub const IPV6: &str = "/proc/net/tcp6";

/// The state of a socket; states that nobody here needs are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// The kernel has answered a SYN; accept(2) cannot return the connection yet.
    SynReceived,
    /// The socket listens for connections.
    Listening,
    /// Any other state.
    Other,
}

/// A line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketRow {
    /// The socket's own address.
    pub address: IpAddr,
    /// The socket's own port.
    pub port: u16,
    /// The socket's state.
    pub state: SocketState,
    /// The length of the receive queue, in bytes. For a listening socket: how many connections wait to be
    /// accepted.
    pub received: u32,
}

/// The rows of a table, listening sockets first. No rows if the kernel does not have the table.
pub fn rows(table: &str) -> impl Iterator<Item = SocketRow> {
    File::open(table).into_iter().flat_map(|table| rows_of(BufReader::new(table)))
}

/// The rows of a table, up to the first line that cannot be read as a row.
pub fn rows_of(table: impl BufRead) -> impl Iterator<Item = SocketRow> {
    table.lines().skip(1).map_while(|line| SocketRow::parse(&line.ok()?))
}

impl SocketRow {
    fn parse(line: &str) -> Option<SocketRow> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state, queues) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let (address, port) = local.split_once(':')?;
        let (_, received) = queues.split_once(':')?;
        Some(SocketRow {
            address: parse_address(address)?,
            port: u16::from_str_radix(port, 16).ok()?,
            state: match state {
                "03" => SocketState::SynReceived,
                "0A" => SocketState::Listening,
                _ => SocketState::Other,
            },
            received: u32::from_str_radix(received, 16).ok()?,
        })
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

    #[test]
    fn rows_tell_address_state_and_queue() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:0000001C 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F90 0100007F:91AB 03 00000000:00000000 01:00000CCC 00000000     0        0 0 1
   2: 0100007F:1F90 0100007F:91AC 01 00000000:000000FF 03:00000CCC 00000000     0        0 1 1
";
        let rows: Vec<SocketRow> = rows_of(table.as_bytes()).collect();
        let states = [SocketState::Listening, SocketState::SynReceived, SocketState::Other];
        assert_eq!(rows.iter().map(|row| row.state).collect::<Vec<_>>(), states);
        assert_eq!((rows[0].address, rows[0].port), (IpAddr::from([127, 0, 0, 1]), 8080));
        assert_eq!((rows[0].received, rows[2].received), (28, 255));
        assert_eq!(rows_of("head\nno row\n".as_bytes()).count(), 0);
    }
}
