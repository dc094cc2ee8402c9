//! Sets up links, addresses and queueing disciplines in the network namespace of the calling thread, by rtnetlink(7).
//!
//! The messages are few and fixed, so they are written here byte by byte: crates for rtnetlink bring an asynchronous
//! runtime with them. Lengths are padded to 4 bytes. All numbers except addresses are in the machine's byte order.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Values of linux/rtnetlink.h, linux/if_link.h, linux/veth.h and linux/pkt_sched.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWQDISC: u16 = 36;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_LINKLAYER_ETHERNET: u8 = 1;
const AF_INET: u8 = 2;
/// The nested attribute flag (linux/netlink.h).
const NLA_F_NESTED: u16 = 0x8000;

/// A connection to the kernel's network configuration of the namespace that it is opened in.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        Ok(Netlink { socket })
    }

    /// Creates a pair of virtual interfaces; the second end is made in another namespace.
    pub(super) fn add_pair(
        &self,
        (name, index): (&str, u32),
        (peer_name, peer_index): (&str, u32),
        peer_namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        message.link_header(index, 0, 0);
        message.text(IFLA_IFNAME, name);
        message.nested(IFLA_LINKINFO, |message| {
            message.text(IFLA_INFO_KIND, "veth");
            message.nested(IFLA_INFO_DATA, |message| {
                message.nested(VETH_INFO_PEER, |message| {
                    message.link_header(peer_index, 0, 0);
                    message.text(IFLA_IFNAME, peer_name);
                    let fd = peer_namespace.as_raw_fd();
                    message.bytes(IFLA_NET_NS_FD, &fd.to_ne_bytes());
                });
            });
        });
        self.ask(message)
    }

    /// Switches an interface on.
    pub(super) fn up(&self, index: u32) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.link_header(index, IFF_UP, IFF_UP);
        self.ask(message)
    }

    /// Gives an interface an address.
    pub(super) fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        message.body.extend([AF_INET, prefix, 0, 0]);
        message.body.extend(index.to_ne_bytes());
        message.bytes(IFA_LOCAL, &address.octets());
        message.bytes(IFA_ADDRESS, &address.octets());
        self.ask(message)
    }

    /// Gives an interface a token bucket as its queueing discipline (tc-tbf(8)): `rate` bytes per second, `burst`
    /// bytes at once, `limit` bytes in the queue.
    pub(super) fn add_token_bucket(
        &self,
        index: u32,
        rate: u64,
        burst: u32,
        limit: u32,
    ) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE);
        message.body.extend([0; 4]);
        message.body.extend(index.to_ne_bytes());
        message.body.extend(0x0001_0000_u32.to_ne_bytes());
        message.body.extend(TC_H_ROOT.to_ne_bytes());
        message.body.extend([0; 4]);
        message.text(TCA_KIND, "tbf");
        message.nested(TCA_OPTIONS, |message| {
            // struct tc_tbf_qopt: two struct tc_ratespec, then limit, buffer and MTU. The link layer is set, so that
            // the kernel needs no table of rates (Linux 3.8).
            let mut parameters = vec![0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
            parameters.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
            parameters.extend([0; 12]);
            parameters.extend(limit.to_ne_bytes());
            parameters.extend([0; 8]);
            message.bytes(TCA_TBF_PARMS, &parameters);
            message.bytes(TCA_TBF_BURST, &burst.to_ne_bytes());
            // The 64-bit rate counts only from 2^32 bytes per second on.
            if rate > u64::from(u32::MAX) {
                message.bytes(TCA_TBF_RATE64, &rate.to_ne_bytes());
            }
        });
        self.ask(message)
    }

    /// Sends a request and reads the kernel's answer: an error number, or 0 for success.
    fn ask(&self, message: Message) -> io::Result<()> {
        let bytes = message.finish();
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut answer = [0; 4096];
        let length = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let answer = &answer[..length];
        let word = |at: usize| -> io::Result<[u8; 4]> {
            let bytes = answer.get(at..at + 4).ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok(bytes.try_into().expect("it has four bytes"))
        };
        let kind = u16::from_ne_bytes(word(4)?[..2].try_into().expect("it has two bytes"));
        if kind != NLMSG_ERROR {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        match i32::from_ne_bytes(word(16)?) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// A request that is being written.
struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        Message { kind, flags: flags | NLM_F_REQUEST | NLM_F_ACK, body: Vec::new() }
    }

    /// struct ifinfomsg.
    fn link_header(&mut self, index: u32, flags: u32, change: u32) {
        self.body.extend([0; 4]);
        for word in [index, flags, change] {
            self.body.extend(word.to_ne_bytes());
        }
    }

    fn text(&mut self, kind: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    fn bytes(&mut self, kind: u16, bytes: &[u8]) {
        let length = u16::try_from(4 + bytes.len()).expect("attributes are short");
        self.body.extend(length.to_ne_bytes());
        self.body.extend(kind.to_ne_bytes());
        self.body.extend(bytes);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message { kind: 0, flags: 0, body: Vec::new() };
        fill(&mut inner);
        self.bytes(kind | NLA_F_NESTED, &inner.body);
    }

    fn finish(self) -> Vec<u8> {
        let length = u32::try_from(16 + self.body.len()).expect("messages are short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        // Sequence number and port are 0: no other request uses the socket.
        bytes.extend([0; 8]);
        bytes.extend(self.body);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested_with_their_lengths() {
        let mut message = Message::new(7, 0);
        message.nested(5, |message| message.text(3, "ab"));
        let bytes = message.finish();
        assert_eq!(bytes.len(), 28);
        assert_eq!(bytes[..4], 28_u32.to_ne_bytes());
        assert_eq!(bytes[16..18], 12_u16.to_ne_bytes());
        assert_eq!(bytes[18..20], (5 | NLA_F_NESTED).to_ne_bytes());
        assert_eq!(bytes[20..22], 7_u16.to_ne_bytes());
        assert_eq!(bytes[24..], [b'a', b'b', 0, 0]);
    }
}
