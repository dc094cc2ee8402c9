//! One connection: a coroutine that connects, sends requests, and checks every reply.
//!
//! It is the same for every dispatch mechanism. Per request it makes one send and usually one
//! receive, allocates nothing, and reads the clock twice; once in a closed loop without rests,
//! where the end of one request is the start of the next.
//!
//! The clock is read just before send(2) and just after the recv(2) that completes the reply. A
//! service time so contains the time for which a reply lay in the socket because this thread was
//! busy with other connections. How long that was is known from the end of the wait that told of the
//! reply on, and the result warns of it.

use std::future::{pending, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use mech::net::{Body, Conn};

use super::account::{Failure, record};
use super::reader::Reader;
use super::worker::{Phase, Ticket, Worker};

/// After a failed attempt to connect a connection rests, twice as long after each further one.
const FIRST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How often a unix socket whose queue is full is tried.
const QUEUE_LOOK: Duration = Duration::from_millis(1);

/// The coroutine of connection `number` of a worker: of an idle one, or of one that is measured.
pub(super) async fn run(conn: Conn<'_>, worker: &Worker<'_>, number: u32) {
    let link = Link::new(&conn, worker, number);
    match number.checked_sub(worker.idle) {
        None => hold(link).await,
        Some(seat) => {
            worker.take_seat(seat, conn.key());
            Client::new(link, seat).run().await;
        }
    }
}

/// Holds a connection without using it.
async fn hold(mut link: Link<'_, '_>) {
    let worker = link.worker;
    let opened = link.connect().await;
    worker.account.borrow_mut().connections.idle_held += u64::from(opened);
    worker.opened();
    let mut rest = FIRST_REST;
    loop {
        if link.open {
            rest = FIRST_REST;
            let heard = link.conn.fill().await;
            if worker.phase.get() == Phase::Over {
                return;
            }
            link.closed_by_peer(heard);
            worker.lost_idle();
        }
        if !worker.plan.reopen_idle || worker.phase.get() == Phase::Over {
            return;
        }
        if link.connect().await {
            worker.account.borrow_mut().connections.idle_held += 1;
        } else {
            link.conn.sleep_until(worker.net.now() + rest).await;
            rest = (rest * 2).min(LONGEST_REST);
        }
    }
}

/// A connection that may be open or not.
struct Link<'c, 'n> {
    conn: &'c Conn<'n>,
    worker: &'c Worker<'n>,
    origin: usize,
    number: u32,
    open: bool,
}

impl<'c, 'n> Link<'c, 'n> {
    fn new(conn: &'c Conn<'n>, worker: &'c Worker<'n>, number: u32) -> Link<'c, 'n> {
        let (number, origin) = worker.place(number);
        Link { conn, worker, origin, number, open: false }
    }

    /// Tries once to connect; says whether it is open now.
    async fn connect(&mut self) -> bool {
        let worker = self.worker;
        worker.account.borrow_mut().connections.attempted += 1;
        worker.connecting();
        let begun = Instant::now();
        let connected = self.try_connect().await;
        {
            let mut account = worker.account.borrow_mut();
            match connected {
                Ok(()) => {
                    account.connections.opened += 1;
                    record(&mut account.connect, begun.elapsed());
                    self.open = true;
                }
                Err(error) => {
                    account.connections.failed += 1;
                    account.errors.add(Failure::of_connect(&error));
                    self.conn.close();
                }
            }
        }
        self.conn.set_deadline(None);
        worker.connected();
        self.open
    }

    async fn try_connect(&self) -> io::Result<()> {
        let plan = self.worker.plan;
        let origin = &plan.origins.list[self.origin];
        let patience = Instant::now() + plan.timeout;
        loop {
            let source = origin.sources.of(self.number);
            let socket = mech::socket::for_connect(origin.address.clone(), source)?;
            plan.sources.limit_ports(&socket)?;
            self.conn.set_deadline(Some(plan.timeout));
            match self.conn.connect(socket, origin.address.clone()).await {
                // The queue of a unix socket is full, and nothing tells when it is not.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                connected => return connected,
            }
            self.conn.close();
            if Instant::now() >= patience {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.conn.sleep_until(self.worker.net.now() + QUEUE_LOOK).await;
        }
    }

    fn close(&mut self) {
        self.conn.close();
        self.open = false;
    }

    /// Something came while no reply was expected: the end, or bytes that nobody asked for.
    fn closed_by_peer(&mut self, heard: io::Result<usize>) {
        let connections = &mut self.worker.account.borrow_mut().connections;
        match heard {
            Ok(1..) => connections.unasked += 1,
            Ok(0) | Err(_) => connections.closed_by_peer += 1,
        }
        self.conn.close();
        self.open = false;
    }
}

/// A measured connection.
struct Client<'c, 'n> {
    link: Link<'c, 'n>,
    seat: u32,
    /// Requests sent on the open connection.
    calls: u32,
    /// Those that are sent with the next one, behind it and before its reply.
    behind: Vec<Call>,
    /// The end of the last request, while nothing has happened since.
    now: Option<Instant>,
    rest: Duration,
    /// Since when every attempt to connect has failed.
    failing_since: Option<Instant>,
}

/// One request of those that are sent together.
#[derive(Clone, Copy)]
struct Call {
    /// Its intended start, if that is not when it is sent.
    due: Option<Instant>,
    /// Which of the origin's requests it is.
    request: usize,
}

/// When the two parts of a reply came.
struct Times {
    first_byte: Instant,
    end: Instant,
}

impl<'c, 'n> Client<'c, 'n> {
    fn new(link: Link<'c, 'n>, seat: u32) -> Client<'c, 'n> {
        Client {
            link,
            seat,
            calls: 0,
            behind: Vec::new(),
            now: None,
            rest: FIRST_REST,
            failing_since: None,
        }
    }

    async fn run(mut self) {
        let worker = self.link.worker;
        if worker.plan.opens_early() {
            let opened = self.link.connect().await;
            if !opened {
                worker.leave();
            }
            worker.opened();
            if !opened {
                return;
            }
        }
        loop {
            let Some(ticket) = self.ticket().await else {
                self.reopen().await;
                continue;
            };
            if !self.link.open && !self.connect().await {
                worker.give_back(ticket);
                // In an open loop the schedule sets the pace of further attempts.
                if ticket.due.is_none() {
                    self.rest().await;
                }
                continue;
            }
            if worker.plan.session_calls().is_some() {
                self.session(ticket).await;
            } else {
                self.gather();
                self.exchange(ticket).await;
                while self.behind.pop().is_some() {
                    worker.settle();
                }
            }
            worker.settle();
            self.think().await;
        }
    }

    /// Takes what else may be sent together with the next request.
    fn gather(&mut self) {
        let worker = self.link.worker;
        for _ in 1..worker.plan.manner.together(self.calls) {
            let now = self.now;
            match worker.take(self.seat, || now.unwrap_or_else(|| worker.net.now())) {
                Some(ticket) => self.push_behind(ticket.due),
                None => return,
            }
        }
    }

    fn push_behind(&mut self, due: Option<Instant>) {
        let request = self.link.worker.pick_request(self.link.origin);
        self.behind.push(Call { due, request });
    }

    /// Makes the calls of a connection that the schedule has started, one burst after the other,
    /// and closes it.
    async fn session(&mut self, ticket: Ticket) {
        let worker = self.link.worker;
        let mut next = ticket;
        loop {
            let left = ticket.calls - self.calls;
            let together = worker.plan.manner.together(self.calls).min(left);
            // The first call came due with the connection.
            worker.calls_due(together - u32::from(self.calls == 0));
            self.behind.clear();
            for _ in 1..together {
                self.push_behind(None);
            }
            self.exchange(next).await;
            let left = ticket.calls - self.calls;
            let rested = if left > 0 { self.think().await } else { None };
            if !self.link.open {
                return worker.missed_calls(left);
            }
            if left == 0 || worker.phase.get() != Phase::Running {
                return self.link.close();
            }
            next = Ticket { due: rested, waited: false, calls: 1 };
            self.slipped(next);
        }
    }

    /// Rests if a burst is over, and notices meanwhile when the server closes. Returns the end of the
    /// rest as it was intended.
    async fn think(&mut self) -> Option<Instant> {
        let (conn, worker) = (self.link.conn, self.link.worker);
        let rest = worker.plan.manner.rest(self.calls, &mut *worker.random.borrow_mut())?;
        let until = self.now.take().unwrap_or_else(|| worker.net.now()) + rest;
        conn.set_deadline(None);
        conn.set_alarm(until);
        poll_fn(|_| {
            if self.link.open
                && let Poll::Ready(heard) = conn.poll_fill()
            {
                self.link.closed_by_peer(heard);
            }
            // A session ends with the window; other rests go on, and nobody waits for them.
            let over = worker.net.now() >= until
                || worker.net.stopping()
                || worker.phase.get() == Phase::Over;
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Some(until)
    }

    /// Waits for a request to send. `None`: the connection is closed, and is one that should be
    /// open before there is a request.
    async fn ticket(&mut self) -> Option<Ticket> {
        let worker = self.link.worker;
        let seat = self.seat;
        loop {
            let now = self.now;
            let ticket = worker.take(seat, || now.unwrap_or_else(|| worker.net.now()));
            if let Some(ticket) = ticket {
                self.slipped(ticket);
                return Some(ticket);
            }
            self.now = None;
            if worker.plan.opens_early() && !self.link.open {
                worker.withdraw(seat);
                return None;
            }
            worker.offer(seat);
            self.link.conn.set_deadline(None);
            self.wait_for_ticket().await;
        }
    }

    /// Waits for a reason to ask for a ticket again, and notices meanwhile when the server closes.
    async fn wait_for_ticket(&mut self) {
        let link = &mut self.link;
        let mut first = true;
        poll_fn(|_| {
            if link.open
                && let Poll::Ready(heard) = link.conn.poll_fill()
            {
                link.closed_by_peer(heard);
                return Poll::Ready(());
            }
            if std::mem::replace(&mut first, false) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Notes by how much the generator brings a request late though a connection was free.
    fn slipped(&mut self, ticket: Ticket) {
        let Some(due) = ticket.due else { return };
        let now = Instant::now();
        self.now = Some(now);
        if !ticket.waited {
            let late = now.saturating_duration_since(due);
            self.link.worker.account.borrow_mut().slipped(late);
        }
    }

    /// Connects again after the server has closed, until it succeeds or the run is over.
    async fn reopen(&mut self) {
        if !self.link.worker.plan.reopen {
            self.link.worker.leave();
            return pending().await;
        }
        while self.link.worker.phase.get() != Phase::Over {
            if self.connect().await {
                return;
            }
            self.rest().await;
        }
        pending().await
    }

    async fn connect(&mut self) -> bool {
        self.now = None;
        self.calls = 0;
        if let Some(origin) = self.link.worker.pick_origin() {
            self.link.origin = origin;
        }
        let opened = self.link.connect().await;
        if opened {
            self.failing_since = None;
            self.rest = FIRST_REST;
        }
        opened
    }

    /// Rests after a failed attempt. In a run without an end, a connection that has failed for the
    /// length of the time-out gives up: the run would not end otherwise.
    async fn rest(&mut self) {
        let worker = self.link.worker;
        let now = worker.net.now();
        let since = *self.failing_since.get_or_insert(now);
        if worker.plan.ends_with_requests() && now - since >= worker.plan.timeout {
            worker.leave();
            return pending().await;
        }
        self.link.conn.sleep_until(now + self.rest).await;
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }

    /// Sends the request of `ticket` and those behind it, receives their replies, and takes
    /// everything down.
    async fn exchange(&mut self, ticket: Ticket) {
        let worker = self.link.worker;
        let first = Call { due: ticket.due, request: worker.pick_request(self.link.origin) };
        let count = 1 + self.behind.len();
        let sent = self.now.take().unwrap_or_else(Instant::now);
        worker.in_flight.set(worker.in_flight.get() + count as u64);
        {
            let mut account = worker.account.borrow_mut();
            account.requests += count as u64;
            account.connections.reused += count as u64 - u64::from(self.calls == 0);
        }
        self.calls += count as u32;
        self.link.conn.set_deadline(Some(worker.plan.timeout));
        let mut failure = self.send(first.request).await.err();
        for index in 0..count {
            let call = if index == 0 { first } else { self.behind[index - 1] };
            let mut reader = Reader::new(worker.request(self.link.origin, call.request).is_head);
            let received = match failure {
                Some(failure) => Err(failure),
                None => self.receive(&mut reader, index).await,
            };
            worker.in_flight.set(worker.in_flight.get() - 1);
            self.take_down(call.due, sent, &reader, &received);
            // What ends the connection ends the replies that have not come.
            failure = received.err().or((!self.link.open).then_some(Failure::Truncated));
        }
        if worker.plan.manner.closes(self.calls) {
            self.link.close();
        }
    }

    /// Sends the request of that number, and those behind it.
    async fn send(&mut self, first: usize) -> Result<(), Failure> {
        let Link { conn, worker, origin, .. } = self.link;
        let bytes = |number| &worker.request(origin, number).bytes;
        if self.behind.is_empty() {
            conn.queue(Body::Shared(Rc::clone(bytes(first))));
        } else {
            let numbers = std::iter::once(first).chain(self.behind.iter().map(|call| call.request));
            conn.io(|io| {
                (0, numbers.for_each(|number| io.output.extend_from_slice(bytes(number))))
            });
        }
        let sent = conn.flush(None).await.map_err(|error| Failure::of_transfer(&error))?;
        worker.account.borrow_mut().sent_bytes += sent;
        Ok(())
    }

    /// Receives reply `index` of those that were asked for together.
    async fn receive(&self, reader: &mut Reader, index: usize) -> Result<Times, Failure> {
        let conn = self.link.conn;
        let last = index == self.behind.len();
        // It may have come with the one before.
        let mut here = index > 0 && conn.input_len() > 0;
        let mut first_byte = None;
        loop {
            let received = match std::mem::take(&mut here) {
                true => conn.input_len(),
                false => conn.fill().await.map_err(|error| Failure::of_transfer(&error))?,
            };
            // The end of a short reply and its first byte are one: the clock is read once.
            let fresh = first_byte.is_none().then(Instant::now);
            if received == 0 {
                if !reader.end_of_stream() {
                    return Err(Failure::Truncated);
                }
            } else {
                first_byte = first_byte.or(fresh);
                let taken = conn.io(|io| match reader.take(io.input) {
                    Ok(taken) => (taken, Ok(io.input.len() > taken)),
                    Err(error) => (0, Err(error)),
                });
                let more = taken.map_err(|_| Failure::Protocol)?;
                if reader.is_done() && more && last {
                    return Err(Failure::Protocol);
                }
            }
            if reader.is_done() {
                let end = fresh.unwrap_or_else(Instant::now);
                return Ok(Times { first_byte: first_byte.unwrap_or(end), end });
            }
        }
    }

    fn take_down(
        &mut self,
        due: Option<Instant>,
        sent: Instant,
        reader: &Reader,
        received: &Result<Times, Failure>,
    ) {
        let worker = self.link.worker;
        let mut account = worker.account.borrow_mut();
        account.head_bytes += reader.head_len;
        account.body_bytes += reader.body_len;
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
        if worker.plan.expect_size.is_some_and(|size| size != reader.body_len) {
            return account.errors.add(Failure::BadLength);
        }
        account.replies += 1;
        account.statuses[usize::from(reader.status)] += 1;
        record(&mut account.service, times.end - sent);
        account.lay(times.end.saturating_duration_since(worker.net.now()));
        record(&mut account.first_byte, times.first_byte - sent);
        if worker.open_loop {
            let start = due.unwrap_or(sent);
            record(&mut account.latency, times.end.saturating_duration_since(start));
        }
        if worker.end.get().is_none_or(|end| times.end <= end) {
            account.reply_in_window(times.end.saturating_duration_since(worker.start.get()));
        }
    }
}
