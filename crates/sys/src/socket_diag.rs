//! Connections whose handshake is under way, from the kernel's socket monitor (sock_diag(7), `NETLINK_SOCK_DIAG`).
//!
//! The kernel compares the states itself and tells only the connections that were asked for. `/proc/net/tcp`
//! ([`crate::tcp_table`]) is a line of text for each socket of the machine, those in TIME_WAIT included: with a hundred
//! thousand of them, reading it takes some 100 ms of a processor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The lengths of `struct nlmsghdr` (netlink(7)), and of `struct inet_diag_req_v2` (sock_diag(7)).
const HEADER: usize = 16;
const REQUEST: usize = 56;

/// Types of messages, and the flags of a request for all sockets (`linux/netlink.h`, `linux/sock_diag.h`).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x1 | 0x300;

/// The bits of the states in which the kernel keeps a connection that it has answered the SYN of: for a socket of its own,
/// and since Linux 4.4 for a request without one (`net/tcp_states.h`).
const SYN_RECEIVED: u32 = 1 << 3 | 1 << 12;

/// As much as the kernel puts into one message at most.
const MESSAGE_MOST: usize = 32 * 1024;

/// Whether there are connections to the port of `listener` that accept(2) cannot return yet, because the handshake is not
/// complete, or because TCP_DEFER_ACCEPT has the kernel wait for the first bytes.
///
/// # Errors
/// `ENOENT` without `CONFIG_INET_DIAG`, `EAFNOSUPPORT` where seccomp(2) forbids sockets of `AF_NETLINK`.
pub fn has_half_open(listener: SocketAddr) -> io::Result<bool> {
    let socket = ask(listener.is_ipv4())?;
    let mut buffer = vec![0; MESSAGE_MOST];
    loop {
        let (length, _) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&socket, &mut *buffer, RecvFlags::empty())
        })?;
        let mut rest = &buffer[..length];
        while let Some((kind, body, next)) = split(rest) {
            match kind {
                NLMSG_DONE => return Ok(false),
                NLMSG_ERROR => return Err(error_of(body)),
                _ if local_port(body) == Some(listener.port()) => return Ok(true),
                _ => rest = next,
            }
        }
    }
}

/// Asks for the half-open connections of a family: a connection has the family of its listener, even if its client's
/// address is an IPv4 address mapped into IPv6.
fn ask(ipv4: bool) -> io::Result<OwnedFd> {
    let protocol = Some(netlink::SOCK_DIAG);
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
    let family = if ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut message = [0; HEADER + REQUEST];
    message[..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    message[HEADER] = family.as_raw() as u8;
    message[HEADER + 1] = rustix::net::ipproto::TCP.as_raw().get() as u8;
    message[HEADER + 4..HEADER + 8].copy_from_slice(&SYN_RECEIVED.to_ne_bytes());
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    Ok(socket)
}

/// The type and the body of the first message, and what follows it.
fn split(messages: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(messages.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(messages.get(4..6)?.try_into().ok()?);
    let body = messages.get(HEADER..length)?;
    let next = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, next))
}

/// The number of `struct nlmsgerr`, negative as the kernel returns it.
fn error_of(body: &[u8]) -> io::Error {
    let number = body.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number));
    io::Error::from_raw_os_error(-number)
}

/// `idiag_sport` of `struct inet_diag_msg`, in network byte order.
fn local_port(body: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(body.get(4..6)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::socket::adopt;

    /// A listening socket that defers, and its address. On `[::]` it takes connections of IPv4 too.
    fn deferring(address: IpAddr) -> io::Result<(OwnedFd, SocketAddr)> {
        let listener = TcpListener::bind((address, 0))?;
        Ok((adopt(listener.as_fd(), true)?, listener.local_addr()?))
    }

    /// Until its first bytes a connection to a socket that defers is half open, and no connection to another port is.
    #[test]
    fn a_connection_that_is_deferred_is_half_open_until_it_sends() {
        let (ipv4, ipv6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        for (bound, target) in [(ipv4, ipv4), (ipv6, ipv6), (Ipv6Addr::UNSPECIFIED.into(), ipv4)] {
            let Ok((listener, address)) = deferring(bound) else {
                drover_testing::skip!("no IPv6");
                continue;
            };
            let (_other, other) = deferring(bound).unwrap();
            match has_half_open(address) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    drover_testing::skip!(
                        "no socket monitor for TCP (the kernel's module tcp_diag)"
                    );
                    continue;
                }
                half_open => assert!(!half_open.unwrap(), "{bound}"),
            }
            let mut client = TcpStream::connect((target, address.port())).unwrap();
            assert!(has_half_open(address).unwrap(), "{bound}");
            assert!(!has_half_open(other).unwrap(), "{bound}");
            client.write_all(b"x").unwrap();
            let _accepted = rustix::net::accept(&listener).unwrap();
            assert!(!has_half_open(address).unwrap(), "{bound}");
        }
    }

    #[test]
    fn a_message_that_is_cut_is_none() {
        assert_eq!(split(&[0; 15]), None);
        assert_eq!(split(&[200, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(local_port(&[10, 3, 0, 0, 1]), None);
        assert_eq!(error_of(&(-2_i32).to_ne_bytes()).kind(), io::ErrorKind::NotFound);
    }
}
