//! One worker: what the coroutines of its connections share.
//!
//! [`StartQueue`] knows which connection may send a request, and draws the life of one;
//! [`RequestSet`] has the requests; [`Participants`] counts the connections; [`WorkerWindow`] knows
//! when requests are sent. [`Worker`] holds one of each, counts in the [`Account`], and wakes the
//! coroutine that leads the worker through the run (`phases`).

mod participants;
mod requests;
mod responses;
mod schedule_backlog;
mod starts;
#[cfg(test)]
mod testing;
mod window;

use std::cell::{Cell, RefCell};
use std::time::Instant;

use drover_mech::Key;
use drover_mech::mechanisms::Features;
use drover_mech::net::Net;
use rand::rngs::Xoshiro256PlusPlus;

use crate::account::counts::Account;
use crate::account::seconds::Second;
use crate::plan::options::LoadPlan;
use crate::plan::random::{self, Purpose};
use crate::plan::shape::{LoadShare, Starts};
use crate::run::tls::OriginTls;
pub(crate) use participants::Participants;
pub(crate) use requests::RequestSet;
pub(crate) use responses::WholeResponse;
pub(crate) use starts::{HandedOut, ScheduledStart, StartQueue};
pub(crate) use window::{Phase, WorkerWindow};

/// What the coroutines of one worker share.
pub(crate) struct Worker<'n> {
    pub(crate) net: &'n Net,
    pub(crate) plan: &'n LoadPlan,
    pub(crate) share: LoadShare,
    pub(crate) requests: RequestSet,
    /// TLS with each origin; `None`: the origin is spoken to in plain HTTP.
    pub(crate) tls: Vec<Option<OriginTls>>,
    pub(crate) starts: StartQueue<'n>,
    pub(crate) participants: Participants,
    pub(crate) window: WorkerWindow,
    pub(crate) account: RefCell<Account>,
    /// Requests that were sent and have neither a response nor an error yet.
    pub(crate) in_flight: Cell<u64>,
    /// The number of idle connections. They come before the measured ones.
    pub(crate) idle: u32,
    /// The number of measured connections.
    pub(crate) measured: u32,
    pub(crate) open_loop: bool,
    /// A long body is dropped by the kernel: nobody looks at it, and no layer has to open it.
    pub(crate) skips_bodies: bool,
    /// The mechanism collects the sends of one turn and makes them together (io_uring).
    pub(crate) sends_together: bool,
    /// Random numbers for the lengths of rests.
    pub(crate) rests: RefCell<Xoshiro256PlusPlus>,
    /// The key of the coroutine that leads the worker through the run.
    pub(crate) control: Cell<Key>,
}

impl<'n> Worker<'n> {
    /// The worker that carries out `share` of `plan`.
    pub(crate) fn new(net: &'n Net, plan: &'n LoadPlan, share: LoadShare) -> Worker<'n> {
        let part = |total: u32| share.of(u64::from(total)) as u32;
        let measured = part(plan.connections);
        let calls = plan.session_calls().unwrap_or(1);
        Worker {
            net,
            plan,
            share,
            requests: RequestSet::new(plan, share),
            tls: OriginTls::of(plan),
            starts: StartQueue::new(net, measured * plan.starts_each(), plan.quota(share), calls),
            participants: Participants::new(measured),
            window: WorkerWindow::new(net.now()),
            account: RefCell::new(Account::new()),
            in_flight: Cell::new(0),
            idle: part(plan.idle),
            measured,
            open_loop: plan.schedule.is_some(),
            skips_bodies: !plan.verify && !plan.any_tls(),
            sends_together: net.mechanism().features.contains(Features::COMPLETION),
            rests: RefCell::new(random::stream(plan.seed, share.worker, Purpose::Rests)),
            control: Cell::new(Key::WAKER),
        }
    }

    /// The number of this worker's connection `number` among the connections of all workers, idle ones
    /// first, and the origin that the connection goes to.
    pub(crate) fn place(&self, number: u32) -> (u32, usize) {
        let of_all = |number| self.share.place_of(number);
        let origins = &self.plan.origins;
        match number.checked_sub(self.idle) {
            None => (of_all(number), origins.of_idle(of_all(number))),
            Some(index) => (self.plan.idle + of_all(index), origins.of_measured(of_all(index))),
        }
    }

    /// A first attempt to connect is over.
    pub(crate) fn opened(&self) {
        if self.participants.opened() {
            self.net.wake(self.control.get());
        }
    }

    /// The number of connections that are open, or will be opened again, or when they are needed.
    pub(crate) fn open_at_start(&self) -> u32 {
        let idle = match self.plan.reopen_idle {
            true => self.participants.idle_opened(),
            false => self.account.borrow().connections.idle_held as u32,
        };
        self.participants.members() + idle
    }

    /// The first attempt to open an idle connection is over; `opened`: it succeeded.
    pub(crate) fn held_idle(&self, opened: bool) {
        if opened {
            self.account.borrow_mut().connections.idle_held += 1;
            self.participants.add_idle_opened();
        }
    }

    /// The server has closed an idle connection.
    pub(crate) fn lost_idle(&self) {
        self.account.borrow_mut().connections.idle_held -= 1;
        self.wake_control_at_the_end();
    }

    /// A measured connection gives up for good.
    pub(crate) fn leave(&self) {
        self.participants.leave();
        if !self.open_loop {
            self.starts.wake_free(usize::MAX);
        }
        self.wake_control_at_the_end();
    }

    /// An attempt to connect is over.
    pub(crate) fn connected(&self) {
        self.participants.end_connecting();
        self.wake_control_at_the_end();
    }

    /// A start for measured connection `index`; `None`: there is nothing to send `now`. The clock is
    /// read only in a closed loop with a known end.
    pub(crate) fn take(&self, index: u32, now: impl FnOnce() -> Instant) -> Option<ScheduledStart> {
        if self.open_loop {
            return self.starts.take_scheduled(index);
        }
        if self.window.phase() != Phase::Running || self.window.has_ended(now) {
            return None;
        }
        self.starts.take_from_quota()
    }

    /// Offers connection `index`: in an open loop for the next due request, in a closed loop for a
    /// request that another connection gives back.
    pub(crate) fn offer(&self, index: u32) {
        if self.open_loop {
            self.starts.offer(index);
        } else {
            self.starts.wait_for_returned(index);
        }
    }

    /// The calls of a start have their responses or errors.
    pub(crate) fn settle(&self) {
        self.settle_all(1);
    }

    /// The calls of `count` starts have their responses or errors.
    pub(crate) fn settle_all(&self, count: u32) {
        self.starts.settle(count);
        self.wake_control_at_the_end();
    }

    /// The calls of `start` could not be begun. In a closed loop another connection may send the
    /// request. In an open loop the moment of the start is over: the request, and the calls that would
    /// have followed, are never sent.
    pub(crate) fn give_back(&self, start: ScheduledStart) {
        if self.open_loop {
            self.missed_calls(start.calls - 1);
        } else {
            self.starts.return_to_quota();
        }
        self.settle();
    }

    /// Counts `count` calls of a session that came due.
    pub(crate) fn calls_due(&self, count: u32) {
        self.account.borrow_mut().scheduled += u64::from(count);
    }

    /// Counts `count` calls of a session that cannot be made, because its connection is gone.
    pub(crate) fn missed_calls(&self, count: u32) {
        if self.window.phase() == Phase::Running {
            self.calls_due(count);
        }
    }

    fn wake_control_at_the_end(&self) {
        if matches!(self.window.phase(), Phase::Paused | Phase::Over) || self.has_finished() {
            self.net.wake(self.control.get());
        }
    }

    /// Whether the window is over before its end: every request that was asked for is done, or no
    /// connection is left to send one.
    pub(crate) fn has_finished(&self) -> bool {
        !self.starts.any_unsettled() && (self.starts.is_exhausted() || self.has_lost_all())
    }

    /// Whether nothing is under way: no start is unsettled, and no attempt to connect in progress.
    pub(crate) fn is_settled(&self) -> bool {
        !self.starts.any_unsettled() && !self.participants.is_connecting()
    }

    /// Whether no connection is left, and none will come back, to do what the run is for: to send
    /// requests, or, in a run of idle connections alone, to stay open.
    pub(crate) fn has_lost_all(&self) -> bool {
        match (self.measured, self.idle) {
            (0, 0) => false,
            (0, _) => {
                let idle_held = self.account.borrow().connections.idle_held;
                idle_held == 0 && !self.plan.reopen_idle
            }
            (_, _) => self.participants.members() == 0,
        }
    }

    /// Whether what happens `now` is within the window. A window in turns goes on until its last turn is over: what a server
    /// does at the end of a turn, or before the next one, is work for that window.
    pub(crate) fn is_in_window(&self, now: Instant) -> bool {
        match self.window.phase() {
            Phase::Running => self.plan.turns > 1 || !self.window.has_ended(|| now),
            Phase::Paused => true,
            Phase::Opening | Phase::Over => false,
        }
    }

    /// Begins the window at `start`.
    pub(crate) fn begin(&self, start: Instant) {
        self.window.begin(start, self.plan.duration);
        if self.open_loop {
            let mut random = random::stream(self.plan.seed, self.share.worker, Purpose::FirstUses);
            self.starts.shuffle_free(&mut random);
        } else {
            self.starts.release_all();
        }
    }

    /// Closes the seconds of the window that are over at `now`. Call this before counting an event that
    /// happens at `now`.
    pub(crate) fn close_seconds(&self, now: Instant) {
        self.window.close_seconds(now, || Second::of(&self.account.borrow(), self.open_loop));
    }

    /// Ends a turn of the window, after which another one comes, and returns its end.
    pub(crate) fn pause(&self) -> Instant {
        self.window.finish(Instant::now(), Phase::Paused)
    }

    /// Ends the window and returns its end: the planned end, if that has come, or else now.
    pub(crate) fn finish(&self) -> Instant {
        let end = self.window.finish(Instant::now(), Phase::Over);
        self.starts.clear_backlog();
        if self.plan.session_calls().is_some() {
            // A session ends with the window, also if its connection rests between two calls.
            self.starts.wake_all();
        }
        end
    }

    /// The moment of the next start; `None`: the schedule has ended.
    pub(crate) fn next_due(&self, starts: &mut Starts) -> Option<Instant> {
        self.window.start().checked_add(starts.next()?)
    }

    /// Hands out the start at `due`, and counts it; `later` are the starts after it. Returns `false` if
    /// the window ends before `due`, or if no request is left.
    pub(crate) fn hand_out_due(&self, due: Instant, now: Instant, later: &Starts) -> bool {
        if self.window.has_ended(|| due) {
            return false;
        }
        let Some(handed_out) = self.starts.hand_out(self.window.start(), due, later) else {
            return false;
        };
        let mut account = self.account.borrow_mut();
        account.scheduled += 1;
        if handed_out == HandedOut::Waits {
            account.waited += 1;
            account.slipped(now.saturating_duration_since(due));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_mech::net::{Executor, NetOptions};

    use super::testing::{options, starts};
    use super::*;
    use crate::plan::options::LoadOptions;
    use crate::plan::shape::{Arrivals, Rate, Schedule, SessionOptions, Think, Unit};
    use crate::run::connection;

    fn plan() -> LoadPlan {
        LoadPlan::new(options()).unwrap()
    }

    /// Tens of thousands of connections are held by one process.
    #[test]
    fn a_connection_costs_little_memory() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, LoadShare { worker: 0, workers: 1 });
        let size = Cell::new(0);
        // The coroutine is resumed once before the end, and finds that nobody listens.
        worker.participants.add_opening(1);
        net.spawn();
        let executor = Executor::new(&net, Duration::ZERO);
        net.stop();
        executor
            .run(|conn| {
                let coroutine = connection::run(conn, &worker, 0);
                size.set(size_of_val(&coroutine));
                coroutine
            })
            .unwrap();
        assert!((1..=1024).contains(&size.get()), "{}", size.get());
    }

    /// Every due request is given to a connection or waits for one, in order and exactly once.
    #[test]
    fn due_requests_go_to_the_connection_that_was_free_for_longest() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, LoadShare { worker: 0, workers: 1 });
        let start = net.now();
        worker.begin(start);
        let never = || unreachable!("the clock is asked in a closed loop only");
        let millisecond = |count| start + Duration::from_millis(count);
        worker.offer(1);
        worker.offer(0);

        let mut starts = starts(&plan);
        for _ in 0..5 {
            let due = worker.next_due(&mut starts).unwrap();
            assert!(worker.hand_out_due(due, millisecond(4), &starts));
        }
        assert!(!worker.hand_out_due(millisecond(1000), millisecond(1000), &starts));
        let first = worker.take(1, never).unwrap();
        assert_eq!((first.due, first.waited), (Some(start), false));
        assert_eq!(worker.take(0, never).unwrap().due, Some(millisecond(1)));
        // Three more starts are due, and wait for a free connection.
        worker.settle();
        let waited = worker.take(0, never).unwrap();
        assert_eq!((waited.due, waited.waited), (Some(millisecond(2)), true));
        assert!(!worker.has_finished());

        // At the end of the window two of the five requests are unsent.
        worker.finish();
        worker.settle();
        assert!(worker.take(1, never).is_none());
        let account = worker.account.borrow();
        assert_eq!((account.scheduled, account.waited), (5, 3));
        // The first start that waits was handed out 2 ms late, which is the generator's fault.
        assert_eq!((account.late_starts, account.slip.len()), (1, 3));
    }

    /// Rests and arrivals are both exponentially distributed. From one random stream they would be
    /// equal numbers.
    #[test]
    fn rests_have_nothing_to_do_with_arrivals() {
        let second = Duration::from_secs(1);
        let session =
            SessionOptions { think: Think::Exponential(second), ..SessionOptions::default() };
        let rate = Rate::Constant(1.0);
        let schedule = Schedule { rate, arrivals: Arrivals::Poisson, unit: Unit::Request };
        let plan = LoadOptions { schedule: Some(schedule), session, ..options() };
        let plan = LoadPlan::new(plan).unwrap();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let share = LoadShare { worker: 0, workers: 1 };
        let worker = Worker::new(&net, &plan, share);
        let mut starts = starts(&plan);
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let start = starts.next().unwrap();
            let rest = plan.session.rest(1, &mut *worker.rests.borrow_mut()).unwrap();
            let gap = start - std::mem::replace(&mut last, start);
            assert!(gap.abs_diff(rest) > Duration::from_micros(1), "{gap:?} {rest:?}");
        }
    }

    #[test]
    fn an_offer_that_was_withdrawn_is_passed_over() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, LoadShare { worker: 0, workers: 1 });
        worker.begin(net.now());
        worker.offer(0);
        worker.offer(1);
        worker.starts.withdraw(0);
        worker.hand_out_due(net.now(), net.now(), &starts(&plan));
        assert!(worker.take(0, || unreachable!()).is_none());
        assert!(worker.take(1, || unreachable!()).is_some());
    }
}
