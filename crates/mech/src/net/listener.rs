//! Accepting.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;

use super::connection_source::ConnectionSource;
use super::contract::{AcceptRequest, Origin};
use super::{Conn, Net};
use crate::accept::ListenerHandle;

/// How many connections are accepted per wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptBatch {
    /// At most so many; the rest waits in the backlog until the next wait.
    Most(NonZeroU32),
    /// All that there are: the *multi-accept* of Chandra & Mosberger (2001).
    All,
}

/// A worker's way to new connections, in the hands of its accept coroutine.
pub struct Listener<'n> {
    conn: Conn<'n>,
    /// What is known of the connections that it hands over.
    origin: Origin,
    /// Whether it has handed one over since it last waited.
    won: Cell<bool>,
    source: ConnectionSource,
    on_loss: Option<Box<dyn Fn() + 'n>>,
    on_full: Option<Box<dyn Fn(usize) + 'n>>,
}

/// How long a listener rests when there is no room, descriptor, memory or buffer for
/// another connection, if none ends before. Those that arrive meanwhile wait in the backlog.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A mechanism that accepts by itself does so while there is room for more connections than a backlog
/// can hold: 4096, the usual limit (`net.core.somaxconn`).
const BACKLOG: isize = 4096;

/// Attempts that may fail one after the other without a rest. Some errors say that one connection is
/// lost, and last all the same: `EPERM` of a firewall or of a seccomp filter.
const FAILED_MOST: u32 = 16;

/// Whether accept(2) says that the listening socket is no use any more.
fn is_of_the_listener(error: &io::Error) -> bool {
    let broken = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::FAULT];
    Errno::from_io_error(error).is_some_and(|error| broken.contains(&error))
}

/// Whether the error may be that of one connection: accept(2) reports network errors that are
/// pending on a new socket, which mean "try the next one".
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::PERM
        )
    )
}

impl<'n> Listener<'n> {
    /// Registers a non-blocking listening socket that no other worker waits for.
    ///
    /// # Errors
    /// What the mechanism says.
    pub fn open(net: &'n Net, socket: OwnedFd) -> io::Result<Listener<'n>> {
        Listener::enter(net, socket.into())
    }

    /// Goes by the listener handle that a strategy has made for this worker.
    ///
    /// # Errors
    /// What the mechanism says: `Unsupported` if the strategy does not go with it.
    pub fn enter(net: &'n Net, handle: ListenerHandle) -> io::Result<Listener<'n>> {
        let conn = net.task();
        // Gives the slot back on every way out but the last.
        let entered = ConnectionSource::enter(&conn, handle);
        let (source, defers) =
            entered.inspect_err(|_| conn.with(|inner, slot| inner.release(slot)))?;
        let origin = if defers { Origin::AcceptedWithData } else { Origin::Accepted };
        // The first look is no answer to a wake-up.
        Ok(Listener { conn, origin, won: Cell::new(true), source, on_loss: None, on_full: None })
    }

    /// Calls `tell` whenever the worker was woken for a connection and there was
    /// none: another was faster.
    pub fn on_loss(&mut self, tell: impl Fn() + 'n) {
        self.on_loss = Some(Box::new(tell));
    }

    /// Calls `tell` whenever a connection has come for which there was no room
    /// ([`super::NetOptions::connections`]), with the number of idle ones that are closed for it.
    pub fn on_full(&mut self, tell: impl Fn(usize) + 'n) {
        self.on_full = Some(Box::new(tell));
    }

    pub(super) fn slot(&self) -> u32 {
        self.conn.key().slot
    }

    /// Accepts until the worker stops, `batch` connections per wait, and hands
    /// each to a coroutine of its own. `trouble` is told of what kept a
    /// connection from being accepted, and says whether it has done something
    /// about it: then the next attempt comes after the others' turn, otherwise after
    /// a rest. What concerns one connection alone is tried again at once; but after
    /// 16 failures in a row there is a rest, whatever they are. Where there is no
    /// room ([`super::NetOptions::connections`]), connections that have been idle
    /// longest are closed ([`Net::expire_idle`]); while none is, the next one waits.
    /// Nothing ends the loop but the stop, or a listener that is broken.
    ///
    /// # Errors
    /// Errors of the listening socket itself (`EBADF`, `EINVAL`, `ENOTSOCK`).
    pub async fn run(
        self,
        batch: AcceptBatch,
        mut trouble: impl FnMut(&io::Error) -> bool,
    ) -> io::Result<()> {
        let net = self.conn.net();
        let most = match batch {
            AcceptBatch::Most(most) => most.get(),
            AcceptBatch::All => u32::MAX,
        };
        let (mut taken, mut failed) = (0, 0);
        loop {
            let accepted = poll_fn(|_| self.poll_accept()).await;
            let Some(accepted) = accepted.transpose() else {
                // Of those that are one too many ([`Listener::make_room`]), one may be idle by now.
                match net.room() < 0 && net.expire_idle()? > 0 {
                    true => self.conn.yield_now().await,
                    false => self.pause().await,
                }
                continue;
            };
            if accepted.is_ok() {
                self.make_room().await?;
            }
            match accepted.and_then(|socket| net.adopt_from(socket, self.origin)) {
                Ok(_) => (taken, failed) = (taken + 1, 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_of_the_listener(&error) => return Err(error),
                Err(error) => {
                    failed += 1;
                    let helped = trouble(&error);
                    let again = helped || is_of_one_connection(&error);
                    if again && failed < FAILED_MOST {
                        if helped {
                            self.conn.yield_now().await;
                        }
                    } else {
                        failed = 0;
                        self.pause().await;
                        if net.stopping() {
                            return Ok(());
                        }
                    }
                }
            }
            if taken >= most {
                taken = 0;
                self.conn.yield_now().await;
            }
        }
    }

    /// Has idle connections closed if there is no room for the one that was accepted. That one is
    /// served all the same should none be idle any more.
    async fn make_room(&self) -> io::Result<()> {
        let net = self.conn.net();
        if net.room() <= 0 && !net.stopping() {
            let expired = net.expire_idle()?;
            self.on_full.iter().for_each(|tell| tell(expired));
            self.conn.yield_now().await;
        }
        Ok(())
    }

    /// Leaves what arrives to other workers, until a connection has ended or it has is_over.
    async fn pause(&self) {
        let net = self.conn.net();
        let (key, until) = (self.conn.key(), net.now() + ACCEPT_PAUSE);
        self.conn.with(|inner, index| {
            inner.driver.pause_accept(key, &mut inner.slots[index as usize]);
            inner.paused_listeners.push(index);
        });
        self.conn.set_alarm(until);
        poll_fn(|_| {
            let is_over = net.now() >= until || net.stopping();
            self.conn.with(|inner, index| {
                if is_over {
                    inner.paused_listeners.retain(|listener| *listener != index);
                }
                if inner.paused_listeners.contains(&index) {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
        })
        .await;
        // The next look is no answer to a wake-up either.
        self.won.set(true);
    }

    /// `None`: there is no room for a connection, and none is idle. `WouldBlock`: the worker stops, and
    /// what had arrived by then was taken.
    fn poll_accept(&self) -> Poll<io::Result<Option<OwnedFd>>> {
        let net = self.conn.net();
        let (last, room) = (net.stopping(), net.room());
        if room <= 0 && !last && !(room == 0 && net.has_idle()) {
            let key = self.conn.key();
            let accepted = self.conn.with(|inner, _| inner.driver.accepted(key));
            return Poll::Ready(Ok(accepted));
        }
        let poll = self.source.poll(&self.conn, AcceptRequest { ahead: room > BACKLOG, last });
        let won = self.won.replace(poll.is_ready());
        if let Some(tell) = &self.on_loss
            && poll.is_pending()
            && !won
            // Then it was woken to stop.
            && !last
            && self.source.can_lose()
        {
            tell();
        }
        poll.map_ok(Some)
    }
}
