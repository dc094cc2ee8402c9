//! One worker: its connections' shared state, and the coroutine that takes them through the phases
//! of a run — open, wait for the start, keep the schedule, let the last replies come, close.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use mech::Key;
use mech::net::{Conn, Executor, Net, NetOptions};
use mech::process;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use super::account::Account;
use super::client;
use super::conductor::{Desk, Report};
use super::pace::{Pacer, Share};
use super::plan::Plan;

/// A request that may be sent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// Its intended start; `None` in a closed loop, where it starts when it is sent.
    pub(super) due: Option<Instant>,
    /// It had to wait for a free connection: that its start is late is not our doing.
    pub(super) waited: bool,
}

/// Where a measured connection stands with respect to tickets.
#[derive(Clone, Copy, Debug)]
enum Seat {
    /// Not to be asked: at work, resting, or not connected.
    Away,
    /// In the queue of free connections.
    Free,
    /// Has a ticket that it has not picked up yet.
    Given(Ticket),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connections are being opened; or they are, and the window has not begun.
    Opening,
    /// The window: requests are sent.
    Running,
    /// No request is sent any more; replies may still come.
    Over,
}

/// What the coroutines of one worker share.
pub(super) struct Worker<'n> {
    pub(super) net: &'n Net,
    pub(super) plan: &'n Plan,
    share: Share,
    /// The bytes of the requests, by origin.
    pub(super) requests: Vec<Vec<Rc<[u8]>>>,
    /// How many of the connections are only held; they come first.
    pub(super) idle: u32,
    measured: u32,
    pub(super) account: RefCell<Account>,
    pub(super) phase: Cell<Phase>,
    /// The window; its end is not known beforehand if requests are counted out.
    pub(super) start: Cell<Instant>,
    pub(super) end: Cell<Option<Instant>>,
    /// Requests still to be sent (closed loop) or scheduled (open loop).
    quota: Cell<u64>,
    open_loop: bool,
    /// The schedule has come to its end: the quota is used up.
    schedule_over: Cell<bool>,
    seats: RefCell<Vec<(Seat, Key)>>,
    /// Free connections, the one that has been free for longest first. May hold the number of
    /// a seat that is not free any more.
    free: RefCell<VecDeque<u32>>,
    /// Requests that are due while no connection is free.
    backlog: RefCell<VecDeque<Instant>>,
    /// First attempts to connect that are in progress.
    opening: Cell<u32>,
    /// Attempts to connect that are in progress.
    pub(super) connecting: Cell<u32>,
    /// Tickets given and not settled.
    busy: Cell<u32>,
    pub(super) in_flight: Cell<u64>,
    /// Measured connections that take part.
    members: Cell<u32>,
    control: Cell<Key>,
}

/// What came of a worker.
pub(super) struct Outcome {
    pub(super) account: Account,
    pub(super) window: Window,
}

/// How a worker's window went; all zero if it had none.
#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// CPU time of the worker's thread in it, and how long it lasted.
    pub(super) cpu: Duration,
    pub(super) wall: Duration,
    /// It ended because nobody was left.
    pub(super) deserted: bool,
}

/// First attempts to connect that may be in progress at once, and that may begin per millisecond:
/// a server that accepts few connections at a time gets no more than its backlog can hold.
const OPENING_AT_ONCE: u32 = 64;
const OPENED_PER_MILLISECOND: u32 = 16;

/// How often a worker looks up from its window to say how far it is.
const TICK: Duration = Duration::from_millis(100);

/// Runs one worker on the calling thread.
///
/// # Errors
/// What the kernel says of the dispatch mechanism.
pub(super) fn run(plan: &Plan, share: Share, desk: &Desk<'_>) -> io::Result<Outcome> {
    // Best effort: without it, sends are up to 50 µs late, which is measured as slip.
    let _ = process::sharpen_timers();
    let options = NetOptions {
        input_capacity: 64 * 1024,
        timer_resolution: (plan.timeout / 50)
            .clamp(Duration::from_millis(1), Duration::from_millis(100)),
        ..NetOptions::new(plan.mechanism)
    };
    let net = Net::open(&options)?;
    let worker = Worker::new(&net, plan, share);
    let window = Cell::new(Window::default());
    let mut executor = Executor::new(&net, Duration::ZERO);
    executor.service(|conn| control(conn, &worker, desk, &window));
    let mut number = 0;
    executor.run(|conn| {
        number += 1;
        client::run(conn, &worker, number - 1)
    })?;
    let mut account = worker.account.into_inner();
    account.in_flight = worker.in_flight.get();
    Ok(Outcome { account, window: window.get() })
}

/// The phases of a run, on one worker.
async fn control(conn: Conn<'_>, worker: &Worker<'_>, desk: &Desk<'_>, window: &Cell<Window>) {
    worker.control.set(conn.key());
    desk.tell(Report::Up(worker.net.remote(), conn.key()));
    let phases = Phases { conn, worker, desk };
    phases.open().await;
    desk.tell(Report::Ready { opened: worker.open_at_start() });
    if let Some(start) = phases.started().await {
        let cpu = process::thread_cpu_time();
        worker.begin(start);
        phases.keep_schedule().await;
        let end = worker.finish();
        window.set(Window {
            cpu: process::thread_cpu_time() - cpu,
            wall: end.saturating_duration_since(start),
            deserted: worker.is_deserted(),
        });
        desk.tell(Report::Measured { end });
    }
    let settled = || worker.busy.get() == 0 && worker.connecting.get() == 0;
    phases.until(None, || settled() && desk.may_close()).await;
    // The executor drops every coroutine, which closes its connection; those that are resumed once
    // more before that see that nothing is left to do.
    worker.phase.set(Phase::Over);
    worker.net.stop();
}

struct Phases<'c, 'n> {
    conn: Conn<'n>,
    worker: &'c Worker<'n>,
    desk: &'c Desk<'c>,
}

impl Phases<'_, '_> {
    /// Waits for `done`, which is asked whenever this coroutine is woken; for `at`; or for the
    /// interruption of the run.
    async fn until(&self, at: Option<Instant>, done: impl Fn() -> bool) {
        if let Some(at) = at {
            self.conn.set_alarm(at);
        }
        poll_fn(|_| {
            let due = at.is_some_and(|at| self.worker.net.now() >= at);
            if due || done() || self.desk.interrupted() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Opens the connections: the idle ones, then those that are measured.
    async fn open(&self) {
        let worker = self.worker;
        self.spawn(worker.idle, true).await;
        self.spawn(worker.measured, worker.plan.opens_early()).await;
    }

    async fn spawn(&self, count: u32, connects: bool) {
        let Worker { net, opening, .. } = self.worker;
        let batch = (OPENED_PER_MILLISECOND / self.worker.share.workers).max(1);
        let mut left = count;
        while left > 0 && !self.desk.interrupted() {
            let room =
                if connects { left.min(batch).min(OPENING_AT_ONCE - opening.get()) } else { left };
            for _ in 0..room {
                net.spawn();
            }
            opening.set(opening.get() + if connects { room } else { 0 });
            left -= room;
            self.until(Some(net.now() + Duration::from_millis(1)), || false).await;
        }
        self.until(None, || opening.get() == 0).await;
    }

    /// Waits for the beginning of the window; `None`: there will be none.
    async fn started(&self) -> Option<Instant> {
        self.until(None, || self.desk.start().is_some() || self.desk.may_close()).await;
        let start = self.desk.start()?;
        self.until(Some(start), || false).await;
        (!self.desk.interrupted()).then_some(start)
    }

    /// Spends the window, until its end or that of the last request.
    async fn keep_schedule(&self) {
        let worker = self.worker;
        let mut pacer = worker.plan.pace.pacer(worker.share, worker.plan.seed);
        let start = worker.start.get();
        let mut next = pacer.as_mut().map(|pacer| start + pacer.next_start());
        let mut tick = start + TICK;
        while !self.desk.interrupted() && !worker.has_finished() {
            let now = Instant::now();
            if let (Some(pacer), Some(due)) = (&mut pacer, &mut next) {
                worker.hand_out_due(pacer.as_mut(), due, now);
            }
            if worker.end.get().is_some_and(|end| now >= end) {
                return;
            }
            if now >= tick {
                self.desk.progress(&worker.account.borrow());
                tick = now + TICK;
            }
            let next = next.filter(|_| !worker.schedule_over.get());
            let wake = [next, worker.end.get()].into_iter().flatten().fold(tick, Instant::min);
            self.until(Some(wake), || worker.has_finished()).await;
        }
    }
}

impl<'n> Worker<'n> {
    fn new(net: &'n Net, plan: &'n Plan, share: Share) -> Worker<'n> {
        let part = |total: u32| share.of(u64::from(total)) as u32;
        let measured = part(plan.connections);
        Worker {
            net,
            plan,
            share,
            requests: plan.origins.iter().map(|origin| origin.shared_requests()).collect(),
            idle: part(plan.idle),
            measured,
            account: RefCell::new(Account::new()),
            phase: Cell::new(Phase::Opening),
            start: Cell::new(net.now()),
            end: Cell::new(None),
            quota: Cell::new(plan.requests.map_or(u64::MAX, |requests| share.of(requests))),
            open_loop: plan.pace.rate().is_some(),
            schedule_over: Cell::new(false),
            seats: RefCell::new(vec![(Seat::Away, Key::WAKER); measured as usize]),
            free: RefCell::new(VecDeque::new()),
            backlog: RefCell::new(VecDeque::new()),
            opening: Cell::new(0),
            connecting: Cell::new(0),
            busy: Cell::new(0),
            in_flight: Cell::new(0),
            members: Cell::new(measured),
            control: Cell::new(Key::WAKER),
        }
    }

    /// The number of this worker's connection `number` among those of all workers.
    pub(super) fn global_number(&self, number: u32) -> u32 {
        number * self.share.workers + self.share.worker
    }

    /// Tells where the coroutine of measured connection `seat` is reached.
    pub(super) fn take_seat(&self, seat: u32, key: Key) {
        self.seats.borrow_mut()[seat as usize].1 = key;
    }

    /// The first attempt to connect is over.
    pub(super) fn opened(&self) {
        self.opening.set(self.opening.get() - 1);
        if self.opening.get() == 0 {
            self.net.wake(self.control.get());
        }
    }

    /// Connections that are open, or will be opened when they are needed.
    fn open_at_start(&self) -> u32 {
        self.members.get() + self.account.borrow().connections.idle_held as u32
    }

    /// A measured connection takes part no more.
    pub(super) fn leave(&self) {
        self.members.set(self.members.get() - 1);
        self.wake_control_at_the_end();
    }

    /// The server has closed an idle connection.
    pub(super) fn lost_idle(&self) {
        self.account.borrow_mut().connections.idle_held -= 1;
        self.wake_control_at_the_end();
    }

    /// A request for connection `seat`, if there is one to send `now`.
    pub(super) fn take(&self, seat: u32, now: impl FnOnce() -> Instant) -> Option<Ticket> {
        if !self.open_loop {
            let quota = self.quota.get();
            let running = self.phase.get() == Phase::Running;
            if !running || quota == 0 || self.end.get().is_some_and(|end| now() >= end) {
                return None;
            }
            if quota != u64::MAX {
                self.quota.set(quota - 1);
            }
            self.busy.set(self.busy.get() + 1);
            return Some(Ticket { due: None, waited: false });
        }
        let place = &mut self.seats.borrow_mut()[seat as usize].0;
        match *place {
            Seat::Given(ticket) => {
                *place = Seat::Away;
                Some(ticket)
            }
            Seat::Free => None,
            Seat::Away => {
                let due = self.backlog.borrow_mut().pop_front()?;
                self.busy.set(self.busy.get() + 1);
                Some(Ticket { due: Some(due), waited: true })
            }
        }
    }

    /// Offers connection `seat` for the next request that is due.
    pub(super) fn offer(&self, seat: u32) {
        let place = &mut self.seats.borrow_mut()[seat as usize].0;
        if self.open_loop && matches!(place, Seat::Away) {
            *place = Seat::Free;
            self.free.borrow_mut().push_back(seat);
        }
    }

    /// Takes the offer back, unless a ticket was given already.
    pub(super) fn withdraw(&self, seat: u32) {
        let place = &mut self.seats.borrow_mut()[seat as usize].0;
        if matches!(place, Seat::Free) {
            *place = Seat::Away;
        }
    }

    /// A ticket's request has its reply, or its error.
    pub(super) fn settle(&self) {
        self.busy.set(self.busy.get() - 1);
        self.wake_control_at_the_end();
    }

    /// A ticket's request could not be sent. In a closed loop another connection may send it; an
    /// open loop has no second time for it.
    pub(super) fn give_back(&self) {
        if !self.open_loop && self.quota.get() != u64::MAX {
            self.quota.set(self.quota.get() + 1);
        }
        self.settle();
    }

    pub(super) fn connected(&self) {
        self.connecting.set(self.connecting.get() - 1);
        self.wake_control_at_the_end();
    }

    fn wake_control_at_the_end(&self) {
        if self.phase.get() == Phase::Over || self.has_finished() {
            self.net.wake(self.control.get());
        }
    }

    /// Whether the window is over before its time: everything that was asked for has been done, or
    /// nobody is left to do it.
    fn has_finished(&self) -> bool {
        let asked_all = if self.open_loop {
            self.schedule_over.get() && self.backlog.borrow().is_empty()
        } else {
            self.quota.get() == 0
        };
        self.busy.get() == 0 && (asked_all || self.is_deserted())
    }

    /// Nobody is left, and nobody will come back, to do what the run is for: to send requests, or
    /// to be held.
    fn is_deserted(&self) -> bool {
        let held = self.account.borrow().connections.idle_held;
        match (self.measured, self.idle) {
            (0, 0) => false,
            (0, _) => held == 0 && !self.plan.reopen_idle,
            (_, _) => self.members.get() == 0,
        }
    }

    fn begin(&self, start: Instant) {
        self.start.set(start);
        self.end.set(self.plan.duration.map(|duration| start + duration));
        self.phase.set(Phase::Running);
        if self.open_loop {
            let seed = self.plan.seed ^ u64::from(self.share.worker);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            self.free.borrow_mut().make_contiguous().shuffle(&mut random);
        } else {
            for (_, key) in self.seats.borrow().iter() {
                self.net.wake(*key);
            }
        }
    }

    /// Ends the window and returns when that was: at its time if it has one and it has come.
    fn finish(&self) -> Instant {
        let now = Instant::now();
        let end = self.end.get().map_or(now, |end| end.min(now));
        self.end.set(Some(end));
        self.phase.set(Phase::Over);
        self.backlog.borrow_mut().clear();
        end
    }

    /// Gives out every request that is due; `next` is the start of the first that is not.
    fn hand_out_due(&self, pacer: &mut dyn Pacer, next: &mut Instant, now: Instant) {
        let start = self.start.get();
        while *next <= now && self.end.get().is_none_or(|end| *next < end) {
            if self.quota.get() == 0 {
                break;
            }
            if self.quota.get() != u64::MAX {
                self.quota.set(self.quota.get() - 1);
            }
            self.hand_out(*next, now);
            *next = start + pacer.next_start();
        }
        self.schedule_over.set(self.quota.get() == 0);
    }

    fn hand_out(&self, due: Instant, now: Instant) {
        self.account.borrow_mut().scheduled += 1;
        let mut free = self.free.borrow_mut();
        let mut seats = self.seats.borrow_mut();
        while let Some(seat) = free.pop_front() {
            let (place, key) = &mut seats[seat as usize];
            if matches!(place, Seat::Free) {
                *place = Seat::Given(Ticket { due: Some(due), waited: false });
                self.busy.set(self.busy.get() + 1);
                self.net.wake(*key);
                return;
            }
        }
        let mut account = self.account.borrow_mut();
        account.waited += 1;
        account.slipped(now.saturating_duration_since(due));
        self.backlog.borrow_mut().push_back(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::pace::Pace;
    use crate::load::plan::Options;
    use crate::load::target::Method;

    fn plan() -> Plan {
        Plan::new(Options {
            urls: vec!["http://127.0.0.1:9/".parse().unwrap()],
            method: Method::Get,
            fields: Vec::new(),
            connections: 2,
            idle: 0,
            pace: Pace::Constant { rate: 1000.0 },
            duration: Some(Duration::from_secs(1)),
            requests: None,
            calls_per_connection: None,
            reopen: true,
            reopen_idle: false,
            think_time: Duration::ZERO,
            timeout: Duration::from_secs(1),
            expect_size: None,
            threads: 1,
            mechanism: mech::dispatch::auto().unwrap(),
            seed: 1,
        })
        .unwrap()
    }

    /// Tens of thousands of connections are held by one process.
    #[test]
    fn a_connection_costs_little_memory() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, Share { worker: 0, workers: 1 });
        let size = Cell::new(0);
        net.spawn();
        let executor = Executor::new(&net, Duration::ZERO);
        net.stop();
        executor
            .run(|conn| {
                let coroutine = client::run(conn, &worker, 0);
                size.set(size_of_val(&coroutine));
                coroutine
            })
            .unwrap();
        println!("a connection's coroutine: {} bytes", size.get());
        assert!((1..=640).contains(&size.get()), "{}", size.get());
    }

    /// Every due request is given to a connection or waits for one, in order and exactly once.
    #[test]
    fn due_requests_go_to_the_connection_that_was_free_for_longest() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, Share { worker: 0, workers: 1 });
        let start = net.now();
        worker.begin(start);
        let never = || unreachable!("the clock is asked in a closed loop only");
        let millisecond = |count| start + Duration::from_millis(count);
        worker.offer(1);
        worker.offer(0);

        let mut pacer = plan.pace.pacer(worker.share, 1).unwrap();
        let mut next = start + pacer.next_start();
        worker.hand_out_due(pacer.as_mut(), &mut next, millisecond(4));
        assert_eq!(next, millisecond(5));
        let first = worker.take(1, never).unwrap();
        assert_eq!((first.due, first.waited), (Some(start), false));
        assert_eq!(worker.take(0, never).unwrap().due, Some(millisecond(1)));
        // Three more are due, and wait: the first takes the connection that is free first.
        worker.settle();
        let waited = worker.take(0, never).unwrap();
        assert_eq!((waited.due, waited.waited), (Some(millisecond(2)), true));
        assert!(!worker.has_finished());

        // At the end of the window two of the five have not been sent, and never will be.
        worker.finish();
        worker.settle();
        assert!(worker.take(1, never).is_none());
        let account = worker.account.borrow();
        assert_eq!((account.scheduled, account.waited), (5, 3));
        // The first of those came to the queue 2 ms after its time, and that is our own fault.
        assert_eq!((account.late_starts, account.slip.len()), (1, 3));
    }

    #[test]
    fn an_offer_that_was_withdrawn_is_passed_over() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, Share { worker: 0, workers: 1 });
        worker.begin(net.now());
        worker.offer(0);
        worker.offer(1);
        worker.withdraw(0);
        worker.hand_out(net.now(), net.now());
        assert!(worker.take(0, || unreachable!()).is_none());
        assert!(worker.take(1, || unreachable!()).is_some());
    }
}
