//! One connection of HTTP/2: a coroutine that connects, has many requests under way at once, and checks every response.
//!
//! Each stream that the connection may have is a slot: it gets scheduled starts as a connection of HTTP/1 does, and its latency counts
//! from its own intended start. What the server has done nothing for (GOAWAY, `REFUSED_STREAM`) is sent again: it is one request, from
//! its first sending.

mod greeting;
mod receive;
mod send;
mod slots;

use std::future::{pending, poll_fn};
use std::io;
use std::task::Poll;
use std::time::Instant;

use drover_http2::ErrorCode;

use crate::account::counts::RequestFailure;
use crate::run::connection::link::{Attempts, Link};
use crate::run::worker::{Phase, ScheduledStart};
use send::ReadPace;
use slots::StreamSlots;

/// What the slots do.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Each makes the request of one start after the other.
    Requests,
    /// They make so many more requests before the window, which need no starts.
    WarmUp(u32),
    /// They make the calls of one start together; `None`: the connection waits for a start.
    Session(Option<Session>),
}

/// A connection that the schedule has started.
#[derive(Clone, Copy, Debug)]
struct Session {
    /// Its start, until its first call begins.
    start: Option<ScheduledStart>,
    /// How many calls have not begun.
    left: u32,
}

/// Why a connection goes on.
enum Woken {
    /// Bytes came.
    Received,
    /// All was sent, and a body has more; or a start may have come, or a rest be over.
    LookAgain,
    /// The deadline has passed.
    Late,
    /// The connection has ended.
    Ended(io::Result<()>),
}

/// A measured connection of HTTP/2.
struct Http2Client<'c, 'n> {
    link: Link<'c, 'n>,
    /// The number of its first slot among those of the worker.
    first: u32,
    slots: StreamSlots,
    work: Work,
    /// Requests sent on the open connection.
    calls: u32,
    /// When something came last, while nothing has happened since.
    now: Option<Instant>,
    /// Slots whose rest in a session is over, and when it was to end.
    rested: Vec<(u32, Instant)>,
    /// How a slow reader gives windows back, while it owes some.
    pace: Option<ReadPace>,
    /// The alarm that was set last.
    alarm: Option<Instant>,
    /// Something may be left to be sent.
    is_sending: bool,
    /// Why sending has failed: what the server has sent before is read first.
    send_failure: Option<RequestFailure>,
    /// A deadline is set, for the oldest request or earlier.
    is_armed: bool,
    /// The deadline has passed once, and what came meanwhile is looked at first.
    is_late: bool,
    attempts: Attempts,
}

/// The coroutine of measured connection `index` of a worker.
pub(crate) async fn run(link: Link<'_, '_>, index: u32) {
    let plan = link.worker.plan;
    let first = index * plan.starts_each();
    (0..plan.starts_each())
        .for_each(|slot| link.worker.starts.register(first + slot, link.conn.key()));
    let client = Http2Client {
        slots: StreamSlots::new(plan.streams()),
        link,
        first,
        work: Work::WarmUp(plan.warm_up),
        calls: 0,
        now: None,
        rested: Vec::new(),
        pace: None,
        alarm: None,
        is_sending: false,
        send_failure: None,
        is_armed: false,
        is_late: false,
        attempts: Attempts::new(),
    };
    client.run().await;
}

impl Http2Client<'_, '_> {
    async fn run(mut self) {
        let worker = self.link.worker;
        if worker.plan.opens_early() {
            let opened = self.connect().await;
            if !opened {
                worker.leave();
            }
            self.warm_up().await;
            worker.opened();
            if !opened {
                return;
            }
        }
        self.work = match worker.plan.session_calls() {
            Some(_) => Work::Session(None),
            None => Work::Requests,
        };
        loop {
            if !self.link.open {
                self.open().await;
            }
            self.turn().await;
        }
    }

    /// Makes the requests that come before the window, as long as the server keeps the connection.
    async fn warm_up(&mut self) {
        while self.link.open
            && (!matches!(self.work, Work::WarmUp(0)) || self.slots.unanswered().next().is_some())
        {
            self.turn().await;
        }
        // What a connection that is gone did not do for the warm-up is not done again.
        self.work = Work::WarmUp(0);
        self.give_up();
        self.now = None;
    }

    /// Sends what is to be sent, waits until something happens, and does what follows from it.
    async fn turn(&mut self) {
        self.send();
        match self.wait().await {
            Woken::Received => {
                self.receive();
                self.conclude();
                let worker = self.link.worker;
                if !worker.open_loop && self.link.let_others_receive().await {
                    self.now = None;
                }
            }
            Woken::LookAgain => {
                self.now = None;
                self.conclude();
            }
            Woken::Late => {
                self.now = None;
                self.check_time();
            }
            Woken::Ended(why) => self.ended(why),
        }
    }

    /// Sends, and waits for bytes, or for a reason to look again.
    async fn wait(&mut self) -> Woken {
        let mut first = true;
        poll_fn(|_| {
            while self.is_sending {
                match self.link.conn.poll_send() {
                    Poll::Ready(Ok(0)) => {
                        self.is_sending = false;
                        if self.link.http2.as_mut().is_some_and(|http2| http2.next().is_some()) {
                            return Poll::Ready(Woken::LookAgain);
                        }
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                        return Poll::Ready(Woken::Late);
                    }
                    Poll::Ready(Err(error)) => {
                        self.is_sending = false;
                        self.send_failure = Some(self.link.failure_of(&error));
                    }
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(received) = self.link.conn.poll_fill() {
                return Poll::Ready(match received {
                    Ok(0) => Woken::Ended(Ok(())),
                    Ok(_) => Woken::Received,
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => Woken::Late,
                    Err(error) => Woken::Ended(Err(error)),
                });
            }
            match std::mem::replace(&mut first, false) {
                true => Poll::Pending,
                false => Poll::Ready(Woken::LookAgain),
            }
        })
        .await
    }

    /// Closes the connection if it has done its part: the server goes away and has answered, the last of its calls is over, or the
    /// session is.
    fn conclude(&mut self) {
        if !self.link.open || self.slots.under_way > 0 {
            return;
        }
        let worker = self.link.worker;
        if self.link.http2.as_ref().is_some_and(|http2| http2.is_leaving()) {
            worker.account.borrow_mut().connections.closed_by_peer += 1;
            return self.close();
        }
        if worker.plan.session.closes(self.calls) {
            return self.close();
        }
        if let Work::Session(Some(session)) = self.work {
            let is_over = session.left == 0 || worker.window.phase() != Phase::Running;
            if is_over && self.slots.held.is_empty() && !self.slots.any_again() {
                self.close();
            }
        }
    }

    /// Closes the connection.
    fn close(&mut self) {
        self.link.close();
        self.closed();
    }

    /// The connection is closed. Starts that slots were given meanwhile are for the next connection.
    fn closed(&mut self) {
        (self.is_sending, self.send_failure, self.pace) = (false, None, None);
        (self.is_armed, self.is_late) = (false, false);
        match &mut self.work {
            Work::Requests if self.link.worker.open_loop => {
                let mut given = Vec::new();
                self.slots.free.retain(|slot| {
                    let start = self.link.worker.starts.retract(self.first + *slot);
                    given.extend(start.map(|start| (*slot, start.due)));
                    start.is_none()
                });
                given.into_iter().for_each(|(slot, due)| self.slots.hold(slot, due));
            }
            Work::Session(Some(session)) => {
                // Calls that were sent are still to be answered, by the next connection.
                let left = std::mem::take(&mut session.left);
                // The first call has come due with the connection.
                let first = u32::from(session.start.take().is_some());
                self.link.worker.missed_calls(left - first);
                self.end_session();
            }
            _ => {}
        }
    }

    /// Settles a session none of whose calls is left.
    fn end_session(&mut self) {
        if let Work::Session(Some(Session { left: 0, .. })) = self.work
            && !self.link.open
            && self.slots.unanswered().next().is_none()
        {
            // Calls that were held and never sent are those of a session that was cut.
            while let Some(slot) = self.slots.held.pop_front() {
                self.slots.release(slot, None);
            }
            self.work = Work::Session(None);
            self.link.worker.settle();
        }
    }

    /// `count` calls have their responses or errors.
    fn settle(&mut self, count: u32) {
        let worker = self.link.worker;
        worker.in_flight.set(worker.in_flight.get() - u64::from(count));
        if count > 0 && matches!(self.work, Work::Requests) {
            worker.settle_all(count);
        }
    }

    /// The server has ended the connection.
    fn ended(&mut self, why: io::Result<()>) {
        self.now = None;
        if self.slots.under_way == 0 {
            self.link.closed_by_peer(why.map(|()| 0));
            return self.closed();
        }
        let own = self.send_failure.take();
        self.fail(match why {
            Ok(()) => own.unwrap_or(RequestFailure::Truncated),
            Err(error) => self.link.failure_of(&error),
        });
    }

    /// Closes the connection; the calls under way on it fail.
    fn fail(&mut self, failure: RequestFailure) {
        let slots: Vec<u32> = self.slots.under_way().collect();
        if slots.is_empty() {
            // Nothing was asked: the server has sent what nobody can want.
            self.link.closed_by_peer(Ok(1));
            return self.closed();
        }
        for &slot in &slots {
            self.link.worker.account.borrow_mut().errors.add(failure);
            self.slots.call(slot).calls += 1;
            self.slots.release(slot, None);
        }
        self.settle(slots.len() as u32);
        self.close();
    }

    /// The deadline has passed. A generator that stood still finds what came meanwhile first: the time of its pause is added to the
    /// deadline. Then the calls that are late fail, and their streams are reset.
    fn check_time(&mut self) {
        let timeout = self.link.worker.plan.timeout;
        let now = Instant::now();
        let oldest = self.slots.unanswered().map(|(_, sent)| sent).min();
        let Some(age) = oldest.map(|sent| now.saturating_duration_since(sent)) else {
            (self.is_armed, self.is_late) = (false, false);
            return self.link.conn.set_deadline(None);
        };
        if age < timeout {
            self.is_late = false;
            return self.link.conn.set_deadline(Some(timeout - age));
        }
        if !std::mem::replace(&mut self.is_late, true) {
            return self.link.conn.set_deadline(Some(age - timeout));
        }
        self.link.worker.close_seconds(now);
        let late = self.slots.unanswered().filter(|(_, sent)| now - *sent >= timeout);
        let late: Vec<u32> = late.map(|(slot, _)| slot).collect();
        for &slot in &late {
            self.time_out(slot);
        }
        self.settle(late.len() as u32);
        self.check_time();
        self.conclude();
    }

    /// A call is late: its stream is reset.
    fn time_out(&mut self, slot: u32) {
        let stream = self.slots.call(slot).stream;
        if let (Some(stream), Some(http2)) = (stream, &mut self.link.http2) {
            self.link.conn.io(|io| {
                http2.reset(stream, ErrorCode::Cancel, io.output);
                (0, ())
            });
            self.is_sending = true;
        }
        self.slots.drop_waiting(slot);
        self.link.worker.account.borrow_mut().errors.add(RequestFailure::ClientTimeout);
        self.slots.call(slot).calls += 1;
        self.slots.release(slot, None);
    }

    async fn connect(&mut self) -> bool {
        self.now = None;
        self.calls = 0;
        self.link.choose_origin();
        let opened = self.link.connect().await;
        self.attempts.note(opened);
        // What begins the connection may wait for the first request.
        self.is_sending = opened;
        opened
    }

    /// Opens the connection: again, or for calls that wait for it.
    async fn open(&mut self) {
        let worker = self.link.worker;
        let early = worker.plan.opens_early();
        if early && self.link.stays_closed() {
            return self.leave().await;
        }
        // A connection without a request counts as a failed attempt: rest first.
        if early && self.calls == 0 {
            self.rest().await;
        } else {
            self.attempts.reset();
        }
        loop {
            if !early {
                self.wait_for_start().await;
            }
            self.drop_unsent();
            if self.slots.held.is_empty() && worker.window.phase() == Phase::Over {
                return pending().await;
            }
            if self.connect().await {
                worker.account.borrow_mut().connections.reopened += u64::from(early);
                return;
            }
            self.give_up();
            // In an open loop the schedule sets the pace of further attempts.
            if early || !worker.open_loop {
                self.rest().await;
            }
        }
    }

    /// Waits for a call that needs a connection.
    async fn wait_for_start(&mut self) {
        loop {
            self.slots.end_rests(self.link.worker.net.now(), |_, _| {});
            match self.work {
                Work::Session(None) => self.begin_session(),
                Work::Session(Some(_)) => return,
                _ => self.take_starts(self.link.worker.plan.session.calls.unwrap_or(u32::MAX)),
            }
            if !self.slots.held.is_empty() || matches!(self.work, Work::Session(Some(_))) {
                return;
            }
            self.now = None;
            self.link.conn.set_deadline(None);
            self.slots.next_rest().into_iter().for_each(|at| self.link.conn.set_alarm(at));
            let mut first = true;
            poll_fn(|_| match std::mem::replace(&mut first, false) {
                true => Poll::Pending,
                false => Poll::Ready(()),
            })
            .await;
        }
    }

    /// Takes the start of a session, if there is one.
    fn begin_session(&mut self) {
        let worker = self.link.worker;
        let now = self.now;
        match worker.take(self.first, || now.unwrap_or_else(|| worker.net.now())) {
            None => worker.offer(self.first),
            Some(start) if worker.window.phase() == Phase::Over => worker.give_back(start),
            Some(start) => {
                self.slipped(start.due.filter(|_| !start.waited));
                self.work = Work::Session(Some(Session { start: Some(start), left: start.calls }));
            }
        }
    }

    /// No connection opens: starts are given back, and what waits to be sent again gets no response.
    fn give_up(&mut self) {
        let worker = self.link.worker;
        let again: Vec<u32> = self.slots.unanswered().map(|(slot, _)| slot).collect();
        for &slot in &again {
            self.slots.drop_waiting(slot);
            self.slots.release(slot, None);
            worker.account.borrow_mut().errors.add(RequestFailure::Truncated);
        }
        self.settle(again.len() as u32);
        if let Work::Session(Some(session)) = &mut self.work {
            match session.start.take() {
                Some(start) => {
                    self.work = Work::Session(None);
                    worker.give_back(start);
                }
                None => self.end_session(),
            }
        }
        while let Some(slot) = self.slots.held.pop_front() {
            let due = self.slots.call(slot).due;
            self.slots.release(slot, None);
            // Requests of a warm-up have no starts.
            if matches!(self.work, Work::Requests) {
                worker.give_back(ScheduledStart { due, waited: false, calls: 1 });
            }
        }
    }

    /// Rests before another attempt, unless it gives up.
    async fn rest(&mut self) {
        if self.attempts.give_up(self.link.worker) {
            return self.leave().await;
        }
        self.attempts.sleep(&self.link).await;
    }

    /// Gives up for good.
    async fn leave(&mut self) {
        self.give_up();
        self.link.worker.leave();
        pending().await
    }
}
