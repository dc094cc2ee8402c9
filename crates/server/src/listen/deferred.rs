//! Clients that have connected and sent nothing yet, when the server is to stop.
//!
//! With TCP_DEFER_ACCEPT (tcp(7)) the kernel does not hand over a new connection until its first bytes arrive,
//! or until it repeats its SYN-ACK, a second after the SYN. When the listening socket is closed meanwhile,
//! the kernel forgets the connection and does not tell the client, which takes it for open and loses the
//! request that it sends at last. Before its listening sockets are closed, a server therefore takes the
//! option back ([`Deferred::end`]) and waits (`Stopper::stop_in_good_order`) until the kernel has handed over
//! what it keeps: the client is then answered, or sees the end of the stream before it sends.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use mech::accept::ListenerHandle;
use sys::socket;

use crate::Config;
use sys::tcp_table::{IPV4, IPV6, SocketState, rows};

/// How long the kernel may take to repeat a SYN-ACK: a second (RFC 6298, section 2.1), and some more for
/// the client's answer.
const AT_MOST: Duration = Duration::from_millis(1500);

/// How long to wait before the kernel's table is read again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The connections that the kernel has not handed over yet, as far as a server knows of them.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// The listening sockets that defer: copies of the descriptors, which keep the sockets open.
    listeners: Mutex<Vec<OwnedFd>>,
    /// The ports; none if the server does not defer.
    ports: Vec<u16>,
}

impl Deferred {
    /// For a server of `config` at `addresses`. Keeps copies of the descriptors in `handles`.
    ///
    /// # Errors
    /// `EMFILE`, with the remedy.
    pub(crate) fn of(
        config: &Config,
        handles: &[Vec<ListenerHandle>],
        addresses: &[SocketAddr],
    ) -> anyhow::Result<Deferred> {
        if !config.defer_accept {
            return Ok(Deferred::default());
        }
        let descriptors = handles.iter().flatten().flat_map(ListenerHandle::descriptors);
        let copies = descriptors.filter(|fd| socket::defers(*fd)).map(|fd| fd.try_clone_to_owned());
        let listeners: Result<Vec<OwnedFd>, _> = copies.collect();
        let listeners = listeners.context("too few descriptors; raise 'ulimit -n'")?;
        let ports = addresses.iter().map(SocketAddr::port).collect();
        Ok(Deferred { listeners: Mutex::new(listeners), ports })
    }

    /// Has the kernel hand over every connection that is new from now on, and closes the copies of the
    /// descriptors. Returns until when the kernel may keep connections that came before this call.
    pub(crate) fn end(&self) -> Instant {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A socket that keeps the option hands over a second late.
            let _ = socket::stop_deferring(&listener);
        }
        Instant::now() + AT_MOST
    }

    /// Whether the kernel still keeps connections; `false` if the server does not defer.
    pub(crate) fn keeps_some(&self) -> bool {
        if self.ports.is_empty() {
            return false;
        }
        let mut all = rows(IPV4).chain(rows(IPV6));
        all.any(|row| row.state == SocketState::SynReceived && self.ports.contains(&row.port))
    }
}
