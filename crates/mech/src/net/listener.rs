//! Accepting.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;

use super::driver::Origin;
use super::source::Source;
use super::{Conn, Net};
use crate::accept::Door;

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
    way: Source,
    on_loss: Option<Box<dyn Fn() + 'n>>,
}

/// How long a listener rests when there is no descriptor, memory or buffer for
/// another connection. Those that arrive meanwhile wait in the backlog.
const REST: Duration = Duration::from_millis(50);

impl<'n> Listener<'n> {
    /// Registers a non-blocking listening socket that no other worker waits for.
    ///
    /// # Errors
    /// What the mechanism says.
    pub fn open(net: &'n Net, socket: OwnedFd) -> io::Result<Listener<'n>> {
        Listener::enter(net, socket.into())
    }

    /// Goes by the door that a strategy has made for this worker.
    ///
    /// # Errors
    /// What the mechanism says: `Unsupported` if the strategy does not go with it.
    pub fn enter(net: &'n Net, door: Door) -> io::Result<Listener<'n>> {
        let conn = net.task();
        // Gives the slot back on every way out but the last.
        let entered = Source::enter(&conn, door);
        let (way, defers) =
            entered.inspect_err(|_| conn.with(|inner, slot| inner.release(slot)))?;
        let origin = if defers { Origin::AcceptedWithData } else { Origin::Accepted };
        // The first look is no answer to a wake-up.
        Ok(Listener { conn, origin, won: Cell::new(true), way, on_loss: None })
    }

    /// Calls `tell` whenever the worker was woken for a connection and there was
    /// none: another was faster.
    pub fn on_loss(&mut self, tell: impl Fn() + 'n) {
        self.on_loss = Some(Box::new(tell));
    }

    pub(super) fn slot(&self) -> u32 {
        self.conn.key().slot
    }

    /// Accepts until the worker stops, `batch` connections per wait, and hands
    /// each to a coroutine of its own. `trouble` is told of what kept a
    /// connection from being accepted, and says whether it has done something
    /// about it: then the next attempt comes at once, otherwise after a rest.
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
        let mut taken = 0;
        loop {
            let accepted = poll_fn(|_| self.poll_accept()).await;
            match accepted.and_then(|socket| net.adopt_from(socket, self.origin)) {
                Ok(_) => taken += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => match Errno::from_io_error(&error) {
                    // accept(2): pending network errors of the new socket are
                    // reported here, and mean "try the next one".
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
                        | Errno::PERM,
                    ) => drop(trouble(&error)),
                    Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => {
                        return Err(error);
                    }
                    _ if trouble(&error) => {}
                    _ => {
                        let key = self.conn.key();
                        self.conn.with(|inner, index| {
                            inner.driver.rest(key, &mut inner.slots[index as usize]);
                        });
                        self.conn.sleep_until(net.now() + REST).await;
                        if net.stopping() {
                            return Ok(());
                        }
                    }
                },
            }
            if taken >= most {
                taken = 0;
                self.conn.yield_now().await;
            }
        }
    }

    /// `WouldBlock`: the worker stops, and what had arrived by then was taken.
    fn poll_accept(&self) -> Poll<io::Result<OwnedFd>> {
        let last = self.conn.net().stopping();
        let poll = self.way.poll(&self.conn, last);
        let won = self.won.replace(poll.is_ready());
        if let Some(tell) = &self.on_loss
            && poll.is_pending()
            && !won
            // Then it was woken to stop.
            && !last
            && self.way.can_lose()
        {
            tell();
        }
        poll
    }
}
