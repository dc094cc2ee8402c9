//! One connection: a coroutine that connects, sends requests, and checks every reply.
//!
//! It is the same for every dispatch mechanism. Per request it makes one send and usually one
//! receive, allocates nothing, and reads the clock twice; once in a closed loop without think
//! time, where the end of one request is the start of the next.
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
    /// The end of the last request, while nothing has happened since.
    now: Option<Instant>,
    rest: Duration,
    /// Since when every attempt to connect has failed.
    failing_since: Option<Instant>,
}

/// When the two parts of a reply came.
struct Times {
    first_byte: Instant,
    end: Instant,
}

impl<'c, 'n> Client<'c, 'n> {
    fn new(link: Link<'c, 'n>, seat: u32) -> Client<'c, 'n> {
        Client { link, seat, calls: 0, now: None, rest: FIRST_REST, failing_since: None }
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
                worker.give_back();
                // In an open loop the schedule sets the pace of further attempts.
                if ticket.due.is_none() {
                    self.rest().await;
                }
                continue;
            }
            self.exchange(ticket).await;
            worker.settle();
            if !worker.plan.think_time.is_zero() {
                self.think().await;
            }
        }
    }

    /// Lets the think time pass, and notices meanwhile when the server closes.
    async fn think(&mut self) {
        let (conn, worker) = (self.link.conn, self.link.worker);
        let until = worker.net.now() + worker.plan.think_time;
        self.now = None;
        conn.set_deadline(None);
        conn.set_alarm(until);
        poll_fn(|_| {
            if self.link.open
                && let Poll::Ready(heard) = conn.poll_fill()
            {
                self.link.closed_by_peer(heard);
            }
            let over = worker.net.now() >= until || worker.net.stopping();
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
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
                if ticket.due.is_some() {
                    self.slipped(ticket);
                }
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

    /// Notes by how much a request starts late though a connection was free.
    fn slipped(&mut self, ticket: Ticket) {
        let now = Instant::now();
        self.now = Some(now);
        if let Some(due) = ticket.due.filter(|_| !ticket.waited) {
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

    /// Sends one request, receives its reply, and takes everything down.
    async fn exchange(&mut self, ticket: Ticket) {
        let worker = self.link.worker;
        let request = worker.pick_request(self.link.origin);

        let sent = self.now.take().unwrap_or_else(Instant::now);
        worker.in_flight.set(worker.in_flight.get() + 1);
        {
            let mut account = worker.account.borrow_mut();
            account.requests += 1;
            account.connections.reused += u64::from(self.calls > 0);
        }
        self.calls += 1;
        self.link.conn.set_deadline(Some(worker.plan.timeout));
        let mut reader = Reader::new(request.is_head);
        let received = self.transfer(request.bytes, &mut reader).await;
        worker.in_flight.set(worker.in_flight.get() - 1);
        self.take_down(ticket, sent, &reader, received);
    }

    async fn transfer(&self, request: Rc<[u8]>, reader: &mut Reader) -> Result<Times, Failure> {
        let conn = self.link.conn;
        let failed = |error: io::Error| Failure::of_transfer(&error);
        let sent = conn.send(Body::Shared(request), None).await.map_err(failed)?;
        self.link.worker.account.borrow_mut().sent_bytes += sent;
        let mut first_byte = None;
        loop {
            let received = conn.fill().await.map_err(failed)?;
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
                if reader.is_done() && more {
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
        ticket: Ticket,
        sent: Instant,
        reader: &Reader,
        received: Result<Times, Failure>,
    ) {
        let worker = self.link.worker;
        let mut account = worker.account.borrow_mut();
        account.head_bytes += reader.head_len;
        account.body_bytes += reader.body_len;
        let times = match received {
            Ok(times) => times,
            Err(failure) => {
                account.errors.add(failure);
                return self.link.close();
            }
        };
        if !reader.keep_alive {
            account.connections.closed_by_peer += 1;
            self.link.close();
        } else if worker.plan.calls_per_connection.is_some_and(|calls| self.calls >= calls) {
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
        if let Some(due) = ticket.due {
            record(&mut account.latency, times.end.saturating_duration_since(due));
        }
        if worker.end.get().is_none_or(|end| times.end <= end) {
            account.reply_in_window(times.end.saturating_duration_since(worker.start.get()));
        }
    }
}
