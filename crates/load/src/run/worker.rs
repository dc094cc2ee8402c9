//! One worker's connections: who is free, what is due, how much is left to do. What its coroutines
//! share.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use mech::Key;
use mech::mechanisms::Features;
use mech::net::Net;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

use crate::account::counts::Account;
use crate::account::seconds::{Second, Seconds};
use crate::plan::options::Plan;
use crate::plan::order::Chooser;
use crate::plan::random::{self, Purpose};
use crate::plan::request::Prepared;
use crate::plan::shape::{Share, Starts};
use crate::run::reader::RepeatedResponse;
use crate::run::schedule_backlog::ScheduleBacklog;

/// For how many requests the beginning of their replies is remembered.
const MEMOS: usize = 32;

/// A request that may be sent now, or a connection that may make its calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduledStart {
    /// Its intended start; `None` in a closed loop, where it starts when it is sent.
    pub(crate) due: Option<Instant>,
    /// It had to wait for a free connection: that its start is late is not our doing.
    pub(crate) waited: bool,
    /// How many calls it is for: 1, except where the schedule starts connections.
    pub(crate) calls: u32,
}

/// Where a measured connection stands with respect to starts.
#[derive(Clone, Copy, Debug)]
enum ConnState {
    /// Not to be asked: at work, resting, or not connected.
    Away,
    /// In the queue of free connections.
    Free,
    /// Has a scheduled start that it has not picked up yet.
    Given(ScheduledStart),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Connections are being opened; or they are, and the window has not begun.
    Opening,
    /// The window: requests are sent.
    Running,
    /// No request is sent any more; replies may still come.
    Over,
}

/// What the coroutines of one worker share.
pub(crate) struct Worker<'n> {
    pub(crate) net: &'n Net,
    pub(crate) plan: &'n Plan,
    pub(crate) share: Share,
    /// The bytes of the requests, by origin.
    requests: Vec<Vec<Prepared<Rc<[u8]>>>>,
    /// What the replies to them have begun with, by the last digits of their numbers.
    memos: [RefCell<RepeatedResponse>; MEMOS],
    /// Which of them comes next, by origin.
    choosers: Vec<Chooser>,
    /// To which origin the next connection is opened; `None`: each connection has its own.
    between: Option<Chooser>,
    /// How many of the connections are only held; they come first.
    pub(crate) idle: u32,
    pub(crate) measured: u32,
    pub(crate) account: RefCell<Account>,
    pub(crate) phase: Cell<Phase>,
    /// The window; its end is not known beforehand if requests are counted out.
    pub(crate) start: Cell<Instant>,
    pub(crate) end: Cell<Option<Instant>>,
    pub(crate) seconds: Seconds,
    /// Requests still to be sent (closed loop) or scheduled (open loop).
    quota: Cell<u64>,
    pub(crate) open_loop: bool,
    /// What the connections send in one turn leaves together.
    pub(crate) sends_together: bool,
    /// Calls per scheduled start.
    calls: u32,
    /// For the length of rests.
    pub(crate) rests: RefCell<Xoshiro256PlusPlus>,
    seats: RefCell<Vec<(ConnState, Key)>>,
    /// Free connections, the one that has been free for longest first. May hold the number of
    /// a connection that is not free any more, or twice that of one that is.
    free: RefCell<VecDeque<u32>>,
    /// What is due while no connection is free.
    backlog: RefCell<ScheduleBacklog>,
    /// Idle connections whose first attempt to connect succeeded.
    idle_opened: Cell<u32>,
    /// First attempts to connect that are in progress.
    pub(crate) opening: Cell<u32>,
    /// Attempts to connect that are in progress.
    connecting: Cell<u32>,
    /// Tickets given and not settled.
    busy: Cell<u32>,
    pub(crate) in_flight: Cell<u64>,
    /// Measured connections that take part.
    members: Cell<u32>,
    pub(crate) control: Cell<Key>,
}

impl<'n> Worker<'n> {
    pub(crate) fn new(net: &'n Net, plan: &'n Plan, share: Share) -> Worker<'n> {
        let part = |total: u32| share.of(u64::from(total)) as u32;
        let measured = part(plan.connections);
        let origins = &plan.origins;
        let calls = plan.session_calls().unwrap_or(1);
        Worker {
            net,
            plan,
            share,
            requests: origins.list.iter().map(|origin| origin.shared_requests()).collect(),
            memos: Default::default(),
            choosers: origins.request_choosers(plan.seed, share),
            between: origins.chooser(plan.seed, share),
            idle: part(plan.idle),
            measured,
            account: RefCell::new(Account::new()),
            phase: Cell::new(Phase::Opening),
            start: Cell::new(net.now()),
            end: Cell::new(None),
            seconds: Seconds::default(),
            quota: Cell::new(plan.quota(share)),
            open_loop: plan.schedule.is_some(),
            sends_together: net.mechanism().features.contains(Features::COMPLETION),
            calls,
            rests: RefCell::new(random::stream(plan.seed, share.worker, Purpose::Rests)),
            seats: RefCell::new(vec![(ConnState::Away, Key::WAKER); measured as usize]),
            free: RefCell::new(VecDeque::new()),
            backlog: RefCell::new(ScheduleBacklog::new(calls)),
            idle_opened: Cell::new(0),
            opening: Cell::new(0),
            connecting: Cell::new(0),
            busy: Cell::new(0),
            in_flight: Cell::new(0),
            members: Cell::new(measured),
            control: Cell::new(Key::WAKER),
        }
    }

    /// The number of this worker's connection `number` among those of all workers, idle ones first,
    /// and the origin that it goes to.
    pub(crate) fn place(&self, number: u32) -> (u32, usize) {
        let of_all = |number| self.share.place_of(number);
        let origins = &self.plan.origins;
        match number.checked_sub(self.idle) {
            None => (of_all(number), origins.of_idle(of_all(number))),
            Some(seat) => (self.plan.idle + of_all(seat), origins.of_measured(of_all(seat))),
        }
    }

    /// The origin that the next connection is opened to, if that is not always the same.
    pub(crate) fn pick_origin(&self) -> Option<usize> {
        self.between.as_ref().map(Chooser::pick)
    }

    /// The number of the next request to send to an origin.
    pub(crate) fn pick_request(&self, origin: usize) -> usize {
        self.choosers[origin].pick()
    }

    /// A request to an origin.
    pub(crate) fn request(&self, origin: usize, number: usize) -> &Prepared<Rc<[u8]>> {
        &self.requests[origin][number]
    }

    /// What replies to request `number` to an origin have begun with.
    pub(crate) fn memo(&self, origin: usize, number: usize) -> RefMut<'_, RepeatedResponse> {
        self.memos[(origin + number) % MEMOS].borrow_mut()
    }

    /// Tells where the coroutine of measured connection `seat` is reached.
    pub(crate) fn take_seat(&self, seat: u32, key: Key) {
        self.seats.borrow_mut()[seat as usize].1 = key;
    }

    /// The first attempt to connect is over.
    pub(crate) fn opened(&self) {
        self.opening.set(self.opening.get() - 1);
        if self.opening.get() == 0 {
            self.net.wake(self.control.get());
        }
    }

    /// Connections that are open, or will be opened again, or when they are needed.
    pub(crate) fn open_at_start(&self) -> u32 {
        let connections = &self.account.borrow().connections;
        let idle = match self.plan.reopen_idle {
            true => self.idle_opened.get(),
            false => connections.idle_held as u32,
        };
        self.members.get() + idle
    }

    /// The first attempt to open an idle connection is over.
    pub(crate) fn held_idle(&self, opened: bool) {
        self.account.borrow_mut().connections.idle_held += u64::from(opened);
        self.idle_opened.set(self.idle_opened.get() + u32::from(opened));
    }

    /// A measured connection takes part no more.
    pub(crate) fn leave(&self) {
        self.members.set(self.members.get() - 1);
        if !self.open_loop {
            self.wake_free(usize::MAX);
        }
        self.wake_control_at_the_end();
    }

    /// The server has closed an idle connection.
    pub(crate) fn lost_idle(&self) {
        self.account.borrow_mut().connections.idle_held -= 1;
        self.wake_control_at_the_end();
    }

    /// A request for connection `seat`, if there is one to send `now`.
    pub(crate) fn take(&self, seat: u32, now: impl FnOnce() -> Instant) -> Option<ScheduledStart> {
        if !self.open_loop {
            let running = self.phase.get() == Phase::Running;
            if !running || self.end.get().is_some_and(|end| now() >= end) {
                return None;
            }
            let calls = self.take_from_quota(1)?;
            self.busy.set(self.busy.get() + 1);
            return Some(ScheduledStart { due: None, waited: false, calls });
        }
        let place = &mut self.seats.borrow_mut()[seat as usize].0;
        match *place {
            ConnState::Given(start) => {
                *place = ConnState::Away;
                Some(start)
            }
            ConnState::Free => None,
            ConnState::Away => {
                let (due, calls) = self.backlog.borrow_mut().pop()?;
                self.busy.set(self.busy.get() + 1);
                Some(ScheduledStart { due: Some(due), waited: true, calls })
            }
        }
    }

    /// Offers connection `seat` for the next request that is due; in a closed loop, for one that
    /// another gives back.
    pub(crate) fn offer(&self, seat: u32) {
        if !self.open_loop {
            return self.free.borrow_mut().push_back(seat);
        }
        let place = &mut self.seats.borrow_mut()[seat as usize].0;
        if matches!(place, ConnState::Away) {
            *place = ConnState::Free;
            self.free.borrow_mut().push_back(seat);
        }
    }

    /// Takes the offer back, unless a scheduled start was given already.
    pub(crate) fn withdraw(&self, seat: u32) {
        let place = &mut self.seats.borrow_mut()[seat as usize].0;
        if matches!(place, ConnState::Free) {
            *place = ConnState::Away;
        }
    }

    /// What a scheduled start is for has its replies, or its error.
    pub(crate) fn settle(&self) {
        self.busy.set(self.busy.get() - 1);
        self.wake_control_at_the_end();
    }

    /// What a scheduled start is for could not be begun. In a closed loop another connection may send the
    /// request; an open loop has no second time for it, nor for the calls that would have followed.
    pub(crate) fn give_back(&self, start: ScheduledStart) {
        if self.open_loop {
            self.missed_calls(start.calls - 1);
        } else if self.quota.get() != u64::MAX {
            self.quota.set(self.quota.get() + 1);
            self.wake_free(1);
        }
        self.settle();
    }

    /// So many calls of a session came due.
    pub(crate) fn calls_due(&self, count: u32) {
        self.account.borrow_mut().scheduled += u64::from(count);
    }

    /// So many calls of a session cannot be made: its connection is gone.
    pub(crate) fn missed_calls(&self, count: u32) {
        if self.phase.get() == Phase::Running {
            self.calls_due(count);
        }
    }

    /// An attempt to connect begins.
    pub(crate) fn connecting(&self) {
        self.connecting.set(self.connecting.get() + 1);
    }

    /// An attempt to connect is over.
    pub(crate) fn connected(&self) {
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
    pub(crate) fn has_finished(&self) -> bool {
        let asked_all = self.quota.get() == 0 && self.backlog.borrow().len() == 0;
        self.busy.get() == 0 && (asked_all || self.is_deserted())
    }

    /// Whether nothing is under way any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.busy.get() == 0 && self.connecting.get() == 0
    }

    /// Nobody is left, and nobody will come back, to do what the run is for: to send requests, or
    /// to be held.
    pub(crate) fn is_deserted(&self) -> bool {
        let held = self.account.borrow().connections.idle_held;
        match (self.measured, self.idle) {
            (0, 0) => false,
            (0, _) => held == 0 && !self.plan.reopen_idle,
            (_, _) => self.members.get() == 0,
        }
    }

    pub(crate) fn begin(&self, start: Instant) {
        self.start.set(start);
        self.end.set(self.plan.duration.map(|duration| start + duration));
        self.phase.set(Phase::Running);
        if self.open_loop {
            let mut random = random::stream(self.plan.seed, self.share.worker, Purpose::FirstUses);
            self.free.borrow_mut().make_contiguous().shuffle(&mut random);
        } else {
            self.free.borrow_mut().clear();
            self.wake_measured();
        }
    }

    /// Closes the seconds of the window that are over at `now`. To be called before what happens then is
    /// counted.
    pub(crate) fn close_seconds(&self, now: Instant) {
        if self.seconds.is_over(now) {
            let until = self.end.get().map_or(now, |end| now.min(end));
            self.seconds.close(until, || Second::of(&self.account.borrow(), self.open_loop));
        }
    }

    /// Wakes up to so many connections that found nothing left to do in a closed loop: they wait for
    /// no event of their own.
    fn wake_free(&self, most: usize) {
        let mut free = self.free.borrow_mut();
        let count = most.min(free.len());
        for seat in free.drain(..count) {
            self.net.wake(self.seats.borrow()[seat as usize].1);
        }
    }

    fn wake_measured(&self) {
        for (_, key) in self.seats.borrow().iter() {
            self.net.wake(*key);
        }
    }

    /// Ends the window and returns when that was: at its time if it has one and it has come.
    pub(crate) fn finish(&self) -> Instant {
        let now = Instant::now();
        let end = self.end.get().map_or(now, |end| end.min(now));
        self.end.set(Some(end));
        self.phase.set(Phase::Over);
        self.backlog.borrow_mut().clear();
        if self.plan.session_calls().is_some() {
            // Those that rest have nothing to wait for.
            self.wake_measured();
        }
        end
    }

    /// Whether there still are requests to schedule.
    pub(crate) fn is_scheduling(&self) -> bool {
        self.quota.get() > 0
    }

    /// The moment of the next start.
    pub(crate) fn next_due(&self, starts: &mut Starts) -> Option<Instant> {
        self.start.get().checked_add(starts.next()?)
    }

    /// Gives out what is `due` now, and before `later`; `false`: the window ends before it, or nothing
    /// is left to do.
    pub(crate) fn hand_out_due(&self, due: Instant, now: Instant, later: &Starts) -> bool {
        if self.end.get().is_some_and(|end| due >= end) {
            return false;
        }
        let calls = self.take_from_quota(self.calls);
        if let Some(calls) = calls {
            self.hand_out(due, calls, now, later);
        }
        calls.is_some()
    }

    /// Takes requests off those that are left, up to so many; `None`: none is.
    fn take_from_quota(&self, most: u32) -> Option<u32> {
        match self.quota.get() {
            0 => None,
            u64::MAX => Some(most),
            left => {
                let taken = left.min(most.into());
                self.quota.set(left - taken);
                Some(taken as u32)
            }
        }
    }

    fn hand_out(&self, due: Instant, calls: u32, now: Instant, later: &Starts) {
        self.account.borrow_mut().scheduled += 1;
        let mut free = self.free.borrow_mut();
        let mut seats = self.seats.borrow_mut();
        while let Some(seat) = free.pop_front() {
            let (place, key) = &mut seats[seat as usize];
            if matches!(place, ConnState::Free) {
                *place = ConnState::Given(ScheduledStart { due: Some(due), waited: false, calls });
                self.busy.set(self.busy.get() + 1);
                self.net.wake(*key);
                return;
            }
        }
        let mut account = self.account.borrow_mut();
        account.waited += 1;
        account.slipped(now.saturating_duration_since(due));
        self.backlog.borrow_mut().push(self.start.get(), due, calls, later);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use mech::net::{Executor, NetOptions};
    use proptest::prelude::*;

    use super::*;
    use crate::plan::options::Options;
    use crate::plan::request::Request;
    use crate::plan::shape::{Arrivals, Rate, Schedule, SessionOptions, Think, Unit};
    use crate::run::client;

    fn plan() -> Plan {
        Plan::new(options()).unwrap()
    }

    /// The schedule of one worker alone.
    fn starts(plan: &Plan) -> Starts {
        let schedule = plan.schedule.as_ref().unwrap();
        schedule.starts(plan.duration, Share { worker: 0, workers: 1 }, plan.seed)
    }

    fn options() -> Options {
        let url = "http://127.0.0.1:9/".parse().unwrap();
        let asked = vec![Request { url, content: Default::default() }];
        Options {
            connections: 2,
            schedule: Some(Schedule {
                rate: Rate::Constant(1000.0),
                arrivals: Arrivals::Constant,
                unit: Unit::Request,
            }),
            duration: Some(Duration::from_secs(1)),
            timeout: Duration::from_secs(1),
            ..Options::new(asked, mech::mechanisms::auto_of_readiness().unwrap())
        }
    }

    /// Tens of thousands of connections are held by one process.
    #[test]
    fn a_connection_costs_little_memory() {
        let plan = plan();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let worker = Worker::new(&net, &plan, Share { worker: 0, workers: 1 });
        let size = Cell::new(0);
        // It is resumed once before the end, and finds that nobody listens.
        worker.opening.set(1);
        worker.members.set(1);
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
        assert!((1..=1024).contains(&size.get()), "{}", size.get());
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

        let mut starts = starts(&plan);
        for _ in 0..5 {
            let due = worker.next_due(&mut starts).unwrap();
            assert!(worker.hand_out_due(due, millisecond(4), &starts));
        }
        assert!(!worker.hand_out_due(millisecond(1000), millisecond(1000), &starts));
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

    /// Both are exponentially distributed: of one stream they would be the same numbers.
    #[test]
    fn rests_have_nothing_to_do_with_arrivals() {
        let second = Duration::from_secs(1);
        let session =
            SessionOptions { think: Think::Exponential(second), ..SessionOptions::default() };
        let rate = Rate::Constant(1.0);
        let schedule = Schedule { rate, arrivals: Arrivals::Poisson, unit: Unit::Request };
        let plan = Options { schedule: Some(schedule), session, ..options() };
        let plan = Plan::new(plan).unwrap();
        let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
        let share = Share { worker: 0, workers: 1 };
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
        let worker = Worker::new(&net, &plan, Share { worker: 0, workers: 1 });
        worker.begin(net.now());
        worker.offer(0);
        worker.offer(1);
        worker.withdraw(0);
        worker.hand_out_due(net.now(), net.now(), &starts(&plan));
        assert!(worker.take(0, || unreachable!()).is_none());
        assert!(worker.take(1, || unreachable!()).is_some());
    }

    /// What may happen to one of three connections, or to the schedule.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// Another request comes due.
        Due,
        /// A connection asks for a scheduled start, and offers itself if there is none.
        Ask(u32),
        /// It is closed while it waits, and asks again.
        Close(u32),
        /// The reply to its scheduled start has come, if it has one.
        Reply(u32),
        /// It could not be opened for its scheduled start.
        Fail(u32),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let seat = 0..3u32;
        proptest::collection::vec(
            prop_oneof![
                Just(Event::Due),
                seat.clone().prop_map(Event::Ask),
                seat.clone().prop_map(Event::Close),
                seat.clone().prop_map(Event::Reply),
                seat.prop_map(Event::Fail),
            ],
            0..200,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever happens, each due request is given out once, or waits.
        #[test]
        fn no_start_is_lost_or_given_twice(events in events()) {
            let plan = Plan::new(Options { connections: 3, requests: Some(1000), ..options() });
            let plan = plan.unwrap();
            let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
            let worker = Worker::new(&net, &plan, Share { worker: 0, workers: 1 });
            worker.begin(net.now());
            let never = || unreachable!("the clock is asked in a closed loop only");
            let mut starts = starts(&plan);
            let (mut due, mut taken, mut held) = (0, Vec::new(), [None; 3]);
            for event in events {
                match event {
                    Event::Due => {
                        let at = worker.next_due(&mut starts).unwrap();
                        prop_assert!(worker.hand_out_due(at, at, &starts));
                        due += 1;
                    }
                    Event::Ask(seat) | Event::Close(seat) if held[seat as usize].is_none() => {
                        held[seat as usize] = worker.take(seat, never);
                        match held[seat as usize] {
                            Some(start) => taken.push(start.due.unwrap()),
                            None if matches!(event, Event::Close(_)) => worker.withdraw(seat),
                            None => worker.offer(seat),
                        }
                    }
                    Event::Reply(seat) if held[seat as usize].take().is_some() => worker.settle(),
                    Event::Fail(seat) => {
                        held[seat as usize].take().into_iter().for_each(|t| worker.give_back(t));
                    }
                    _ => {}
                }
                let given = worker.seats.borrow();
                let given = given.iter().filter(|seat| matches!(seat.0, ConnState::Given(_))).count();
                let waiting = worker.backlog.borrow().len() as usize;
                prop_assert_eq!(taken.len() + given + waiting, due as usize);
                let at_work = held.iter().flatten().count() + given;
                prop_assert_eq!(worker.busy.get() as usize, at_work);
                // No request waits while a connection is free.
                let free = worker.seats.borrow().iter().any(|seat| matches!(seat.0, ConnState::Free));
                prop_assert!(waiting == 0 || !free);
            }
            prop_assert_eq!(worker.account.borrow().scheduled, due);
            let distinct: BTreeSet<Instant> = taken.iter().copied().collect();
            prop_assert_eq!(distinct.len(), taken.len());
        }
    }
}
