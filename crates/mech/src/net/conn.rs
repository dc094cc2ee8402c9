//! A connection, as its coroutine uses it.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use super::buffers::BufferPool;
use super::contract::{Driver, Fill, SocketOrigin, StreamPosition};
use super::layer::{Layer, Layered};
use super::limits::min_rate::Pace;
use super::slot::{Flags, Slot};
use super::state::Inner;
use super::{Body, Net};
use crate::fileio::ReadTimes;
use crate::key::Key;
use drover_sys::socket::Address;

/// A connection: one slot of a worker, with a socket (or none yet), buffers and
/// a deadline. Dropping the `Conn` closes the socket.
///
/// The socket can be asked and set up by its descriptor ([`AsFd`]): options of the socket, credentials of the peer. Its
/// bytes belong to the worker: whoever receives or sends by the descriptor takes bytes from the stream, or puts bytes
/// into it, at a place that is not known.
///
/// Some `async` operations have a `poll_` variant for coroutines that wait for
/// several things at once. A coroutine is resumed by events of its own slot, its
/// deadline, its alarm and [`Net::wake`]; it then polls again.
pub struct Conn<'n> {
    net: &'n Net,
    key: Key,
}

/// Both buffers of a connection; see [`Conn::io`].
#[derive(Debug)]
pub struct Io<'b> {
    /// The received bytes that were not consumed.
    pub input: &'b [u8],
    /// The bytes to send: heads and small bodies are appended here. [`Conn::send`] sends them, behind
    /// bytes that are being sent already.
    pub output: &'b mut Vec<u8>,
}

/// A coroutine's answer to what it has received; see [`Conn::respond`].
#[derive(Debug)]
pub struct Answer {
    /// How many bytes of the input are consumed.
    pub consumed: usize,
    /// The body that is sent behind the output.
    pub body: Body,
    /// Whether the coroutine receives next. Then the worker may do the sending by itself.
    pub expects_input: bool,
}

/// The result of [`Conn::respond`].
#[derive(Debug)]
pub struct Progress {
    /// How many bytes were sent, or will be sent by the worker before it reports received bytes.
    pub sent: u64,
    /// Whether nothing is left to send; or the error, one of those of [`Conn::flush`].
    pub done: io::Result<bool>,
    /// Received bytes that have not been consumed.
    pub input: usize,
}

impl<'n> Conn<'n> {
    pub(super) fn new(net: &'n Net, key: Key) -> Conn<'n> {
        Conn { net, key }
    }

    /// The worker's network.
    #[must_use]
    pub fn net(&self) -> &'n Net {
        self.net
    }

    /// The connection's identity.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Receives more bytes behind those in the input buffer, and returns how many;
    /// 0 is the end of the stream.
    ///
    /// # Errors
    /// `TimedOut` if the deadline has passed; `StorageFull` if the buffer is full
    /// of bytes that were not consumed; the kernel's errors.
    pub fn fill(&self) -> impl Future<Output = io::Result<usize>> + use<'_, 'n> {
        poll_fn(|_| self.poll_fill())
    }

    /// See [`Conn::fill`].
    pub fn poll_fill(&self) -> Poll<io::Result<usize>> {
        self.poll_fill_so(Fill::ANY)
    }

    /// Receives up to `most` bytes, at least 1. A completion mechanism may have
    /// received more bytes before this call; it then reports these too.
    ///
    /// # Errors
    /// Errors of [`Conn::fill`].
    pub async fn fill_some(&self, most: usize) -> io::Result<usize> {
        poll_fn(|_| self.poll_fill_some(most)).await
    }

    /// See [`Conn::fill_some`].
    pub fn poll_fill_some(&self, most: usize) -> Poll<io::Result<usize>> {
        self.poll_fill_so(Fill { most, ..Fill::ANY })
    }

    fn poll_fill_so(&self, fill: Fill) -> Poll<io::Result<usize>> {
        self.poll_receive(move |driver, key, slot, pool| {
            let polled = driver.poll_fill(key, slot, pool, fill);
            if fill.position != StreamPosition::Within && polled.is_pending() {
                slot.flags |= Flags::IDLE;
            }
            polled
        })
    }

    /// Receives up to `most` bytes, at least 1, drops them, and returns how many; 0 is
    /// the end of the stream. A TCP socket does not copy these bytes, except bytes that
    /// a completion mechanism has received before. The input buffer must be empty; over
    /// a completion mechanism it may contain bytes beyond `most` afterwards. Poll the
    /// future until it is ready: if it is dropped before, an unknown number of bytes
    /// may be lost.
    ///
    /// On a connection with a layer bytes are opened first: those that were opened and not skipped are the next of [`Conn::io`], and
    /// another call waits for more.
    ///
    /// # Errors
    /// Errors of [`Conn::fill`].
    pub async fn skip(&self, most: usize) -> io::Result<usize> {
        if self.has_layer() {
            return self.skip_opened(most).await;
        }
        poll_fn(|_| {
            self.poll_receive(|driver, key, slot, pool| driver.poll_skip(key, slot, pool, most))
        })
        .await
    }

    /// [`Conn::skip`] of bytes that a layer opens: they have to be received to be dropped.
    async fn skip_opened(&self, most: usize) -> io::Result<usize> {
        // Without a limit: it would be one for the bytes of the wire, of which a record may have many more.
        let count = self.fill().await?.min(most);
        self.io(|_| (count, ()));
        Ok(count)
    }

    fn poll_receive(
        &self,
        mut receive: impl FnMut(
            &mut dyn Driver,
            Key,
            &mut Slot,
            &mut BufferPool,
        ) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            slot.check_deadline()?;
            if !inner.charge(index) {
                return Poll::Pending;
            }
            let slot = &mut inner.slots[index];
            // The input is nearly always empty, before and after.
            if slot.input.is_some() {
                slot.grow_input(&mut inner.pool)?;
            }
            let was_reported = !slot.flags.contains(Flags::GUESSED);
            let polled = match slot.layer {
                None => receive(&mut *inner.driver, self.key, slot, &mut inner.pool),
                Some(_) => inner.receive_opened(self.key, receive),
            };
            let slot = &mut inner.slots[index];
            if polled.is_pending() && slot.input.is_some() {
                slot.shrink_input(&mut inner.pool);
            }
            if polled.is_ready()
                && !(was_reported && inner.queue.is_first_transfer(self.net.limits.budget))
            {
                // The peer may have sent it because of something that this turn has sent.
                self.net.clock.time.read();
            }
            polled
        })
    }

    /// Receives more bytes, as [`Conn::fill`] does; for a wait between two messages. It also returns 0 if
    /// the worker stops and the peer sends nothing for a while ([`Net::linger`]). [`Net::expire_idle`] ends
    /// the wait with `TimedOut`.
    ///
    /// # Errors
    /// Errors of [`Conn::fill`].
    pub fn fill_idle(&self) -> impl Future<Output = io::Result<usize>> + use<'_, 'n> {
        poll_fn(|_| {
            let last = self.net.idle_is_over() && self.input_len() == 0;
            let position = if last { StreamPosition::Last } else { StreamPosition::Between };
            match self.poll_fill_so(Fill { position, ..Fill::ANY }) {
                Poll::Ready(Err(error)) if last && error.kind() == io::ErrorKind::WouldBlock => {
                    Poll::Ready(Ok(0))
                }
                polled => polled,
            }
        })
    }

    /// Whether there are bytes to send, or received bytes that were not consumed.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.with(|inner, index| {
            let slot = &inner.slots[index];
            slot.sending.is_some()
                || slot.output.is_some()
                || !slot.received().is_empty()
                || slot.layer.as_ref().is_some_and(|layered| layered.is_under_way())
        })
    }

    /// Puts a layer between the wire and this connection. What was received and not consumed is the first that it opens.
    /// [`Conn::open_layer`] waits until it is open.
    pub fn set_layer(&self, layer: Box<dyn Layer>) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            slot.layer = Some(Box::new(Layered::new(layer)));
            slot.input.iter_mut().for_each(|input| input.seal());
        });
    }

    /// Takes the layer away. What it has not opened is lost, and so is what is queued; the socket stays open.
    pub fn remove_layer(&self) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            let plain = slot.layer.take().and_then(|mut layered| layered.take_plain());
            plain.into_iter().for_each(|output| inner.pool.give_output(output));
            if let Some(input) = slot.input.take() {
                inner.pool.give_input(input);
            }
        });
    }

    /// Looks at the connection's layer, if that is an `L`.
    pub fn with_layer<L: Layer, R>(&self, look: impl FnOnce(&L) -> R) -> Option<R> {
        self.with(|inner, index| {
            let layer: &dyn Any = inner.slots[index].layer.as_ref()?.layer();
            layer.downcast_ref().map(look)
        })
    }

    /// Whether the connection has a layer.
    #[must_use]
    pub fn has_layer(&self) -> bool {
        self.with(|inner, index| inner.slots[index].layer.is_some())
    }

    /// Receives, and sends what the layer answers, until the layer is open. What the peer has sent behind that is reported by the
    /// next [`Conn::fill`]. Before the layer is open, nothing can be sent.
    ///
    /// # Errors
    /// `UnexpectedEof`: the peer has ended before; those of the layer, and of [`Conn::fill`].
    pub async fn open_layer(&self) -> io::Result<()> {
        let is_open = || {
            self.with(|inner, index| {
                inner.slots[index].layer.as_ref().is_none_or(|it| it.is_open())
            })
        };
        poll_fn(|_| {
            loop {
                let polled = self.poll_fill();
                // Plain bytes may have come with the end of the handshake, and nothing may follow it for long.
                match polled {
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    _ if is_open() => {
                        self.with(|inner, index| {
                            let layer = &mut inner.slots[index].layer;
                            layer.iter_mut().for_each(|it| it.report_again());
                        });
                        return Poll::Ready(Ok(()));
                    }
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Queues what tells the peer of the layer that nothing more comes, behind all that is queued; [`Conn::flush`] sends it. Does
    /// nothing without a layer.
    pub fn close_layer(&self) {
        self.with(|inner, index| inner.slots[index].layer.iter_mut().for_each(|it| it.close()));
    }

    /// How many received bytes have not been consumed.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.with(|inner, index| inner.slots[index].received().len())
    }

    /// Calls `work` with both buffers: it reads received bytes and appends bytes to
    /// send. `work` returns how many bytes of the input it has consumed, and a result.
    /// `work` must not use the `Net` or a `Conn`.
    pub fn io<R>(&self, work: impl FnOnce(Io<'_>) -> (usize, R)) -> R {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            let output = slot.output.get_or_insert_with(|| inner.pool.take_output());
            let filled = slot.input.as_ref().map_or(&[][..], |input| input.filled());
            let (consumed, result) = work(Io { input: filled, output: &mut output.head });
            if output.is_empty() {
                inner.pool.give_output(slot.output.take().expect("it was just put there"));
            }
            slot.consume(consumed, &mut inner.pool);
            result
        })
    }

    /// [`Conn::io`], [`Conn::queue`] and the beginning of [`Conn::flush`] in one call, which is cheaper:
    /// `work` also returns a body to send behind the output, and as much of both is sent as the
    /// socket takes now. The second value tells how much was sent; if bytes are left,
    /// [`Conn::flush`] sends them.
    pub fn respond<R>(&self, work: impl FnOnce(Io<'_>) -> (Answer, R)) -> (R, Progress) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            let mut output = slot.output.take().unwrap_or_else(|| inner.pool.take_output());
            let io = Io { input: slot.received(), output: &mut output.head };
            let (Answer { consumed, body, expects_input }, result) = work(io);
            if body.size() > 0 {
                (output.body, output.body_sent) = (body, 0);
            }
            slot.consume(consumed, &mut inner.pool);
            let input = slot.received().len();
            let (sent, done) = inner.begin_sending(self.key, output, expects_input);
            (result, Progress { sent, done, input })
        })
    }

    /// Sends the output, then `body`: [`Conn::queue`], then [`Conn::flush`].
    ///
    /// # Errors
    /// Errors of [`Conn::flush`].
    pub fn send(
        &self,
        body: Body,
        timeout: Option<Duration>,
    ) -> impl Future<Output = io::Result<u64>> + use<'_, 'n> {
        self.queue(body);
        self.flush(timeout)
    }

    /// Puts `body` behind the output. It replaces a queued body that is not being sent yet. The body is
    /// stored in the slot, so the waiting coroutine needs no memory for it.
    pub fn queue(&self, body: Body) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            if slot.output.is_some() || body.size() > 0 {
                let output = slot.output.get_or_insert_with(|| inner.pool.take_output());
                output.body = body;
                output.body_sent = 0;
            }
        });
    }

    /// Sends the output and the queued body, and returns how many bytes. Whenever
    /// a send has to wait, the deadline moves to `timeout` from now. So the
    /// connection fails if the peer takes nothing for that long; a slow peer only
    /// fails below [`super::NetOptions::min_rate`].
    ///
    /// # Errors
    /// `TimedOut`; `UnexpectedEof` if a file is shorter than its body should
    /// be; `BrokenPipe` or `ConnectionReset` if the peer is gone. After an
    /// error the connection must be closed, because the message is incomplete.
    pub async fn flush(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let mut total = 0;
        self.flush_with(timeout, |_, count| total += count).await?;
        Ok(total)
    }

    /// [`Conn::flush`] that calls `sent` with itself and the number of bytes of each transfer, at
    /// once. So the caller knows the count even after an error.
    ///
    /// # Errors
    /// Errors of [`Conn::flush`].
    pub fn flush_with(
        &self,
        timeout: Option<Duration>,
        mut sent: impl FnMut(&Conn<'n>, u64),
    ) -> impl Future<Output = io::Result<()>> {
        let mut waits = false;
        let mut pace = Pace::default();
        poll_fn(move |_| {
            loop {
                match self.poll_send() {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(count)) => {
                        sent(self, count);
                        waits = false;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        if !std::mem::replace(&mut waits, true) {
                            if timeout.is_some() {
                                self.set_deadline(timeout);
                            }
                            pace.check(self)?;
                        }
                        return Poll::Pending;
                    }
                }
            }
        })
    }

    /// Sends as much of the output as the socket takes, and returns how many bytes; 0 if nothing is left.
    ///
    /// # Errors
    /// Errors of [`Conn::flush`].
    pub fn poll_send(&self) -> Poll<io::Result<u64>> {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            slot.check_deadline()?;
            if slot.layer.is_some() {
                return inner.poll_send_sealed(self.key, true);
            }
            let Some(mut sending) = slot.sending.take().or_else(|| slot.output.take()) else {
                return Poll::Ready(Ok(0));
            };
            if !sending.is_empty() && !inner.charge(index) {
                inner.slots[index].sending = Some(sending);
                return Poll::Pending;
            }
            // An empty output may be with the kernel. The driver knows that, and puts it back
            // when it reports a transfer.
            let send_budget = inner.sends.budget.of(&mut sending, inner.pool.outputs_lent());
            let slot = &mut inner.slots[index];
            let polled = inner.driver.poll_flush(self.key, slot, &mut sending);
            if matches!(polled, Poll::Ready(Ok(_))) && sending.is_empty() {
                inner.pool.give_output(sending);
            } else {
                slot.sending = Some(sending);
                if matches!(polled, Poll::Ready(Ok(count)) if count >= send_budget) {
                    inner.queue.end_turn();
                }
            }
            polled
        })
    }

    /// How long reading files for this connection took since the last call. All zero unless
    /// [`crate::fileio::FileIoOptions::timed`] is set.
    #[must_use]
    pub fn take_file_times(&self) -> ReadTimes {
        self.with(|inner, _| inner.driver.take_file_times(self.key))
    }

    /// The number of the address that the connection came in at ([`crate::accept::ListenerHandle::at`]); `None`: no listener has accepted
    /// it.
    #[must_use]
    pub fn listener(&self) -> Option<u16> {
        self.with(|inner, index| inner.slots[index].listener)
    }

    /// The address that the peer has connected to (getsockname(2)).
    ///
    /// # Errors
    /// `NotConnected` if there is no socket yet or no more; `Unsupported` if the address is not an internet address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(|inner, index| {
            let fd = inner.slots[index].fd.as_ref();
            let fd = fd.ok_or(io::ErrorKind::NotConnected)?;
            let address = SocketAddr::try_from(rustix::net::getsockname(fd)?);
            address.map_err(|_| io::ErrorKind::Unsupported.into())
        })
    }

    /// The address of the peer (getpeername(2)).
    ///
    /// # Errors
    /// `NotConnected` if there is no socket yet or no more, or the connection has ended, as after a reset;
    /// `Unsupported` if the address is not an internet address: peers of unix sockets mostly have no name.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with(|inner, index| {
            let fd = inner.slots[index].fd.as_ref();
            let fd = fd.ok_or(io::ErrorKind::NotConnected)?;
            rustix::net::getpeername(fd)?
                .and_then(|address| SocketAddr::try_from(address).ok())
                .ok_or_else(|| io::ErrorKind::Unsupported.into())
        })
    }

    /// Whether the connection is still open for sending: the peer has not reset it, and the network
    /// has not failed for good.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.with(|inner, index| {
            // A TCP socket has no peer once its connection is closed.
            let fd = inner.slots[index].fd.as_ref();
            fd.is_some_and(|fd| rustix::net::getpeername(fd).is_ok())
        })
    }

    /// The path of the file that is being sent, also after sending has failed.
    #[must_use]
    pub fn sends_from(&self) -> Option<PathBuf> {
        self.with(|inner, index| {
            let slot = &inner.slots[index];
            let plain = slot.layer.as_ref().and_then(|layered| layered.plain());
            match &plain.or(slot.sending.as_deref())?.body {
                Body::File { file, .. } => Some(crate::files::bytes::name_of(file.as_fd())),
                _ => None,
            }
        })
    }

    /// Connects `socket` (see [`drover_sys::socket::for_connect`]) and makes it the
    /// socket of this connection. A socket that the connection had is closed.
    ///
    /// # Errors
    /// `ConnectionRefused`, `AddrNotAvailable` (no local port left), `TimedOut`
    /// if the deadline has passed, and other errors of connect(2). `WouldBlock`: the
    /// queue of a listening unix socket is full, and the kernel does not report when
    /// it has room again.
    pub async fn connect(&mut self, socket: OwnedFd, target: impl Into<Address>) -> io::Result<()> {
        let target = target.into().to_kernel()?;
        self.with(|inner, index| {
            inner.close(index);
            // Attached before connect(2), so that a mechanism that reports changes misses none.
            inner.open(self.key, socket, SocketOrigin::Connecting)
        })?;
        poll_fn(|_| {
            self.with(|inner, index| {
                let slot = &mut inner.slots[index];
                // An open connection counts as in time, even if the worker notices it late.
                let connected = inner.driver.poll_connect(self.key, slot, &target);
                if connected.is_pending() {
                    slot.check_deadline()?;
                }
                connected
            })
        })
        .await
    }

    /// Closes the socket and empties the buffers. The slot stays and may
    /// connect again.
    pub fn close(&mut self) {
        self.with(|inner, index| inner.close(index));
    }

    /// Ends the sending side (shutdown(2), `SHUT_WR`): the peer reads the end
    /// of the stream and can still send.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&self) -> io::Result<()> {
        self.with(|inner, index| match &inner.slots[index].fd {
            Some(fd) => Ok(rustix::net::shutdown(fd.as_fd(), Shutdown::Write)?),
            None => Err(io::ErrorKind::NotConnected.into()),
        })
    }

    /// Sets the deadline: operations fail with `TimedOut` once `after` has passed from
    /// now; `None`: never. The deadline may fire up to one timer resolution late.
    /// Moving it is cheap.
    pub fn set_deadline(&self, after: Option<Duration>) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index];
            slot.flags -= Flags::TIMED_OUT;
            match after {
                Some(after) => inner.timers.wheel.set(index, &mut slot.deadline, after),
                None => inner.timers.wheel.clear(&mut slot.deadline),
            }
        });
    }

    /// Whether the deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        self.with(|inner, index| inner.slots[index].flags.contains(Flags::TIMED_OUT))
    }

    /// Sleeps until `until`, as precisely as the mechanism's time-out allows,
    /// or until the worker stops.
    pub async fn sleep_until(&self, until: Instant) {
        self.set_alarm(until);
        poll_fn(|_| {
            if self.net.now() >= until || self.net.phase().is_ending() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Resumes this coroutine at `at`; for use beside other `poll_` operations.
    pub fn set_alarm(&self, at: Instant) {
        self.net.set_alarm(at, self.key);
    }

    /// Waits until `done` returns true. `done` is called whenever this coroutine is resumed, for example by
    /// [`super::Remote::wake`]. If `done` returns true when the deadline has just passed, that counts as in
    /// time, and the next operation does not fail because of that deadline.
    ///
    /// # Errors
    /// `TimedOut` if the deadline has passed.
    pub async fn until(&self, mut done: impl FnMut() -> bool) -> io::Result<()> {
        poll_fn(|_| {
            let done = done();
            self.with(|inner, index| {
                let slot = &mut inner.slots[index];
                if done {
                    slot.flags -= Flags::TIMED_OUT;
                    return Poll::Ready(Ok(()));
                }
                slot.shrink_input(&mut inner.pool);
                match slot.check_deadline() {
                    Ok(()) => Poll::Pending,
                    late => Poll::Ready(late),
                }
            })
        })
        .await
    }

    /// Lets every other ready coroutine run, and the worker wait once, before this coroutine continues.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|_| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            self.net.wake(self.key);
            Poll::Pending
        })
        .await;
    }

    /// Calls `work` with the worker's state and the index of the connection's slot.
    ///
    /// # Panics
    /// If the `Conn` was kept longer than the coroutine that it was made for.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Inner, u32) -> R) -> R {
        let mut inner = self.net.inner.borrow_mut();
        assert!(inner.slots.of(self.key).is_some(), "a Conn ends with its coroutine");
        work(&mut inner, self.key.slot)
    }
}

impl fmt::Debug for Conn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("key", &self.key).finish_non_exhaustive()
    }
}

impl AsFd for Conn<'_> {
    /// The socket of the connection, under every mechanism.
    ///
    /// # Panics
    /// If the connection has no socket: a coroutine of [`Net::spawn`] has none before [`Conn::connect`], and no coroutine
    /// has one after [`Conn::close`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.with(|inner, index| inner.slots[index].fd.as_ref().map(AsRawFd::as_raw_fd));
        let fd = fd.expect("a Conn has a descriptor only while it has a socket");
        // SAFETY: the slot has the socket open as long as `self` is borrowed. What closes it needs the `Conn` mutably
        // (`connect`, `close`) or whole (`drop`). The executor frees a slot only after its `Conn` has closed the socket
        // (`Executor::resume` checks that), and a `Net` cannot end before its `Conn`s.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Conn<'_> {
    fn drop(&mut self) {
        let mut inner = self.net.inner.borrow_mut();
        if inner.slots.of(self.key).is_some() {
            inner.close(self.key.slot);
        }
    }
}
