//! Accepting: a listener takes connections and gives each to a coroutine.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::connection_source::ConnectionSource;
use super::contract::{AcceptRequest, SocketOrigin};
use super::{Conn, Net};
use crate::accept::ListenerHandle;

/// How many connections are accepted per wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptBatch {
    /// At most this many; more connections stay in the backlog until the next wait.
    Most(NonZeroU32),
    /// All connections that are there: the *multi-accept* of Chandra & Mosberger (2001).
    All,
}

impl AcceptBatch {
    fn most(self) -> u32 {
        match self {
            AcceptBatch::Most(most) => most.get(),
            AcceptBatch::All => u32::MAX,
        }
    }
}

/// A worker's listener, owned by its accept coroutine.
pub struct Listener<'n> {
    conn: Conn<'n>,
    /// What is known of the connections that the listener accepts.
    origin: SocketOrigin,
    /// Whether the listener has accepted a connection since it last waited.
    won: Cell<bool>,
    /// How many of the next looks for a connection answer no wake-up, so that none of them is a lost race.
    unwoken: Cell<u8>,
    source: ConnectionSource,
    /// Whether the kernel keeps the listening socket's connections back until their first bytes have come.
    defers: Cell<bool>,
    on_loss: Option<Box<dyn Fn() + 'n>>,
    on_full: Option<Box<dyn Fn(usize, bool) + 'n>>,
    on_batch: Option<Box<dyn Fn() + 'n>>,
}

/// How long a listener pauses when there is no room, descriptor, memory or buffer for another
/// connection. A connection that ends before ends the pause. New connections wait in the backlog.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A completion mechanism accepts connections ahead only while the worker has room for more than a full
/// backlog: 4096 connections, the usual limit (`net.core.somaxconn`).
const BACKLOG: isize = 4096;

/// How many attempts may fail in a row without a pause. Some errors look like those of one connection but
/// do not pass, for example `EPERM` of a firewall or of a seccomp filter.
const FAILED_MOST: u32 = 16;

/// How long after its begin a listener looks whether a connection waits that nobody was woken for.
///
/// An accept request of io_uring waits in the socket's queue as one of those of whom a connection wakes only the first
/// (`poll_exclusive` in io_uring/opdef.c). When a worker process is killed, the kernel takes its ring apart some time after the
/// process has ended (`io_ring_exit_work`). A connection that comes meanwhile wakes that ring and nobody else, and would
/// wait until another one comes. The worker that takes the place of the dead one therefore looks by itself.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(25),
];

/// The looks that a listener has still to make by itself ([`LOOKS`]).
struct LooksAhead {
    begin: Instant,
    left: std::slice::Iter<'static, Duration>,
}

impl LooksAhead {
    fn new(begin: Instant) -> LooksAhead {
        LooksAhead { begin, left: LOOKS.iter() }
    }

    /// Makes the deadline of the listener's `conn` the time of the next look. The coarse timers are used because an alarm
    /// costs a reading of the clock in every turn.
    fn set_next(&mut self, conn: &Conn<'_>) {
        let at = self.left.next().map(|after| self.begin + *after);
        conn.set_deadline(at.map(|at| at.saturating_duration_since(conn.net().now())));
    }
}

/// Whether an error of accept(2) means that the listening socket is broken.
fn is_of_the_listener(error: &io::Error) -> bool {
    let broken = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::FAULT];
    Errno::from_io_error(error).is_some_and(|error| broken.contains(&error))
}

/// Whether an error of accept(2) may concern one connection only: accept(2) reports network errors that
/// are pending on a new socket. The caller then tries the next connection.
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

impl fmt::Debug for Listener<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("conn", &self.conn)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl<'n> Listener<'n> {
    /// Registers a non-blocking listening socket that no other worker waits for.
    ///
    /// # Errors
    /// Errors of registering the socket with the mechanism.
    pub fn open(net: &'n Net, socket: OwnedFd) -> io::Result<Listener<'n>> {
        Listener::enter(net, socket.into())
    }

    /// Makes the listener from the handle that an accept strategy has made for this worker.
    ///
    /// # Errors
    /// Errors of registering with the mechanism; `Unsupported` if the strategy does not go with the
    /// mechanism.
    pub fn enter(net: &'n Net, handle: ListenerHandle) -> io::Result<Listener<'n>> {
        let (conn, listener) = (net.task(), handle.address());
        // `conn` gives the slot back if one of the following calls fails.
        let entered = ConnectionSource::enter(&conn, handle);
        let (source, defers) =
            entered.inspect_err(|_| conn.with(|inner, slot| inner.release(slot)))?;
        let origin = match defers {
            true => SocketOrigin::AcceptedWithData { listener },
            false => SocketOrigin::Accepted { listener },
        };
        // `won` is true at first: the first look does not answer a wake-up, so it cannot be a lost race.
        let won = Cell::new(true);
        let unwoken = Cell::new(0);
        Ok(Listener {
            conn,
            origin,
            won,
            unwoken,
            source,
            defers: Cell::new(defers),
            on_loss: None,
            on_full: None,
            on_batch: None,
        })
    }

    /// Sets a function that is called whenever the worker was woken for a connection and there was
    /// none: another worker was faster.
    pub fn on_loss(&mut self, tell: impl Fn() + 'n) {
        self.on_loss = Some(Box::new(tell));
    }

    /// Sets a function that is called whenever a connection has come for which there was no room
    /// ([`super::NetOptions::connections`]). Its arguments are the number of idle connections that are
    /// closed for the new one, and whether connections without bytes are no longer kept back from now on (`TCP_DEFER_ACCEPT`).
    pub fn on_full(&mut self, tell: impl Fn(usize, bool) + 'n) {
        self.on_full = Some(Box::new(tell));
    }

    /// Sets a function that is called at the first connection after each wait of the listener.
    pub fn on_batch(&mut self, tell: impl Fn() + 'n) {
        self.on_batch = Some(Box::new(tell));
    }

    pub(super) fn slot(&self) -> u32 {
        self.conn.key().slot
    }

    /// Accepts until the worker stops, `batch` connections per wait, and gives
    /// each to a coroutine of its own.
    ///
    /// When accepting fails, `trouble` is called with the error and returns whether it
    /// has freed something. If it has, the next attempt follows after the other
    /// coroutines' turn; otherwise after a pause of 50 ms. An error of one connection
    /// alone is followed by the next attempt at once. After 16 failures in a row there
    /// is always a pause.
    ///
    /// If there is no room ([`super::NetOptions::connections`]), the connections that
    /// have been idle longest are closed ([`Net::expire_idle`]). If no connection is
    /// idle, the new one waits. The loop ends only when the worker stops or the
    /// listening socket is broken.
    ///
    /// # Errors
    /// Errors of the listening socket itself (`EBADF`, `EINVAL`, `ENOTSOCK`).
    pub async fn run(
        self,
        batch: AcceptBatch,
        mut trouble: impl FnMut(&io::Error) -> bool,
    ) -> io::Result<()> {
        let net = self.conn.net();
        let most = batch.most();
        let (mut taken, mut failed) = (0, 0);
        let mut has_waited = true;
        let mut looks = LooksAhead::new(net.now());
        looks.set_next(&self.conn);
        loop {
            let accepted = poll_fn(|_| {
                if self.conn.is_late() {
                    self.look_again();
                    looks.set_next(&self.conn);
                }
                let polled = self.poll_accept();
                has_waited |= polled.is_pending();
                polled
            })
            .await;
            let Some(accepted) = accepted.transpose() else {
                self.wait_for_room().await?;
                continue;
            };
            if accepted.is_ok() {
                if std::mem::take(&mut has_waited) {
                    self.on_batch.iter().for_each(|tell| tell());
                }
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
                        if !net.phase().takes_connections() {
                            return Ok(());
                        }
                    }
                }
            }
            if taken >= most {
                (taken, has_waited) = (0, true);
                self.conn.yield_now().await;
            }
        }
    }

    /// Lets connections end before the listener looks again whether there is room.
    async fn wait_for_room(&self) -> io::Result<()> {
        let net = self.conn.net();
        // There may be one connection too many ([`Listener::make_room`]); one may be idle by now.
        match net.room() < 0 && net.expire_idle()? > 0 {
            true => self.conn.yield_now().await,
            false => self.pause().await,
        }
        Ok(())
    }

    /// Closes idle connections if there is no room for the connection that was accepted. If no connection
    /// is idle any more, the new one is served in spite of the limit.
    async fn make_room(&self) -> io::Result<()> {
        let net = self.conn.net();
        if net.room() <= 0 && net.phase().takes_connections() {
            let expired = net.expire_idle()?;
            let no_longer = self.stop_deferring();
            self.on_full.iter().for_each(|tell| tell(expired, no_longer));
            self.conn.yield_now().await;
        }
        Ok(())
    }

    /// Has the kernel hand over each connection as soon as it is there, from now on: there is no room, probably because of
    /// clients that say nothing. `TCP_DEFER_ACCEPT` (tcp(7)) keeps such connections back for a second, and then
    /// hands over those of the whole second at once, for which everybody else waits. The socket of an accept thread stays as
    /// it is: only that thread has it. Returns whether the kernel has kept connections back until now.
    fn stop_deferring(&self) -> bool {
        self.defers.replace(false)
            && self.conn.with(|inner, index| {
                let socket = inner.slots[index].fd.as_ref();
                // If it fails, connections without bytes keep coming late.
                socket.is_some_and(|socket| drover_sys::socket::stop_deferring(socket).is_ok())
            })
    }

    /// Has the mechanism look for connections at the next wait, whether it was told of one or not.
    fn look_again(&self) {
        let key = self.conn.key();
        let cancelled =
            self.conn.with(|inner, index| inner.driver.pause_accept(key, &mut inner.slots[index]));
        self.unwoken.set(1 + cancelled);
    }

    /// Leaves new connections to other workers until a connection of this worker ends, or for [`ACCEPT_PAUSE`].
    async fn pause(&self) {
        let net = self.conn.net();
        let (key, until) = (self.conn.key(), net.now() + ACCEPT_PAUSE);
        self.conn.with(|inner, index| {
            inner.driver.pause_accept(key, &mut inner.slots[index]);
            inner.listeners.pause(index);
        });
        self.conn.set_alarm(until);
        poll_fn(|_| {
            let is_over = net.now() >= until || !net.phase().takes_connections();
            self.conn.with(|inner, index| {
                if is_over {
                    inner.listeners.unpause(index);
                }
                if inner.listeners.is_paused(index) { Poll::Pending } else { Poll::Ready(()) }
            })
        })
        .await;
        // The look after a pause does not answer a wake-up, so it cannot be a lost race.
        self.won.set(true);
    }

    /// Takes the next connection. `None`: there is no room, and no connection is idle. `WouldBlock`: the
    /// worker stops, and all connections that had arrived are taken.
    fn poll_accept(&self) -> Poll<io::Result<Option<OwnedFd>>> {
        let net = self.conn.net();
        let (last, room) = (!net.phase().takes_connections(), net.room());
        if room <= 0 && !last && !(room == 0 && net.has_idle()) {
            let key = self.conn.key();
            let accepted = self.conn.with(|inner, _| inner.driver.accepted(key));
            return Poll::Ready(Ok(accepted));
        }
        let poll = self.source.poll(&self.conn, AcceptRequest { ahead: room > BACKLOG, last });
        let won = self.won.replace(poll.is_ready());
        let unwoken = self.unwoken.replace(self.unwoken.get().saturating_sub(1)) > 0;
        if let Some(tell) = &self.on_loss
            && poll.is_pending()
            && !won
            && !unwoken
            // On `last` the worker was woken to stop, not for a connection.
            && !last
            && self.source.can_lose()
        {
            tell();
        }
        poll.map_ok(Some)
    }
}
