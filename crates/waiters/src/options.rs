//! What a group of waiters is to be, and the sockets that it listens on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;
use sys::socket::{self, ListenOptions};

#[cfg(doc)]
use crate::group::WaiterGroup;
use crate::kind::WaiterKind;

/// What a group is to be.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// How the waiters wait.
    pub kind: &'static WaiterKind,
    /// How many waiters there are.
    pub waiters: u32,
    /// How many descriptors of the socket each waiter watches, the socket itself included.
    pub descriptors: u32,
    /// Whether the waiters are busy elsewhere while connections come. A busy waiter registers as its
    /// kind does, and then sleeps outside of its wait until [`WaiterGroup::let_look`] and
    /// [`WaiterGroup::let_take`].
    pub busy: bool,
    /// The name of the waiters in `/proc` and in traces, and of the thread that accepts for models: up
    /// to 15 bytes.
    pub name: String,
}

/// A listening socket whose connections leave nothing behind when they are closed: no TIME_WAIT
/// (they inherit `SO_LINGER` from it).
pub(crate) fn listener(address: SocketAddr, blocks: bool, shares: bool) -> io::Result<OwnedFd> {
    let listen = ListenOptions { reuse_port: shares, ..ListenOptions::default() };
    let listener = socket::listen(address, listen)?;
    sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    rustix::io::ioctl_fionbio(&listener, !blocks)?;
    Ok(listener)
}
