//! The source of a listener's connections, as its accept strategy has made it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;

use rustix::io::Errno;

use super::Conn;
use super::contract::{AcceptRequest, SocketOrigin};
use crate::accept::wait_queue::QueueWaiter;
use crate::accept::{AcceptQueue, AcceptSource, AcceptThread, ListenerHandle, Next, ask, receive};

/// The source of one listener's connections.
pub(super) enum ConnectionSource {
    /// The listening socket in the slot, which the worker waits for by its mechanism.
    Socket,
    /// An accept thread of this worker.
    Thread(AcceptThread),
    /// A queue of connections that all workers take from.
    AcceptQueue { queue: Arc<AcceptQueue>, waiter: RefCell<QueueWaiter> },
    /// The unix socket in the slot: another process sends connections over it.
    Channel(Channel),
}

/// The worker's side of a channel.
#[derive(Default)]
pub(super) struct Channel {
    /// Whether the worker has asked for the next connection.
    asked: Cell<bool>,
    /// A descriptor that keeps a number free for the next connection: a connection that arrives when
    /// the process may have no more descriptors is lost (unix(7), `MSG_CTRUNC`).
    reserve: RefCell<Option<OwnedFd>>,
}

impl ConnectionSource {
    /// Makes the source from a listener handle, in the slot of `conn`. Returns also whether connections
    /// come with their first bytes.
    pub(super) fn enter(
        conn: &Conn<'_>,
        handle: ListenerHandle,
    ) -> io::Result<(ConnectionSource, bool)> {
        let open = |socket: OwnedFd, origin: SocketOrigin| {
            conn.with(|inner, _| inner.open(conn.key(), socket, origin))
        };
        let (remote, key) = (conn.net().remote(), conn.key());
        // It fails if the worker has ended; then nobody needs the wake-up.
        let wake = move || drop(remote.wake(key));
        Ok(match handle.open()? {
            AcceptSource::Socket { socket, exclusive } => {
                let defers = drover_sys::socket::defers(socket.as_fd());
                let origin = if exclusive {
                    SocketOrigin::ListeningExclusive
                } else {
                    SocketOrigin::Listening
                };
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
                open(socket, SocketOrigin::Foreign)?;
                (ConnectionSource::Channel(Channel::default()), false)
            }
        })
    }

    /// Whether the worker may be woken for a connection that another worker gets. A connection that comes
    /// by a channel is for this worker only.
    pub(super) fn can_lose(&self) -> bool {
        !matches!(self, ConnectionSource::Channel(_))
    }

    /// Takes the next connection. Before a stop (`take.last`) only if one is there; otherwise `WouldBlock`.
    pub(super) fn poll(&self, conn: &Conn<'_>, take: AcceptRequest) -> Poll<io::Result<OwnedFd>> {
        let last = take.last;
        match self {
            ConnectionSource::Socket => {
                let key = conn.key();
                conn.with(|inner, index| {
                    inner.driver.poll_accept(key, &mut inner.slots[index], take)
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
                // On the wait queue first, so that a connection that comes after the look wakes the worker.
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
            let slot = &mut inner.slots[index];
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
                    // The supervisor has ended: no connection comes any more.
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
