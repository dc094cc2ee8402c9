//! One exchange on a connection: requests that are sent together, and their responses.
//!
//! Per request it makes one send and usually one receive, allocates nothing, and reads the clock
//! twice; once in a closed loop on one connection, where the end of one request is the start of the
//! next.
//!
//! The clock is read just before send(2) and just after the recv(2) that completes the response. A
//! service time so contains the time for which a response lay in the socket because this thread was
//! busy with other connections. The end of the wait that reported the
//! response is known, so this delay is measured, and the result warns of it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use drover_mech::net::Body;
use drover_tls::client::ClientLayer;

use crate::account::counts::RequestFailure;
use crate::run::client::{Call, Client};
use crate::run::connection::link::Link;
use crate::run::reader::ResponseReader;
use crate::run::worker::{ScheduledStart, WholeResponse};

/// A body of at least this many bytes is long: it gets a receive of its own that copies nothing.
const LONG: u64 = 16 * 1024;

/// Room for a head whose body is expected to be long: nearly all fit.
const HEAD_ROOM: usize = 1024;

/// When the first byte and the last byte of a response came.
struct ReceiveTimes {
    first_byte: Instant,
    end: Instant,
}

impl Client<'_, '_> {
    /// Sends the request of `start` and the calls behind it, receives the responses, and counts
    /// everything.
    pub(crate) async fn exchange(&mut self, start: ScheduledStart) {
        let worker = self.link.worker;
        let first = Call { due: start.due, request: worker.requests.pick(self.link.origin) };
        let count = 1 + self.behind.len();
        let sent = self.now.take().unwrap_or_else(Instant::now);
        worker.close_seconds(sent);
        worker.in_flight.set(worker.in_flight.get() + count as u64);
        {
            let mut account = worker.account.borrow_mut();
            account.requests += count as u64;
            account.connections.reused += count as u64 - u64::from(self.calls == 0);
        }
        self.calls += count as u32;
        // Deadlines count from the beginning of the turn, which may be a while ago.
        let since = sent.saturating_duration_since(worker.net.now());
        self.link.conn.set_deadline(Some(since + worker.plan.timeout));
        let mut failure = self.send(first.request, sent).await.err();
        // A server that does not want all of a large request may have responded to it and closed.
        let cut = failure.filter(|failure| *failure == RequestFailure::Reset && count == 1);
        for index in 0..count {
            let call = if index == 0 { first } else { self.behind[index - 1] };
            let is_head = worker.requests.get(self.link.origin, call.request).is_head;
            let mut reader = ResponseReader::new(is_head, worker.plan.verify);
            let received = match failure {
                Some(failure) if cut.is_none() => Err(failure),
                _ => self.receive(&mut reader, call.request, index, sent).await,
            };
            let received = received.map_err(|failure| cut.unwrap_or(failure));
            reader.keep_alive &= cut.is_none();
            worker.in_flight.set(worker.in_flight.get() - 1);
            self.count(call, sent, &reader, &received);
            // When the connection ends, the responses that have not come fail.
            failure = received.err().or((!self.link.open).then_some(RequestFailure::Truncated));
        }
        if worker.plan.session.closes(self.calls) {
            self.link.close();
        }
    }

    /// Sends request number `first`, and the calls behind it; the exchange has begun at `sent`.
    async fn send(&mut self, first: usize, sent: Instant) -> Result<(), RequestFailure> {
        let Link { ref conn, worker, origin, .. } = self.link;
        let bytes = |number| &worker.requests.get(origin, number).bytes;
        let mut left = bytes(first).len() as u64;
        if self.behind.is_empty() {
            conn.queue(Body::Shared(Rc::clone(bytes(first))));
        } else {
            let numbers = std::iter::once(first).chain(self.behind.iter().map(|call| call.request));
            left = conn.io(|io| {
                numbers.for_each(|number| io.output.extend_from_slice(bytes(number)));
                (0, io.output.len() as u64)
            });
        }
        let mut late = false;
        // Counted piece by piece, so that bytes sent before a failure count.
        poll_fn(|_| {
            loop {
                match ready!(conn.poll_send()).map_err(|error| self.link.failure_of(&error)) {
                    Ok(0) => return Poll::Ready(Ok(())),
                    Ok(count) => {
                        // What TLS adds to a request is no part of it.
                        let count = count.min(left);
                        left -= count;
                        worker.account.borrow_mut().sent_bytes += count;
                    }
                    // Over io_uring a send is over when its completion is taken, and the response may be here by then.
                    Err(RequestFailure::ClientTimeout) if !std::mem::replace(&mut late, true) => {
                        self.go_on_late(sent);
                    }
                    Err(failure) => return Poll::Ready(Err(failure)),
                }
            }
        })
        .await
    }

    /// Sets another deadline behind the one that has passed. A generator that stood still adds the time of its pause to the
    /// deadline, and finds what came meanwhile.
    fn go_on_late(&self, sent: Instant) {
        let away = sent.elapsed().saturating_sub(self.link.worker.plan.timeout);
        self.link.conn.set_deadline(Some(away));
    }

    /// Receives response `index` of a batch that was sent at `sent`: the response to request `number`.
    async fn receive(
        &self,
        reader: &mut ResponseReader,
        number: usize,
        index: usize,
        sent: Instant,
    ) -> Result<ReceiveTimes, RequestFailure> {
        let Link { ref conn, worker, .. } = self.link;
        let last = index == self.behind.len();
        // The response may have come together with the one before.
        let mut here = index > 0 && conn.input_len() > 0;
        let mut first_byte = None;
        let mut late = false;
        loop {
            let skippable = reader.skippable();
            let received = match (skippable, std::mem::take(&mut here)) {
                (None, true) => Ok(conn.input_len()),
                (Some(left), true) => Ok(self.skip_received(self.skip_at_once(left, last))),
                (Some(left), false) => conn.skip(self.skip_at_once(left, last)).await,
                (None, false) if reader.head_len == 0 => conn.fill_some(self.head_room()).await,
                (None, false) => conn.fill().await,
            };
            let received = match received.map_err(|error| self.link.failure_of(&error)) {
                Err(RequestFailure::ClientTimeout) if !std::mem::replace(&mut late, true) => {
                    self.go_on_late(sent);
                    continue;
                }
                received => received?,
            };
            // The first and the last byte of a short response come together: the clock is read once.
            let fresh = first_byte.is_none().then(Instant::now);
            if received == 0 {
                if !reader.end_of_stream() || self.was_cut() {
                    return Err(RequestFailure::Truncated);
                }
            } else {
                first_byte = first_byte.or(fresh);
                let more = match skippable {
                    Some(_) => !reader.skipped(received as u64),
                    None => self.read(reader, number)?,
                };
                if reader.is_done() && more && last {
                    return Err(RequestFailure::Excess);
                }
            }
            if reader.is_done() {
                let end = fresh.unwrap_or_else(Instant::now);
                return Ok(ReceiveTimes { first_byte: first_byte.unwrap_or(end), end });
            }
            if let (Some(rate), Some(begun)) = (worker.plan.read_rate, first_byte) {
                self.read_slowly(rate, begun, reader).await?;
                // Records of TLS are received whole, however little is read at a time.
                here = reader.skippable().is_some() && conn.input_len() > 0;
            }
        }
    }

    /// Passes received bytes to the reader. Returns whether more bytes lie behind the response.
    fn read(&self, reader: &mut ResponseReader, number: usize) -> Result<bool, RequestFailure> {
        let mut repeated = self.link.worker.requests.repeated_response(self.link.origin, number);
        self.link.conn.io(|io| match reader.take(io.input, &mut repeated) {
            Ok(taken) => (taken, Ok(io.input.len() > taken)),
            Err(failure) => (0, Err(failure)),
        })
    }

    /// How much of the next response is received at first.
    pub(crate) fn head_room(&self) -> usize {
        if self.long { HEAD_ROOM } else { usize::MAX }
    }

    /// How much of the `left` bytes of a body is skipped at a time.
    fn skip_at_once(&self, left: u64, last: bool) -> usize {
        // One byte more than announced: this shows a server that sends too much.
        let all = left.saturating_add(u64::from(last));
        let most = self.link.worker.plan.read_at_once().map_or(all, |piece| all.min(piece as u64));
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Drops at most so many bytes of a body that were received, and says how many.
    fn skip_received(&self, most: usize) -> usize {
        self.link.conn.io(|io| {
            let count = io.input.len().min(most);
            (count, count)
        })
    }

    /// Whether the stream has ended without the end of TLS, so that some of a body may be missing that nothing else ends.
    fn was_cut(&self) -> bool {
        self.link.conn.with_layer(ClientLayer::has_ended) == Some(false)
    }

    /// Rests until the bytes read so far are due at `rate` bytes per second. Fails if this is later
    /// than the time-out.
    async fn read_slowly(
        &self,
        rate: u32,
        begun: Instant,
        reader: &ResponseReader,
    ) -> Result<(), RequestFailure> {
        let bytes = reader.head_len + reader.body_len;
        let due = Duration::from_secs_f64(bytes as f64 / f64::from(rate));
        let timeout = self.link.worker.plan.timeout;
        self.link.conn.sleep_until(begun + due.min(timeout)).await;
        if due < timeout { Ok(()) } else { Err(RequestFailure::ClientTimeout) }
    }

    fn count(
        &mut self,
        call: Call,
        sent: Instant,
        reader: &ResponseReader,
        received: &Result<ReceiveTimes, RequestFailure>,
    ) {
        let worker = self.link.worker;
        worker.close_seconds(received.as_ref().map_or_else(|_| Instant::now(), |times| times.end));
        let mut account = worker.account.borrow_mut();
        account.head_bytes += reader.head_len;
        account.body_bytes += reader.body_len;
        self.long = reader.body_len >= LONG && worker.skips_bodies;
        let times = match received {
            Ok(times) => times,
            Err(failure) => {
                account.errors.add(*failure);
                return self.link.close();
            }
        };
        if !reader.keep_alive {
            account.connections.closed_by_peer += 1;
            self.link.close();
        }
        self.now = Some(times.end);
        let response = WholeResponse {
            status: reader.status,
            body_len: reader.body_len,
            body_hash: reader.body_hash(),
            request: call.request,
            due: call.due,
            sent,
            first_byte: times.first_byte,
            end: times.end,
        };
        worker.count_response(&mut account, self.link.origin, &response);
    }
}
