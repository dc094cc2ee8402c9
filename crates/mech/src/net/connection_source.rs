//! Where a listener's connections come from: what an accept strategy's listener handle leads to.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;

use rustix::io::Errno;

use super::Conn;
use super::contract::{AcceptRequest, Origin};
use crate::accept::wait_queue::Waiter;
use crate::accept::{AcceptQueue, AcceptSource, AcceptThread, ListenerHandle, Next, ask, receive};

/// One listener's.
pub(super) enum ConnectionSource {
    /// The listening socket in the slot, by the worker's mechanism.
    Socket,
    /// A thread of the worker's own.
    Thread(AcceptThread),
    /// A queue that all workers take from.
    AcceptQueue { queue: Arc<AcceptQueue>, waiter: RefCell<Waiter> },
    /// The unix socket in the slot, which another process sends them by.
    Channel(Channel),
}

/// The worker's side of a channel.
#[derive(Default)]
pub(super) struct Channel {
    /// Whether the next connection was asked for.
    asked: Cell<bool>,
    /// Keeps room in the table of descriptors: a connection that arrives where there is none is
    /// lost (unix(7), `MSG_CTRUNC`).
    reserve: RefCell<Option<OwnedFd>>,
}

impl ConnectionSource {
    /// Enters, in the slot of `conn`. Returns whether connections come with their first bytes.
    pub(super) fn enter(
        conn: &Conn<'_>,
        handle: ListenerHandle,
    ) -> io::Result<(ConnectionSource, bool)> {
        let open = |socket: OwnedFd, origin: Origin| {
            conn.with(|inner, _| inner.open(conn.key(), socket, origin))
        };
        let (remote, key) = (conn.net().remote(), conn.key());
        // It fails for a worker that has ended, and that hears nothing any more.
        let wake = move || drop(remote.wake(key));
        Ok(match handle.open()? {
            AcceptSource::Socket { socket, exclusive } => {
                let defers = sys::socket::defers(socket.as_fd());
                let origin = if exclusive { Origin::ListeningExclusive } else { Origin::Listening };
                open(socket, origin)?;
                (ConnectionSource::Socket, defers)
            }
            AcceptSource::Thread { take, defers } => {
                (ConnectionSource::Thread(AcceptThread::for_one(take, wake)?), defers)
            }
            AcceptSource::AcceptQueue { queue, worker } => {
                let waiter = RefCell::new(queue.waiter(worker, wake));
                let defers = queue.defers;
                (ConnectionSource::AcceptQueue { queue, waiter }, defers)
            }
            AcceptSource::Channel(socket) => {
                open(socket, Origin::Foreign)?;
                (ConnectionSource::Channel(Channel::default()), false)
            }
        })
    }

    /// Whether the worker may be woken for a connection that another gets: what comes by a channel
    /// is its own.
    pub(super) fn can_lose(&self) -> bool {
        !matches!(self, ConnectionSource::Channel(_))
    }

    /// The next connection. Before a stop (`last`) what there is, then `WouldBlock`.
    pub(super) fn poll(&self, conn: &Conn<'_>, take: AcceptRequest) -> Poll<io::Result<OwnedFd>> {
        let last = take.last;
        match self {
            ConnectionSource::Socket => {
                let key = conn.key();
                conn.with(|inner, index| {
                    inner.driver.poll_accept(key, &mut inner.slots[index as usize], take)
                })
            }
            ConnectionSource::Thread(accept_thread) => {
                if last {
                    accept_thread.stop();
                }
                answer(conn, accept_thread.next(), || accept_thread.take_waits())
            }
            ConnectionSource::AcceptQueue { queue, waiter } => {
                if last {
                    queue.stop();
                }
                let look = || answer(conn, queue.next(), || queue.take_waits());
                let found = look();
                if found.is_ready() {
                    return found;
                }
                // On the queue first: what comes after this look wakes.
                let mut waiter = waiter.borrow_mut();
                waiter.prepare();
                let found = look();
                if found.is_ready() {
                    waiter.finish();
                }
                found
            }
            ConnectionSource::Channel(channel) => channel.poll(conn, last),
        }
    }
}

fn answer(conn: &Conn<'_>, next: Next, waits: impl Fn() -> u64) -> Poll<io::Result<OwnedFd>> {
    match next {
        Next::Taken(taken) => Poll::Ready(taken),
        Next::Nothing => Poll::Pending,
        Next::Ended => {
            let waited = &conn.net().helpers_waited;
            waited.set(waited.get() + waits());
            Poll::Ready(Err(io::ErrorKind::WouldBlock.into()))
        }
    }
}

impl Channel {
    fn poll(&self, conn: &Conn<'_>, last: bool) -> Poll<io::Result<OwnedFd>> {
        let key = conn.key();
        conn.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
            loop {
                let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
                if self.reserve.borrow().is_none() && !last {
                    *self.reserve.borrow_mut() = Some(fd.try_clone()?);
                }
                self.reserve.take();
                match receive(fd.as_fd()) {
                    Ok(socket) => {
                        self.asked.set(false);
                        return Poll::Ready(Ok(socket));
                    }
                    // There is no supervisor any more: nothing comes until the worker ends.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !last => {
                        return Poll::Pending;
                    }
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Poll::Ready(Err(io::ErrorKind::WouldBlock.into()));
                    }
                    Err(error) if last || error.kind() != io::ErrorKind::WouldBlock => {
                        return Poll::Ready(Err(error));
                    }
                    Err(_) => {}
                }
                *self.reserve.borrow_mut() = Some(fd.try_clone()?);
                if !self.asked.replace(true) {
                    ask(fd.as_fd())?;
                }
                match inner.driver.poll_readable(key, slot) {
                    Poll::Ready(result) => result?,
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
    }
}
