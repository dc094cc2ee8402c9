//! Sockets: listening and connecting, options and counters, vectored sends.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix,
    SocketFlags, SocketType, ipproto, sockopt,
};

use crate::zone::InUrl;

/// Where a stream socket connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port of a host.
    Ip(SocketAddr),
    /// The path of a unix(7) socket.
    Unix(PathBuf),
}

impl Address {
    /// The address as the kernel takes it.
    ///
    /// # Errors
    /// `ENAMETOOLONG` for a path of more than 107 bytes, `EINVAL` for one with a NUL.
    pub fn to_kernel(&self) -> io::Result<SocketAddrAny> {
        match self {
            Address::Ip(address) => Ok(SocketAddrAny::from(*address)),
            Address::Unix(path) => Ok(SocketAddrAny::from(SocketAddrUnix::new(path)?)),
        }
    }
}

impl Address {
    /// The address of an IP socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// `http://` and the address, `https://` if TLS is spoken there, or `unix:` and the path.
    #[must_use]
    pub fn url(&self, is_tls: bool) -> String {
        match self {
            Address::Ip(_) => format!("http{}://{self}", if is_tls { "s" } else { "" }),
            Address::Unix(_) => self.to_string(),
        }
    }
}

/// `127.0.0.1:8080`, `[fe80::1%25eth0]:8080`, or `unix:/run/drover.sock`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => InUrl(*address).fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Ip(address)
    }
}

/// How a listening socket is made.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// `SO_REUSEPORT`: several sockets share the address, and the kernel spreads
    /// connections over them by a hash of the addresses.
    pub reuse_port: bool,
    /// How many connections may wait to be accepted; the kernel caps it at
    /// `net.core.somaxconn`.
    pub backlog: i32,
    /// `TCP_DEFER_ACCEPT` (tcp(7)): accept(2) returns a connection once its first bytes have arrived, so
    /// that the first receive finds them. A connection without bytes is returned when the kernel has
    /// repeated its SYN-ACK: after about a second. For protocols in which the client speaks first.
    pub defer: bool,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { reuse_port: false, backlog: 4096, defer: false }
    }
}

/// A non-blocking TCP socket that listens on `address`.
///
/// `TCP_NODELAY` is set here because accepted sockets inherit it (tcp(7)): no
/// connection pays a setsockopt(2) of its own. An IPv6 socket takes no IPv4
/// connections (`IPV6_V6ONLY`): `0.0.0.0` and `[::]` can have one port each.
///
/// # Errors
/// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` (ports below 1024), `EMFILE`.
pub fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<OwnedFd> {
    let fd = for_bind(address)?;
    sockopt::set_socket_reuseport(&fd, options.reuse_port)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if options.defer {
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1)?;
    }
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, options.backlog)?;
    Ok(fd)
}

/// A duplicate of `socket`, which another program has bound and listens with, as [`listen`] would have made it: non-blocking,
/// with `TCP_NODELAY`, and with or without `TCP_DEFER_ACCEPT` as `defer` says. A unix(7) socket has no such options.
///
/// # Errors
/// `InvalidInput`: no stream socket of TCP or unix(7), or none that listens.
pub fn adopt(socket: BorrowedFd<'_>, defer: bool) -> io::Result<OwnedFd> {
    let family = sockopt::socket_domain(socket)?;
    let is_unix = family == AddressFamily::UNIX;
    let is_known = is_unix || [AddressFamily::INET, AddressFamily::INET6].contains(&family);
    let is_stream = sockopt::socket_type(socket)? == SocketType::STREAM;
    if !is_known || !is_stream || !sockopt::socket_acceptconn(socket)? {
        let reason = "no socket of TCP, or stream socket of unix(7), that listens";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let fd = socket.try_clone_to_owned()?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    if is_unix {
        return Ok(fd);
    }
    sockopt::set_tcp_nodelay(&fd, true)?;
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, defer.into())?;
    Ok(fd)
}

/// Lets further sockets of this user listen at the address of `socket` (`SO_REUSEPORT`), although the socket was bound
/// without that option.
///
/// # Errors
/// `EBADF`.
pub fn share_port(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(socket, true)?)
}

/// A socket that is bound to `address` and does not listen. Listening sockets share the address with it by
/// `SO_REUSEPORT` ([`ListenOptions::reuse_port`]).
///
/// # Errors
/// Errors of [`listen`].
pub fn reserve(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = for_bind(address)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

/// A socket that could be bound to `address`, and is not. For finding out what the kernel offers.
///
/// # Errors
/// `EMFILE`; `EAFNOSUPPORT`; `ENOPROTOOPT`, if `reuse_port` is asked for and the kernel has no `SO_REUSEPORT`.
pub fn unbound(address: SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    let fd = for_bind(address)?;
    sockopt::set_socket_reuseport(&fd, reuse_port)?;
    Ok(fd)
}

/// Fails if a socket listens on `address` already, even a socket with `SO_REUSEPORT`
/// that would share the address: the kernel refuses to bind another without that option.
///
/// # Errors
/// Errors of [`listen`].
pub fn check_free(address: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::bind(for_bind(address)?, &address)?)
}

fn for_bind(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = tcp(address)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    Ok(fd)
}

/// A non-blocking socket to connect to `target`, sending from `source` if that
/// is given (its port may be 0; of no use towards a unix socket).
///
/// `IP_BIND_ADDRESS_NO_PORT` leaves the choice of the port to connect(2), which
/// knows the whole four-tuple: each source address then has the full range of
/// ports for each target (ip(7)).
///
/// # Errors
/// `EMFILE`; `EADDRNOTAVAIL` for a source address that this machine does not have.
pub fn for_connect(target: impl Into<Address>, source: Option<SocketAddr>) -> io::Result<OwnedFd> {
    let target = match target.into() {
        Address::Ip(target) => target,
        Address::Unix(_) => {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let family = AddressFamily::UNIX;
            return Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?);
        }
    };
    let fd = tcp(target)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(source) = source {
        set_option(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        rustix::net::bind(&fd, &source)?;
    }
    Ok(fd)
}

/// Lets connect(2) choose the local port from `ports` only (ip(7), `IP_LOCAL_PORT_RANGE`, Linux
/// 6.3). The kernel replaces an end outside `net.ipv4.ip_local_port_range` by that range's end.
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.3; `EINVAL` for a range that is empty.
pub fn limit_local_ports(fd: &OwnedFd, ports: &RangeInclusive<u16>) -> io::Result<()> {
    // linux/in.h; the libc crate lacks it.
    const IP_LOCAL_PORT_RANGE: libc::c_int = 51;
    let range = u32::from(*ports.end()) << 16 | u32::from(*ports.start());
    set_option(fd, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, range.cast_signed())
}

/// Limits the received bytes that wait in a socket (`SO_RCVBUF`, socket(7)): the peer can send no more
/// until they are read. The kernel doubles `bytes` and has a minimum. Call this function before
/// connect(2), which announces the window to the peer.
///
/// # Errors
/// Errors of setsockopt(2).
pub fn set_receive_buffer(fd: &OwnedFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?)
}

/// Makes the kernel choose among the sockets of an `SO_REUSEPORT` group by the number of the processor
/// that handles a connection's first packet: number n chooses the socket that was bound as the nth, from
/// 0. A number without a socket leaves the choice to the hash (socket(7), `SO_ATTACH_REUSEPORT_CBPF`).
///
/// # Errors
/// Errors of setsockopt(2).
pub fn choose_by_cpu(listener: BorrowedFd<'_>) -> io::Result<()> {
    // linux/filter.h: ancillary data has negative offsets.
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU).cast_unsigned();
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let ret = (libc::BPF_RET | libc::BPF_A) as u16;
    let op = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut program = [op(load, cpu), op(ret, 0)];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let len = size_of_val(&program) as libc::socklen_t;
    // SAFETY: `program` outlives the call, its length is passed, and the kernel copies it.
    crate::syscall!(setsockopt(
        listener.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        (&raw const program).cast(),
        len,
    ))
    .map(drop)
}

/// Wakes one more worker that waits for connections of a listening socket. A connection wakes one worker
/// only (`EPOLLEXCLUSIVE`, accept(2)); a worker that was woken and could not take the connection calls
/// this function, because no other worker knows of that connection.
///
/// Setting `TCP_NOTSENT_LOWAT` to its present value makes the kernel wake everyone who waits for room to
/// send (`do_tcp_setsockopt`). So the wake-up reaches only workers that asked for writability as well, or
/// that look for connections after any wake-up.
///
/// A unix(7) socket has no such option. The end of sending, which a listening socket never does, wakes all that wait for
/// it whenever it is asked for (`unix_shutdown`), and changes nothing: only the end of receiving refuses connections.
///
/// # Errors
/// Those of setsockopt(2) and shutdown(2).
pub fn wake_waiter(listener: BorrowedFd<'_>) -> io::Result<()> {
    if sockopt::socket_domain(listener)? == AddressFamily::UNIX {
        return Ok(rustix::net::shutdown(listener, Shutdown::Write)?);
    }
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    set_option(listener, level, name, get_option(listener, level, name)?)
}

/// The address that a socket is bound to.
///
/// # Errors
/// `EBADF`, `ENOTSOCK`; `InvalidData` for a socket without an IP address.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not an IP socket"))
}

/// The address or path that a socket is bound to.
///
/// # Errors
/// `EBADF`, `ENOTSOCK`; `InvalidData` for a unix(7) socket without a path, and sockets of other kinds.
pub fn bound_address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    let address = rustix::net::getsockname(fd)?;
    if let Ok(ip) = SocketAddr::try_from(address.clone()) {
        return Ok(Address::Ip(ip));
    }
    let unix = SocketAddrUnix::try_from(address).ok();
    let path = unix.as_ref().and_then(SocketAddrUnix::path_bytes);
    let path = path.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "neither an IP socket nor one with a path")
    })?;
    Ok(Address::Unix(OsStr::from_bytes(path).into()))
}

/// Sends `parts` one behind the other in one call (sendmsg(2), `MSG_NOSIGNAL`), and returns how many bytes
/// the socket took.
pub fn send_vectored(fd: BorrowedFd<'_>, parts: &[&[u8]; 2]) -> io::Result<usize> {
    let parts = [IoSlice::new(parts[0]), IoSlice::new(parts[1])];
    let mut control = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(fd, &parts, &mut control, SendFlags::NOSIGNAL)?)
}

/// Sends `head` and `bytes` behind it in one call (sendmsg(2), `MSG_NOSIGNAL`). `bytes` is no slice, because
/// other processes may change that memory, for example a mapped file.
///
/// # Safety
/// The memory of `bytes` is mapped until the call returns.
pub unsafe fn send_behind(
    fd: BorrowedFd<'_>,
    head: &[u8],
    bytes: *const [u8],
) -> io::Result<usize> {
    let part =
        |start: *const u8, len| libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
    let mut parts = [part(head.as_ptr(), head.len()), part(bytes.cast(), bytes.len())];
    // SAFETY: a msghdr of zeroes is valid: it has no address, no parts and no control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    // SAFETY: the header, the parts and the bytes outlive the call, and the kernel only reads them.
    let sent = crate::syscall!(sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL))?;
    Ok(sent as usize)
}

fn tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

/// Whether this listener returns connections with their first bytes
/// ([`ListenOptions::defer`]).
#[must_use]
pub fn defers(listener: BorrowedFd<'_>) -> bool {
    get_option(listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT).is_ok_and(|seconds| seconds > 0)
}

/// Ends deferring ([`ListenOptions::defer`]): from now on the listening socket returns connections as soon
/// as they are established. A connection that the kernel keeps back already still comes with its first
/// bytes, or when its SYN-ACK is repeated: a second after the SYN.
///
/// # Errors
/// `ENOPROTOOPT` or `EOPNOTSUPP` if the socket is no TCP socket.
pub fn stop_deferring(listener: impl AsFd) -> io::Result<()> {
    set_option(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 0)
}

/// How much of the sent data a peer has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Bytes that the peer has acknowledged.
    pub bytes: u64,
    /// For how long there were bytes that the peer had not acknowledged.
    pub busy: Duration,
}

/// How much the peer of a TCP socket has acknowledged since it connected; `None` if the kernel does not
/// tell: for other sockets, and before Linux 4.10.
pub fn delivered(fd: BorrowedFd<'_>) -> Option<Delivered> {
    // `struct tcp_info` of linux/tcp.h as 64-bit words; libc has only its beginning. Two of the words
    // are `tcpi_bytes_acked` (Linux 4.1) and `tcpi_busy_time` in microseconds (Linux 4.10).
    const BYTES_ACKED: usize = 120 / 8;
    const BUSY_TIME: usize = 168 / 8;
    let mut words = [0u64; BUSY_TIME + 1];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let (place, len_place) = ((&raw mut words).cast(), &raw mut len);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: both pointers are to variables that outlive the call, and `len` is the value's size.
    crate::syscall!(getsockopt(fd.as_raw_fd(), level, name, place, len_place)).ok()?;
    (len as usize == size_of_val(&words)).then(|| Delivered {
        bytes: words[BYTES_ACKED],
        busy: Duration::from_micros(words[BUSY_TIME]),
    })
}

fn get_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (place, len) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: both pointers are to variables that outlive the call, and `len` is the value's size.
    crate::syscall!(getsockopt(fd.as_raw_fd(), level, name, place, len))?;
    Ok(value)
}

fn set_option(
    fd: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to a c_int that outlives the call, and the length says so.
    crate::syscall!(setsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), len))
        .map(drop)
}

/// The addresses of the interfaces that are up, without link-local addresses (`fe80::`): the addresses
/// that this machine and other machines can connect to.
///
/// # Errors
/// `Unsupported`: a filter of system calls forbids to ask for them, as systemd's `RestrictAddressFamilies=` does without
/// `AF_NETLINK`. Other errors of getifaddrs(3).
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let interfaces = nix::ifaddrs::getifaddrs().map_err(|errno| match errno {
        nix::Error::EAFNOSUPPORT => io::ErrorKind::Unsupported.into(),
        errno => io::Error::from(errno),
    })?;
    let usable = interfaces.filter(|it| it.flags.contains(InterfaceFlags::IFF_UP));
    let ip = |address: SockaddrStorage| match (address.as_sockaddr_in(), address.as_sockaddr_in6())
    {
        (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
        (_, Some(v6)) => Some(IpAddr::V6(v6.ip())).filter(|_| !v6.ip().is_unicast_link_local()),
        _ => None,
    };
    Ok(usable.filter_map(|interface| ip(interface.address?)).collect())
}

/// Whether listening has failed because this machine does not have the address, or does not support its
/// family. A caller that listens on all addresses of a name then goes on with the next address.
#[must_use]
pub fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_address_that_is_shared_is_not_free() {
        let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        // An address that no other test uses: between the calls the port is free for anyone.
        let first = listen("127.0.87.1:0".parse().unwrap(), options).unwrap();
        let address = local_address(first.as_fd()).unwrap();
        let second = listen(address, options).unwrap();
        let error = check_free(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop((first, second));
        check_free(address).unwrap();
    }
}
