//! One connection: a coroutine that connects, sends requests, and checks every response.
//!
//! One coroutine serves every dispatch mechanism.

use std::future::{pending, poll_fn};
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};

use drover_http2::ClientConnection;
use drover_mech::net::Conn;

use crate::account::counts::RequestFailure;
use crate::run::http2;
use crate::run::worker::{Phase, ScheduledStart, Worker};

/// The shortest and the longest rest of [`Attempts`].
const FIRST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// One request of a batch that is sent together.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The intended start; `None`: the moment of sending.
    pub(crate) due: Option<Instant>,
    /// The number of the request among those of the origin.
    pub(crate) request: usize,
}

/// The coroutine of connection `number` of a worker. The idle connections have the lowest numbers.
pub(crate) async fn run(conn: Conn<'_>, worker: &Worker<'_>, number: u32) {
    let link = Link::new(conn, worker, number);
    match number.checked_sub(worker.idle) {
        None => stay_idle(link).await,
        // In memory of its own: a connection of HTTP/1 needs much less.
        Some(index) if worker.plan.is_http2() => Box::pin(http2::run(link, index)).await,
        Some(index) => {
            worker.starts.register(index, link.conn.key());
            Client::new(link, index).run().await;
        }
    }
}

/// Keeps an idle connection open, and sends nothing on it.
async fn stay_idle(mut link: Link<'_, '_>) {
    let worker = link.worker;
    let mut opened = link.connect().await;
    worker.held_idle(opened);
    worker.opened();
    let mut attempts = Attempts::new();
    loop {
        let since = worker.net.now();
        if opened {
            let heard = link.stay().await;
            if worker.window.phase() == Phase::Over {
                return;
            }
            link.closed_by_peer(heard);
            worker.lost_idle();
        }
        if !worker.plan.reopen_idle {
            return;
        }
        let now = worker.net.now();
        if now - since >= LONGEST_REST {
            attempts.reset();
        }
        attempts.sleep(&link).await;
        if worker.window.phase() == Phase::Over {
            return;
        }
        opened = link.connect().await;
        let connections = &mut worker.account.borrow_mut().connections;
        connections.idle_held += u64::from(opened);
        connections.reopened += u64::from(opened);
    }
}

/// The attempts to open a connection, and the rests between them.
pub(crate) struct Attempts {
    /// The next rest. It doubles after each failed attempt, so that a server that refuses or closes at once gets few attempts.
    rest: Duration,
    /// Since when every attempt has failed.
    failing_since: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts { rest: FIRST_REST, failing_since: None }
    }

    /// Notes whether an attempt has succeeded.
    pub(crate) fn note(&mut self, opened: bool) {
        if opened {
            self.failing_since = None;
        }
    }

    /// The connection was of use: the next rest is the shortest.
    pub(crate) fn reset(&mut self) {
        self.rest = FIRST_REST;
    }

    /// Whether attempts have failed for too long. In a run without an end, a connection that has failed for the length of the time-out
    /// gives up. Without that, the run would never end.
    pub(crate) fn give_up(&mut self, worker: &Worker<'_>) -> bool {
        let now = worker.net.now();
        let since = *self.failing_since.get_or_insert(now);
        worker.plan.ends_with_requests() && now - since >= worker.plan.timeout
    }

    /// Rests before another attempt.
    pub(crate) async fn sleep(&mut self, link: &Link<'_, '_>) {
        let until = link.worker.net.now() + self.rest;
        self.rest = (self.rest * 2).min(LONGEST_REST);
        link.conn.sleep_until(until).await;
    }
}

/// A connection that may be open or not.
pub(crate) struct Link<'c, 'n> {
    pub(crate) conn: Conn<'n>,
    pub(crate) worker: &'c Worker<'n>,
    pub(crate) origin: usize,
    /// The number among the connections of all workers.
    pub(crate) number: u32,
    pub(crate) open: bool,
    /// What the open connection is in HTTP/2, whose streams are the numbers of [slots](http2::run); `None`: HTTP/1.1 is spoken.
    pub(crate) http2: Option<Box<ClientConnection<u32>>>,
    /// The connection was closed because of an unsolicited response.
    unsolicited: bool,
}

impl<'c, 'n> Link<'c, 'n> {
    fn new(conn: Conn<'n>, worker: &'c Worker<'n>, number: u32) -> Link<'c, 'n> {
        let (number, origin) = worker.place(number);
        Link { conn, worker, origin, number, open: false, http2: None, unsolicited: false }
    }

    pub(crate) fn close(&mut self) {
        self.end_tls();
        self.forget();
    }

    /// Closes what is left of a connection that the server has ended.
    pub(crate) fn forget(&mut self) {
        self.conn.close();
        self.open = false;
        self.http2 = None;
    }

    /// Chooses the server that the next connection is opened to, where connections change servers.
    pub(crate) fn choose_origin(&mut self) {
        if let Some(origin) = self.worker.requests.pick_origin() {
            self.origin = origin;
        }
    }

    /// Whether the connection is not to be opened again. A server that sends a response before the first request cannot be measured:
    /// its responses do not belong to requests.
    pub(crate) fn stays_closed(&self) -> bool {
        let is_first = self.unsolicited && self.worker.window.phase() == Phase::Opening;
        !self.worker.plan.reopen || is_first
    }

    /// The class of an error on the open connection.
    pub(crate) fn failure_of(&self, error: &io::Error) -> RequestFailure {
        let failure = RequestFailure::of_transfer(error);
        if failure == RequestFailure::TlsFailed {
            self.note_tls_failure(error);
        }
        failure
    }

    /// Lets the connections whose responses are here receive them first. Requests then leave one
    /// right behind the other, and a sleeping server is woken once for many. Waking the server is the
    /// most expensive part of a send over loopback. Over io_uring requests leave together anyway.
    /// Returns whether that has taken time.
    pub(crate) async fn let_others_receive(&self) -> bool {
        let yields = !self.worker.sends_together && self.worker.net.others_are_ready();
        if yields {
            self.conn.yield_now().await;
        }
        yields
    }

    /// Tells the server of an open TLS connection that nothing more comes (close_notify), if its socket takes that at once.
    fn end_tls(&self) {
        if self.open && self.worker.tls[self.origin].is_some() && !self.conn.is_under_way() {
            self.conn.close_layer();
            let _ = self.conn.poll_send();
        }
    }

    /// Notes what has broken TLS on the open connection, unless another failure has been noted.
    pub(crate) fn note_tls_failure(&self, error: &io::Error) {
        let mut account = self.worker.account.borrow_mut();
        if account.connect_error.is_none() {
            let endpoints = &self.worker.plan.origins.list[self.origin].endpoints;
            let mut text = String::new();
            endpoints.tell_failure(&mut text, endpoints.first().place, error);
            account.connect_error = Some(text);
        }
    }

    /// Something came while no response was expected: the end of the stream, or an unsolicited response.
    /// A server that gives up an idle connection may send a 408 before it closes (RFC 9110 section
    /// 15.5.9).
    pub(crate) fn closed_by_peer(&mut self, heard: io::Result<usize>) {
        if let Err(error) = heard.as_ref()
            && RequestFailure::of_transfer(error) == RequestFailure::TlsFailed
        {
            self.note_tls_failure(error);
        }
        let gives_up = || self.conn.io(|io| (0, io.input.starts_with(b"HTTP/1.1 408")));
        self.unsolicited = heard.is_ok_and(|count| count > 0) && !gives_up();
        let worker = self.worker;
        let account = &mut worker.account.borrow_mut();
        if self.unsolicited {
            account.connections.unsolicited += 1;
            account.errors.add(match self.http2 {
                None => RequestFailure::Unsolicited,
                Some(_) => RequestFailure::Http2,
            });
        } else {
            account.connections.closed_by_peer += 1;
        }
        self.forget();
    }
}

impl Drop for Link<'_, '_> {
    /// The end of the run closes the connections that are open.
    fn drop(&mut self) {
        self.end_tls();
    }
}

/// A measured connection.
pub(crate) struct Client<'c, 'n> {
    pub(crate) link: Link<'c, 'n>,
    index: u32,
    /// Requests sent on the open connection.
    pub(crate) calls: u32,
    /// Calls that are sent right behind the next one, before its response (pipelining).
    pub(crate) behind: Vec<Call>,
    /// The last body was long, so the next one may be long too.
    pub(crate) long: bool,
    /// The end of the last request, while nothing has happened since.
    pub(crate) now: Option<Instant>,
    attempts: Attempts,
}

impl<'c, 'n> Client<'c, 'n> {
    fn new(link: Link<'c, 'n>, index: u32) -> Client<'c, 'n> {
        Client {
            link,
            index,
            calls: 0,
            behind: Vec::new(),
            long: false,
            now: None,
            attempts: Attempts::new(),
        }
    }

    async fn run(mut self) {
        let worker = self.link.worker;
        if worker.plan.opens_early() {
            let opened = self.link.connect().await;
            if !opened {
                worker.leave();
            }
            self.warm_up().await;
            worker.opened();
            if !opened {
                return;
            }
        }
        let mut following = None;
        loop {
            let start = match following {
                Some(start) => start,
                None => self.begin().await,
            };
            if worker.window.phase() == Phase::Over {
                // A response would come after the end of the run: nothing would count it.
                worker.give_back(start);
                return std::future::pending().await;
            }
            self.gather(start);
            self.exchange(start).await;
            let left = self.settle(start);
            let ended = left == 0 && worker.plan.session_calls().is_some();
            let rested = if ended { None } else { self.think().await };
            following = self.follow(left, rested);
            if !worker.open_loop && rested.is_none() && self.link.let_others_receive().await {
                self.now = None;
            }
        }
    }

    /// Makes the requests that come before the window, as long as the server keeps the connection.
    async fn warm_up(&mut self) {
        for _ in 0..self.link.worker.plan.warm_up {
            if !self.link.open {
                return;
            }
            self.exchange(ScheduledStart { due: None, waited: false, calls: 1 }).await;
        }
        self.now = None;
    }

    /// Waits for a scheduled start, and connects for it if need be.
    async fn begin(&mut self) -> ScheduledStart {
        let worker = self.link.worker;
        loop {
            let Some(start) = self.next_start().await else {
                self.reopen().await;
                continue;
            };
            if self.link.open {
                return start;
            }
            if self.connect().await {
                // With early opening, this connection was open once before.
                let again = u64::from(worker.plan.opens_early());
                worker.account.borrow_mut().connections.reopened += again;
                self.attempts.reset();
                return start;
            }
            worker.give_back(start);
            // In an open loop the schedule sets the pace of further attempts.
            if start.due.is_none() {
                self.rest().await;
            }
        }
    }

    /// Collects the calls that may be sent together with the request of `start`.
    fn gather(&mut self, start: ScheduledStart) {
        let worker = self.link.worker;
        let together = worker.plan.session.together(self.calls);
        self.behind.clear();
        if worker.plan.session_calls().is_some() {
            let together = together.min(start.calls);
            // The first call of the session came due with the connection.
            worker.calls_due(together - u32::from(self.calls == 0));
            (1..together).for_each(|_| self.push_behind(None));
            return;
        }
        for _ in 1..together {
            let now = self.now;
            match worker.take(self.index, || now.unwrap_or_else(|| worker.net.now())) {
                Some(start) => self.push_behind(start.due),
                None => return,
            }
        }
    }

    fn push_behind(&mut self, due: Option<Instant>) {
        let request = self.link.worker.requests.pick(self.link.origin);
        self.behind.push(Call { due, request });
    }

    /// Settles the calls of `start`. Returns how many calls are left of a session, which is a
    /// connection that the schedule has started; otherwise 0.
    fn settle(&mut self, start: ScheduledStart) -> u32 {
        let worker = self.link.worker;
        let count = 1 + self.behind.len() as u32;
        if worker.plan.session_calls().is_none() {
            (0..count).for_each(|_| worker.settle());
            return 0;
        }
        let left = start.calls - count;
        if self.link.open && left > 0 { left } else { self.end_session(left) }
    }

    /// Ends a session before its last `left` calls.
    fn end_session(&mut self, left: u32) -> u32 {
        if !self.link.open {
            self.link.worker.missed_calls(left);
        }
        self.link.close();
        self.link.worker.settle();
        0
    }

    /// The next start of a session with `left` calls; `rested`: the intended end of the rest before
    /// it. `None`: the session is over.
    fn follow(&mut self, left: u32, rested: Option<Instant>) -> Option<ScheduledStart> {
        if left == 0 {
            return None;
        }
        if !self.link.open || self.link.worker.window.phase() != Phase::Running {
            self.end_session(left);
            return None;
        }
        let next = ScheduledStart { due: rested, waited: false, calls: left };
        self.slipped(next);
        Some(next)
    }

    /// Rests if a burst is over. Meanwhile notices when the server closes. Returns the intended end of
    /// the rest.
    async fn think(&mut self) -> Option<Instant> {
        let worker = self.link.worker;
        let rest = worker.plan.session.rest(self.calls, &mut *worker.rests.borrow_mut())?;
        let until = self.now.take().unwrap_or_else(|| worker.net.now()) + rest;
        let room = self.head_room();
        self.link.conn.set_deadline(None);
        self.link.conn.set_alarm(until);
        poll_fn(|_| {
            if self.link.open
                && let Poll::Ready(heard) = self.link.conn.poll_fill_some(room)
            {
                self.link.closed_by_peer(heard);
            }
            // A session ends with the window. Nothing waits for the other rests.
            let over = worker.net.now() >= until
                || !worker.net.phase().takes_connections()
                || worker.window.phase() == Phase::Over;
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Some(until)
    }

    /// Waits for a request to send. `None`: the connection is closed, and must be opened before the
    /// next request is due.
    async fn next_start(&mut self) -> Option<ScheduledStart> {
        let worker = self.link.worker;
        let index = self.index;
        loop {
            let now = self.now;
            let start = worker.take(index, || now.unwrap_or_else(|| worker.net.now()));
            if let Some(start) = start {
                self.slipped(start);
                return Some(start);
            }
            self.now = None;
            if worker.plan.opens_early() && !self.link.open {
                worker.starts.withdraw(index);
                return None;
            }
            worker.offer(index);
            self.link.conn.set_deadline(None);
            self.wait_for_start().await;
        }
    }

    /// Waits for a reason to ask for a scheduled start again, and notices meanwhile when the server closes.
    async fn wait_for_start(&mut self) {
        let room = self.head_room();
        let link = &mut self.link;
        let mut first = true;
        poll_fn(|_| {
            if link.open
                && let Poll::Ready(heard) = link.conn.poll_fill_some(room)
            {
                link.closed_by_peer(heard);
                return Poll::Ready(());
            }
            if std::mem::replace(&mut first, false) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Records how late a request starts although a connection was free.
    fn slipped(&mut self, start: ScheduledStart) {
        let Some(due) = start.due else { return };
        let now = Instant::now();
        self.now = Some(now);
        if !start.waited {
            let late = now.saturating_duration_since(due);
            self.link.worker.account.borrow_mut().slipped(late);
        }
    }

    /// Connects again after the server has closed, until it succeeds or the run is over.
    async fn reopen(&mut self) {
        let worker = self.link.worker;
        if self.link.stays_closed() {
            worker.leave();
            return pending().await;
        }
        // A connection without a request counts as a failed attempt: rest first.
        if self.calls == 0 {
            self.rest().await;
        } else {
            self.attempts.reset();
        }
        while self.link.worker.window.phase() != Phase::Over {
            if self.connect().await {
                self.link.worker.account.borrow_mut().connections.reopened += 1;
                return;
            }
            self.rest().await;
        }
        pending().await
    }

    async fn connect(&mut self) -> bool {
        self.now = None;
        self.calls = 0;
        self.link.choose_origin();
        let opened = self.link.connect().await;
        self.attempts.note(opened);
        opened
    }

    /// Rests before another attempt, unless it gives up.
    async fn rest(&mut self) {
        if self.attempts.give_up(self.link.worker) {
            self.link.worker.leave();
            return pending().await;
        }
        self.attempts.sleep(&self.link).await;
    }
}
