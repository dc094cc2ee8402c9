//! The options of a group of waiters, and its listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use drover_sys::socket::{self, ListenOptions};
use rustix::net::sockopt;

#[cfg(doc)]
use crate::group::WaiterGroup;
use crate::kind::WaiterKind;

/// The options of a group of waiters.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// How the waiters wait.
    pub kind: &'static WaiterKind,
    /// How many waiters there are.
    pub waiters: u32,
    /// How many descriptors of the listening socket each waiter watches: 1, or more with duplicates.
    pub descriptors: u32,
    /// Whether the waiters are busy while connections come. A busy waiter registers with the kernel as its
    /// kind does, and then sleeps on a futex, outside of its waiting system call, until
    /// [`WaiterGroup::let_look`] or [`WaiterGroup::let_take`].
    pub busy: bool,
    /// The name of the waiters, and of a model's accepting thread, in `/proc` and in traces. At most 15
    /// bytes (prctl(2), `PR_SET_NAME`).
    pub name: String,
}

/// Makes a listening socket. Its connections inherit `SO_LINGER` with a time of 0, so that close(2) resets
/// them, and no connection stays in TIME_WAIT.
pub(crate) fn listener(address: SocketAddr, blocks: bool, shares: bool) -> io::Result<OwnedFd> {
    let listen = ListenOptions { reuse_port: shares, ..ListenOptions::default() };
    let listener = socket::listen(address, listen)?;
    sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    rustix::io::ioctl_fionbio(&listener, !blocks)?;
    Ok(listener)
}
