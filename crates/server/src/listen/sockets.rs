//! The sockets that a server listens with, and clients that have connected and sent nothing yet when it is to stop.
//!
//! A server keeps duplicates of its listening sockets for the workers that succeed the present ones
//! ([`ListeningSockets::all`]). They are closed before the workers are told to stop, so that a socket is closed for
//! good when its last worker has taken what waits in it.
//!
//! With TCP_DEFER_ACCEPT (tcp(7)) the kernel does not hand over a new connection until its first bytes arrive,
//! or until it repeats its SYN-ACK, a second after the SYN. When the listening socket is closed meanwhile,
//! the kernel forgets the connection and does not tell the client, which takes it for open and loses the
//! request that it sends at last. Before its listening sockets are closed, a server therefore takes the
//! option back ([`ListeningSockets::close`]) and waits (`Supervisor::stop_after_deferred`) until the kernel has handed over
//! what it keeps: the client is then answered, or sees the end of the stream before it sends.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_sys::socket;
use drover_sys::socket_diag::has_half_open;
use drover_sys::tcp_table::{IPV4, IPV6, SocketState, rows};

/// How long the kernel may take to repeat a SYN-ACK: a second (RFC 6298, section 2.1), and some more for
/// the client's answer.
const AT_MOST: Duration = Duration::from_millis(1500);

/// How long to wait before the kernel is asked again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The sockets that a server listens with: duplicates of their descriptors, which keep the sockets open.
#[derive(Debug, Default)]
pub(crate) struct ListeningSockets {
    sockets: Vec<Arc<OwnedFd>>,
    /// The addresses of sockets that deferred until they were closed here.
    deferred: Vec<SocketAddr>,
}

impl From<Vec<OwnedFd>> for ListeningSockets {
    fn from(sockets: Vec<OwnedFd>) -> ListeningSockets {
        let sockets = sockets.into_iter().map(Arc::new).collect();
        ListeningSockets { sockets, deferred: Vec::new() }
    }
}

impl ListeningSockets {
    /// All of them; none after [`ListeningSockets::close`].
    pub(crate) fn all(&self) -> Vec<Arc<OwnedFd>> {
        self.sockets.clone()
    }

    /// Has the kernel hand over every connection that is new from now on, and closes the duplicates. Returns until when
    /// the kernel may keep connections that came before this call.
    pub(crate) fn close(&mut self) -> Instant {
        for socket in self.sockets.drain(..).filter(|socket| socket::defers(socket.as_fd())) {
            // A socket that keeps the option hands over a second late.
            let _ = socket::stop_deferring(&socket);
            self.deferred.extend(socket::local_address(socket.as_fd()));
        }
        Instant::now() + AT_MOST
    }

    /// Whether the kernel still keeps connections of sockets that have been closed here; `false` if none deferred.
    pub(crate) fn keep_some(&self) -> bool {
        self.deferred.iter().any(|&listener| {
            // The kernel may lack its socket monitor, or a service manager forbid it.
            has_half_open(listener).unwrap_or_else(|_| has_half_open_in_table(listener))
        })
    }
}

/// [`has_half_open`] by the kernel's table of all sockets.
fn has_half_open_in_table(listener: SocketAddr) -> bool {
    let mut rows = rows(if listener.is_ipv4() { IPV4 } else { IPV6 });
    rows.any(|row| row.state == SocketState::SynReceived && row.port == listener.port())
}
