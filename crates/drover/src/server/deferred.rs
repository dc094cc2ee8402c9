//! Clients that have connected and sent nothing yet, when the server is to stop.
//!
//! With TCP_DEFER_ACCEPT (tcp(7)) the kernel keeps a new connection to itself until its first bytes arrive,
//! or until it repeats its SYN-ACK, a second after the SYN. When the listening socket is closed meanwhile,
//! the kernel forgets the connection and does not tell the client, which takes it for open and loses the
//! request that it sends at last. Before its listening sockets are closed, a server therefore takes the
//! option back and waits until the kernel has handed over what it keeps: the client is then answered, or
//! sees the end of the stream before it sends.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mech::accept::Door;
use mech::socket;

/// How long the kernel may take to repeat a SYN-ACK: a second (RFC 6298, section 2.1), and some more for
/// the client's answer.
const AT_MOST: Duration = Duration::from_millis(1500);

/// How long to wait before the kernel's table is read again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a server knows of the connections that are kept from it.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// The listening sockets that defer: copies of the descriptors, which keep the sockets open.
    listeners: Mutex<Vec<OwnedFd>>,
    /// The ports in the kernel's notation; none if the server does not defer.
    ports: Vec<String>,
}

impl Deferred {
    /// Of a server that defers at `addresses`. It keeps copies of the descriptors in `doors`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub(super) fn of(doors: &[Vec<Door>], addresses: &[SocketAddr]) -> io::Result<Deferred> {
        let descriptors = doors.iter().flatten().flat_map(Door::descriptors);
        let listeners: Vec<OwnedFd> = descriptors
            .filter(|fd| socket::defers(*fd))
            .map(|fd| fd.try_clone_to_owned())
            .collect::<Result<_, _>>()?;
        let ports = addresses.iter().map(|address| format!("{:04X}", address.port())).collect();
        Ok(Deferred { listeners: Mutex::new(listeners), ports })
    }

    /// Has the kernel hand over every connection that is new from now on, and gives up the copies. Returns
    /// until when there may be connections that it has kept before.
    pub(super) fn end(&self) -> Instant {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A socket that keeps the option hands over a second late.
            let _ = socket::stop_deferring(&listener);
        }
        Instant::now() + AT_MOST
    }

    /// Whether the kernel keeps connections to itself. Never so if the server does not defer.
    pub(super) fn keeps_some(&self) -> bool {
        if self.ports.is_empty() {
            return false;
        }
        let keeps = |table| {
            let table = File::open(table).map(BufReader::new);
            let mut lines = table.into_iter().flat_map(|table| table.lines().map_while(Result::ok));
            lines.any(|line| self.is_kept(&line))
        };
        keeps("/proc/net/tcp") || keeps("/proc/net/tcp6")
    }

    /// Whether a line of the kernel's table (proc_pid_net(5)) is of a connection to this server that is not
    /// established for the kernel.
    fn is_kept(&self, line: &str) -> bool {
        const SYN_RECV: &str = "03";
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, state) = (words.next(), words.nth(1));
        let port = local.and_then(|local| Some(local.rsplit_once(':')?.1));
        state == Some(SYN_RECV) && self.ports.iter().any(|own| Some(own.as_str()) == port)
    }
}
