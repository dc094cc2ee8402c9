//! Descriptors to test with.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A connected pair over local sockets, where an event has happened when the call
/// that causes it returns. Ours does not block.
pub(crate) fn local_pair() -> (UnixStream, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, peer)
}

/// A connected pair over TCP, whose events may take a moment. Ours does not block.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, peer)
}

/// A pair that keeps messages apart: three writes are three events, if anything
/// tells them apart. Ours does not block.
pub(crate) fn message_pair() -> (UnixDatagram, UnixDatagram) {
    let (ours, peer) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, peer)
}

/// Reads until the descriptor has no more; returns how many bytes.
#[track_caller]
pub(crate) fn drain(mut reader: impl Read) -> usize {
    let mut total = 0;
    loop {
        match reader.read(&mut [0; 4096]) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return total,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes until the descriptor takes no more.
#[track_caller]
pub(crate) fn fill(mut writer: impl Write) {
    while writer.write(&[0; 4096]).map_err(|error| error.kind()) != Err(ErrorKind::WouldBlock) {}
}

/// Reads messages until there are no more; returns how many.
#[track_caller]
pub(crate) fn drain_messages(socket: &UnixDatagram) -> usize {
    let mut count = 0;
    loop {
        match socket.recv(&mut [0; 16]) {
            Ok(_) => count += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Many descriptors and few senders that reach them all: what is unread of a
/// sender's messages counts against the sender, so each has a group.
pub(crate) struct SocketGroup {
    pub(crate) receivers: Vec<UnixDatagram>,
    addresses: Vec<SocketAddr>,
    senders: Vec<UnixDatagram>,
}

const GROUP: usize = 50;

impl SocketGroup {
    pub(crate) fn new(size: usize) -> SocketGroup {
        let mut group =
            SocketGroup { receivers: Vec::new(), addresses: Vec::new(), senders: Vec::new() };
        for _ in 0..size {
            let address = unused_address();
            let receiver = UnixDatagram::bind_addr(&address).unwrap();
            receiver.set_nonblocking(true).unwrap();
            group.receivers.push(receiver);
            group.addresses.push(address);
        }
        for _ in 0..size.div_ceil(GROUP) {
            let sender = UnixDatagram::unbound().unwrap();
            sender.set_nonblocking(true).unwrap();
            group.senders.push(sender);
        }
        group
    }

    /// Sends one message, for which the receiver must have room.
    #[track_caller]
    pub(crate) fn send(&self, to: usize) {
        assert!(self.try_send(to), "receiver {to} reads too little");
    }

    /// Sends one message unless the receiver has no room for it.
    #[track_caller]
    pub(crate) fn try_send(&self, to: usize) -> bool {
        match self.senders[to / GROUP].send_to_addr(b"x", &self.addresses[to]) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn unused_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("drover-conformance-{}-{number}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

/// How many descriptors this process may have, after asking for as many as it
/// can get.
pub(crate) fn descriptor_limit() -> u64 {
    static RAISE: Once = Once::new();
    RAISE.call_once(|| {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Moves a descriptor to the number `at` (or the next free one above it). Cases
/// run at the same time in one process: only numbers that nobody else is given
/// can be reused on purpose.
#[track_caller]
pub(crate) fn move_to(at: RawFd, fd: impl AsFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd, at).unwrap()
}

/// Numbers for one case under one mechanism: above 1024 and nobody else's. `None`
/// (and a line that says so) if the limit is too low.
pub(crate) fn reserved_numbers() -> Option<RawFd> {
    const EACH: u32 = 16;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let limit = descriptor_limit();
    // Out of reach of the case that opens ten thousand.
    let base = if limit > 16_000 { 14_000 } else { limit / 2 };
    let first = base + u64::from(NEXT.fetch_add(EACH, Ordering::Relaxed));
    if base < 1024 || first + u64::from(EACH) > limit {
        drover_testing::skip!("needs descriptors above 1024, RLIMIT_NOFILE is {limit}");
        return None;
    }
    Some(first as RawFd)
}
