//! One measured connection of HTTP/1.1: a coroutine that connects, sends requests, and checks every response.

use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Instant;

use crate::run::connection::link::{Attempts, Link};
use crate::run::worker::{Phase, ScheduledStart};

/// One request of a batch that is sent together.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The intended start; `None`: the moment of sending.
    pub(crate) due: Option<Instant>,
    /// The number of the request among those of the origin.
    pub(crate) request: usize,
}

/// The coroutine of measured connection `index` of a worker.
pub(crate) fn run<'c, 'n>(
    link: Link<'c, 'n>,
    index: u32,
) -> impl Future<Output = ()> + use<'c, 'n> {
    link.worker.starts.register(index, link.conn.key());
    Client::new(link, index).run()
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
