//! A coroutine's connection.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use super::buffers::Pool;
use super::contract::{Driver, Fill, Origin, StreamPosition};
use super::min_rate::Pace;
use super::slot::{Flags, Slot};
use super::state::Inner;
use super::{Body, Net};
use crate::fileio::Times;
use crate::key::Key;
use sys::socket::Address;

/// The right to one slot of a worker: a socket (or none yet), its buffers and
/// its deadline. Dropping it closes the socket.
///
/// Each `async` operation has a `poll_` twin for coroutines that wait for
/// several things at once; a coroutine is resumed by events of its own slot,
/// its deadline, its alarm and [`Net::wake`], and asks again then.
pub struct Conn<'n> {
    net: &'n Net,
    key: Key,
}

/// Both buffers of a connection at once; see [`Conn::io`].
pub struct Io<'b> {
    /// What was received and not consumed.
    pub input: &'b [u8],
    /// Where heads (and small bodies) are written; sent by [`Conn::send`], behind what is being sent
    /// already.
    pub output: &'b mut Vec<u8>,
}

/// What a coroutine answers with: see [`Conn::respond`].
#[derive(Debug)]
pub struct Answer {
    /// How many bytes of the input are done with.
    pub consumed: usize,
    /// What is sent behind the output.
    pub body: Body,
    /// Whether the next thing that the coroutine wants is to receive. Then sending may be left to the
    /// worker.
    pub expects_input: bool,
}

/// How far [`Conn::respond`] came.
#[derive(Debug)]
pub struct Progress {
    /// Bytes that were sent, or that the worker sends before it reports what was received.
    pub sent: u64,
    /// Whether nothing is left to send; or why no more can be sent, as by [`Conn::flush`].
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

    /// Its identity.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Receives more bytes behind those in the input buffer, and says how many;
    /// 0 is the end of the stream.
    ///
    /// # Errors
    /// `TimedOut` when the deadline has passed; `StorageFull` when the buffer is
    /// full of bytes that were not consumed; otherwise the kernel's.
    pub fn fill(&self) -> impl Future<Output = io::Result<usize>> + use<'_, 'n> {
        poll_fn(|_| self.poll_fill())
    }

    /// See [`Conn::fill`].
    pub fn poll_fill(&self) -> Poll<io::Result<usize>> {
        self.poll_fill_so(Fill::ANY)
    }

    /// [`Conn::fill`] with up to `most` bytes, at least 1; over a completion
    /// mechanism also with what it has received before it was told so.
    ///
    /// # Errors
    /// As [`Conn::fill`].
    pub async fn fill_some(&self, most: usize) -> io::Result<usize> {
        poll_fn(|_| self.poll_fill_some(most)).await
    }

    /// See [`Conn::fill_some`].
    pub fn poll_fill_some(&self, most: usize) -> Poll<io::Result<usize>> {
        self.poll_fill_so(Fill { most, ..Fill::ANY })
    }

    fn poll_fill_so(&self, fill: Fill) -> Poll<io::Result<usize>> {
        self.poll_receive(|driver, key, slot, pool| {
            let polled = driver.poll_fill(key, slot, pool, fill);
            if fill.position != StreamPosition::Within && polled.is_pending() {
                slot.flags |= Flags::IDLE;
            }
            polled
        })
    }

    /// Receives up to `most` bytes, at least 1, that nobody wants to see, and says
    /// how many; 0 is the end of the stream. A TCP socket copies none of them, but
    /// for those that a completion mechanism has received before. To be called with
    /// an empty input buffer; over a completion mechanism, bytes beyond `most` may
    /// lie there afterwards. Once begun it is to be asked until it is done: what one
    /// that was given up has taken is gone.
    ///
    /// # Errors
    /// As [`Conn::fill`].
    pub async fn skip(&self, most: usize) -> io::Result<usize> {
        poll_fn(|_| {
            self.poll_receive(|driver, key, slot, pool| driver.poll_skip(key, slot, pool, most))
        })
        .await
    }

    fn poll_receive(
        &self,
        receive: impl FnOnce(&mut dyn Driver, Key, &mut Slot, &mut Pool) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
            slot.check_deadline()?;
            if !inner.charge(index) {
                return Poll::Pending;
            }
            let slot = &mut inner.slots[index as usize];
            // Nearly always there is nothing, neither before nor after.
            if slot.input.is_some() {
                slot.grow_input(&mut inner.pool);
            }
            let polled = receive(&mut *inner.driver, self.key, slot, &mut inner.pool);
            if polled.is_pending() && slot.input.is_some() {
                slot.shrink_input(&mut inner.pool);
            }
            polled
        })
    }

    /// [`Conn::fill`] between two messages: when the worker stops, a connection
    /// that sends nothing for a while ([`Net::stop`]) gets 0 as well, and [`Net::expire_idle`] ends its wait.
    ///
    /// # Errors
    /// As [`Conn::fill`].
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

    /// Whether there are bytes to send, or received ones that were not consumed.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.with(|inner, index| {
            let slot = &inner.slots[index as usize];
            slot.sending.is_some() || slot.output.is_some() || !slot.received().is_empty()
        })
    }

    /// How many received bytes have not been consumed.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.with(|inner, index| inner.slots[index as usize].received().len())
    }

    /// Works on both buffers: reads what was received, appends to what will be
    /// sent. `work` returns how many bytes of the input it has consumed, beside
    /// its result; it must not use the `Net`.
    pub fn io<R>(&self, work: impl FnOnce(Io<'_>) -> (usize, R)) -> R {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
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

    /// [`Conn::io`], [`Conn::queue`] and the beginning of [`Conn::flush`] in one look at the slot:
    /// `work` returns a body to send behind the output too, and as much of both is sent as the
    /// socket takes now. The second value says how far that went; when it is not done,
    /// [`Conn::flush`] sends the rest.
    pub fn respond<R>(&self, work: impl FnOnce(Io<'_>) -> (Answer, R)) -> (R, Progress) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
            let mut output = slot.output.take().unwrap_or_else(|| inner.pool.take_output());
            let io = Io { input: slot.received(), output: &mut output.head };
            let (Answer { consumed, body, expects_input }, result) = work(io);
            if body.len() > 0 {
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
    /// As [`Conn::flush`].
    pub fn send(
        &self,
        body: Body,
        patience: Option<Duration>,
    ) -> impl Future<Output = io::Result<u64>> + use<'_, 'n> {
        self.queue(body);
        self.flush(patience)
    }

    /// Puts `body` behind the output, in place of any whose sending has not begun. It
    /// lies in the slot then, and a coroutine that waits needs no room for it.
    pub fn queue(&self, body: Body) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
            if slot.output.is_some() || body.len() > 0 {
                let output = slot.output.get_or_insert_with(|| inner.pool.take_output());
                output.body = body;
                output.body_sent = 0;
            }
        });
    }

    /// Sends the output and what is queued behind it, and says how many bytes
    /// that was. Whenever the peer takes none of it, the deadline moves
    /// `patience` into the future: a peer that takes nothing for so long is
    /// given up, a slow one only below [`super::NetOptions::min_rate`].
    ///
    /// # Errors
    /// `TimedOut`; `UnexpectedEof` when a file is shorter than its body should
    /// be; `BrokenPipe` or `ConnectionReset` when the peer is gone. After an
    /// error the connection must be closed: what was promised cannot be sent.
    pub async fn flush(&self, patience: Option<Duration>) -> io::Result<u64> {
        let mut total = 0;
        self.flush_with(patience, |count| total += count).await?;
        Ok(total)
    }

    /// [`Conn::flush`] that tells `sent` how many bytes each transfer was, as
    /// they leave: also before an error, or when the coroutine is dropped.
    ///
    /// # Errors
    /// As [`Conn::flush`].
    pub fn flush_with(
        &self,
        patience: Option<Duration>,
        mut sent: impl FnMut(u64),
    ) -> impl Future<Output = io::Result<()>> {
        let mut waits = false;
        let mut pace = Pace::default();
        poll_fn(move |_| {
            loop {
                match self.poll_send() {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(count)) => {
                        sent(count);
                        waits = false;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        if !std::mem::replace(&mut waits, true) {
                            if patience.is_some() {
                                self.set_deadline(patience);
                            }
                            pace.check(self)?;
                        }
                        return Poll::Pending;
                    }
                }
            }
        })
    }

    /// Sends what it can of the output; 0 when there is nothing left of it.
    ///
    /// # Errors
    /// As [`Conn::send`].
    pub fn poll_send(&self) -> Poll<io::Result<u64>> {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
            slot.check_deadline()?;
            let Some(mut sending) = slot.sending.take().or_else(|| slot.output.take()) else {
                return Poll::Ready(Ok(0));
            };
            if !sending.is_empty() && !inner.charge(index) {
                inner.slots[index as usize].sending = Some(sending);
                return Poll::Pending;
            }
            // What is empty may be with the kernel: the driver knows, and has said so
            // when it reports a transfer.
            let send_budget = inner.send_budget.of(&mut sending, inner.pool.outputs_lent());
            let slot = &mut inner.slots[index as usize];
            let polled = inner.driver.poll_flush(self.key, slot, &mut sending);
            if matches!(polled, Poll::Ready(Ok(_))) && sending.is_empty() {
                inner.pool.give_output(sending);
            } else {
                slot.sending = Some(sending);
                if matches!(polled, Poll::Ready(Ok(count)) if count >= send_budget) {
                    inner.budget = 0;
                }
            }
            polled
        })
    }

    /// What reading files for this connection took since the last call, if
    /// [`crate::fileio::Options::timed`] asked for that.
    #[must_use]
    pub fn take_file_times(&self) -> Times {
        self.with(|inner, _| inner.driver.take_file_times(self.key))
    }

    /// Whether the connection is still open for sending: the peer has not reset it, and the network
    /// has not failed for good.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.with(|inner, index| {
            // A socket of TCP has no peer once it is closed.
            let fd = inner.slots[index as usize].fd.as_ref();
            fd.is_some_and(|fd| rustix::net::getpeername(fd).is_ok())
        })
    }

    /// The name of the file whose bytes are to be sent, also after that has failed.
    #[must_use]
    pub fn sends_from(&self) -> Option<PathBuf> {
        self.with(|inner, index| match &inner.slots[index as usize].sending.as_ref()?.body {
            Body::File { file, .. } => Some(crate::files::root::name_of(file.as_fd())),
            _ => None,
        })
    }

    /// Connects `socket` (see [`sys::socket::for_connect`]) and makes it the
    /// connection's, in place of any it had.
    ///
    /// # Errors
    /// `ConnectionRefused`, `AddrNotAvailable` (no local port left), `TimedOut`
    /// when the deadline has passed, and the kernel's others. `WouldBlock`: the
    /// queue of a unix socket is full, and unlike TCP's it does not tell when
    /// there is room again.
    pub async fn connect(&self, socket: OwnedFd, target: impl Into<Address>) -> io::Result<()> {
        let target = target.into().to_kernel()?;
        self.with(|inner, index| {
            inner.close(index);
            // Attached before connect(2): mechanisms that report changes miss none.
            inner.open(self.key, socket, Origin::Connecting)
        })?;
        poll_fn(|_| {
            self.with(|inner, index| {
                let slot = &mut inner.slots[index as usize];
                // A connection that is open came in time, even if that is noticed late.
                let connected = inner.driver.poll_connect(self.key, slot, &target);
                if connected.is_pending() {
                    slot.check_deadline()?;
                }
                connected
            })
        })
        .await
    }

    /// Closes the socket and empties the buffers; the slot stays, and may
    /// connect again.
    pub fn close(&self) {
        self.with(|inner, index| inner.close(index));
    }

    /// Ends the sending side (shutdown(2), `SHUT_WR`): the peer reads the end
    /// of the stream, and can still send.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&self) -> io::Result<()> {
        self.with(|inner, index| match &inner.slots[index as usize].fd {
            Some(fd) => Ok(rustix::net::shutdown(fd.as_fd(), Shutdown::Write)?),
            None => Err(io::ErrorKind::NotConnected.into()),
        })
    }

    /// From `after` now on, operations fail with `TimedOut`; `None`: never.
    /// Coarse: it comes true up to one timer resolution late. Costs nothing to
    /// move.
    pub fn set_deadline(&self, after: Option<Duration>) {
        self.with(|inner, index| {
            let slot = &mut inner.slots[index as usize];
            slot.flags -= Flags::TIMED_OUT;
            match after {
                Some(after) => inner.wheel.set(index, &mut slot.deadline, after),
                None => inner.wheel.clear(&mut slot.deadline),
            }
        });
    }

    /// Sleeps until `until`, as precisely as the mechanism's time-out allows,
    /// or until the worker stops.
    pub async fn sleep_until(&self, until: Instant) {
        self.set_alarm(until);
        poll_fn(|_| {
            if self.net.now() >= until || self.net.stopping() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Resumes this coroutine at `at`; for use beside other `poll_` operations.
    pub fn set_alarm(&self, at: Instant) {
        self.with(|inner, _| inner.alarms.push(std::cmp::Reverse((at, self.key))));
    }

    /// Waits until `done` says so, which is asked whenever this coroutine is resumed: by
    /// [`super::Remote::wake`], for one. What is done at the moment of the deadline has come in time, and
    /// the operation that follows does not fail because of that deadline.
    ///
    /// # Errors
    /// `TimedOut` when the deadline has passed.
    pub async fn until(&self, mut done: impl FnMut() -> bool) -> io::Result<()> {
        poll_fn(|_| {
            let done = done();
            self.with(|inner, index| {
                let slot = &mut inner.slots[index as usize];
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

    /// Lets every other coroutine that is ready, and one wait, come first.
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

    /// Works on the worker and the connection's slot.
    ///
    /// # Panics
    /// If the connection was kept longer than the coroutine it was made for.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Inner, u32) -> R) -> R {
        let mut inner = self.net.inner.borrow_mut();
        assert!(inner.slot(self.key).is_some(), "a Conn ends with its coroutine");
        work(&mut inner, self.key.slot)
    }
}

impl Drop for Conn<'_> {
    fn drop(&mut self) {
        let mut inner = self.net.inner.borrow_mut();
        if inner.slot(self.key).is_some() {
            inner.close(self.key.slot);
        }
    }
}
