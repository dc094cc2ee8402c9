//! Which connection gets which scheduled start, and how many starts are left.
//!
//! The life of one request, and the method that makes each step:
//!
//! ```text
//!                      quota, schedule
//!                             │ hand_out (open loop)          take (closed loop)
//!            ┌────────────────┴───────────────┐                      │
//!    a connection is free           no connection is free            │
//!            │                                │                      │
//!            ▼                                ▼                      │
//!      ConnState::Given                ScheduleBacklog ──clear──► unsent (the window is over)
//!            │ take                           │ take                 │
//!            └────────────────┬───────────────┘◄─────────────────────┘
//!                             ▼
//!                  held by the connection ──give_back──► closed loop: quota; open loop: unsent
//!                             │ the connection sends the request
//!                             ▼
//!                         in flight
//!                             │ settle
//!                             ▼
//!                   response or error: counted
//! ```
//!
//! In HTTP/2, each stream that a connection may have is a connection here.
//!
//! A start is *unsettled* from `Given`, or from `take`, until `settle` or `give_back`. The window of a
//! run that counts its requests ends when the quota is 0, the backlog is empty and no start is
//! unsettled.
//!
//! The states of a measured connection in an open loop: `Away` ──offer──► `Free` ──hand_out──► `Given`
//! ──take──► `Away`; `withdraw` leads from `Free` to `Away`. In a closed loop a connection stays `Away`,
//! and the queue of free connections holds those that found the quota empty.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Instant;

use drover_mech::Key;
use drover_mech::net::Net;
use rand::seq::SliceRandom;

use crate::plan::shape::Starts;
use crate::run::worker::schedule_backlog::ScheduleBacklog;

/// Permission to send a request now; where the schedule starts connections, to make all the calls of
/// one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduledStart {
    /// The intended start; `None` in a closed loop, where a request starts when it is sent.
    pub(crate) due: Option<Instant>,
    /// The start waited for a free connection. Its lateness is then the server's, not the generator's.
    pub(crate) waited: bool,
    /// The number of calls: 1, except where the schedule starts connections.
    pub(crate) calls: u32,
}

/// Whether a measured connection can get a scheduled start.
#[derive(Clone, Copy, Debug)]
enum ConnState {
    /// Cannot get one: the connection is at work, resting, or not connected.
    Away,
    /// In the queue of free connections.
    Free,
    /// Has one that it has not picked up yet.
    Given(ScheduledStart),
}

/// Where a due start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOut {
    /// To a free connection.
    Given,
    /// To the backlog: no connection is free.
    Waits,
}

/// The starts of one worker: those left, those that wait, those given out, and who is free.
pub(crate) struct StartQueue<'n> {
    net: &'n Net,
    /// Requests still to be sent (closed loop) or scheduled (open loop); `u64::MAX`: no limit.
    quota: Cell<u64>,
    /// Calls per scheduled start.
    calls: u32,
    /// State and wake-up key of each measured connection.
    connections: RefCell<Vec<(ConnState, Key)>>,
    /// The numbers of free connections; the first has been free for longest. A number may stand here
    /// twice, or for a connection that is not `Free` any more: `hand_out` skips such entries.
    free: RefCell<VecDeque<u32>>,
    /// Due starts for which no connection was free.
    backlog: RefCell<ScheduleBacklog>,
    /// Starts given out and not settled.
    unsettled: Cell<u32>,
}

impl<'n> StartQueue<'n> {
    /// The starts for `measured` connections: `quota` requests, in starts of `calls` each.
    pub(crate) fn new(net: &'n Net, measured: u32, quota: u64, calls: u32) -> StartQueue<'n> {
        StartQueue {
            net,
            quota: Cell::new(quota),
            calls,
            connections: RefCell::new(vec![(ConnState::Away, Key::WAKER); measured as usize]),
            free: RefCell::new(VecDeque::new()),
            backlog: RefCell::new(ScheduleBacklog::new(calls)),
            unsettled: Cell::new(0),
        }
    }

    /// Sets the key that wakes the coroutine of measured connection `index`.
    pub(crate) fn register(&self, index: u32, key: Key) {
        self.connections.borrow_mut()[index as usize].1 = key;
    }

    /// Open loop: the start that connection `index` was given, or else the oldest of the backlog.
    pub(crate) fn take_scheduled(&self, index: u32) -> Option<ScheduledStart> {
        let state = &mut self.connections.borrow_mut()[index as usize].0;
        match *state {
            ConnState::Given(start) => {
                *state = ConnState::Away;
                Some(start)
            }
            ConnState::Free => None,
            ConnState::Away => {
                let (due, calls) = self.backlog.borrow_mut().pop()?;
                self.unsettled.set(self.unsettled.get() + 1);
                Some(ScheduledStart { due: Some(due), waited: true, calls })
            }
        }
    }

    /// Closed loop: a start for one request of the quota.
    pub(crate) fn take_from_quota(&self) -> Option<ScheduledStart> {
        let calls = self.reduce_quota(1)?;
        self.unsettled.set(self.unsettled.get() + 1);
        Some(ScheduledStart { due: None, waited: false, calls })
    }

    /// Open loop: puts connection `index` into the queue of free connections, unless it is there.
    pub(crate) fn offer(&self, index: u32) {
        let state = &mut self.connections.borrow_mut()[index as usize].0;
        if matches!(state, ConnState::Away) {
            *state = ConnState::Free;
            self.free.borrow_mut().push_back(index);
        }
    }

    /// Closed loop: notes that connection `index` waits until another gives a request back.
    pub(crate) fn wait_for_returned(&self, index: u32) {
        self.free.borrow_mut().push_back(index);
    }

    /// Takes the offer of connection `index` back. A start that was given already stays given.
    pub(crate) fn withdraw(&self, index: u32) {
        let state = &mut self.connections.borrow_mut()[index as usize].0;
        if matches!(state, ConnState::Free) {
            *state = ConnState::Away;
        }
    }

    /// Takes the offer of connection `index` back, and the start that it was given meanwhile.
    pub(crate) fn retract(&self, index: u32) -> Option<ScheduledStart> {
        let state = &mut self.connections.borrow_mut()[index as usize].0;
        match std::mem::replace(state, ConnState::Away) {
            ConnState::Given(start) => Some(start),
            ConnState::Away | ConnState::Free => None,
        }
    }

    /// The calls of `count` starts have their responses or errors, or will never be made.
    pub(crate) fn settle(&self, count: u32) {
        self.unsettled.set(self.unsettled.get() - count);
    }

    /// Closed loop: puts a request back into the quota, and wakes a connection that waits for one.
    pub(crate) fn return_to_quota(&self) {
        if self.quota.get() != u64::MAX {
            self.quota.set(self.quota.get() + 1);
            self.wake_free(1);
        }
    }

    /// Whether a start is given out and not settled.
    pub(crate) fn any_unsettled(&self) -> bool {
        self.unsettled.get() > 0
    }

    /// Whether requests are left to be scheduled or sent.
    pub(crate) fn any_left(&self) -> bool {
        self.quota.get() > 0
    }

    /// Whether no request is left: none in the quota, and none in the backlog.
    pub(crate) fn is_exhausted(&self) -> bool {
        !self.any_left() && self.backlog.borrow().len() == 0
    }

    /// Drops the backlog: the window is over.
    pub(crate) fn clear_backlog(&self) {
        self.backlog.borrow_mut().clear();
    }

    /// Open loop, at the beginning of the window: puts the free connections into a random order.
    pub(crate) fn shuffle_free(&self, random: &mut impl rand::Rng) {
        self.free.borrow_mut().make_contiguous().shuffle(random);
    }

    /// Closed loop, at the beginning of the window: wakes every connection to take a start.
    pub(crate) fn release_all(&self) {
        self.free.borrow_mut().clear();
        self.wake_all();
    }

    /// Closed loop: wakes at most `most` connections that found the quota empty. Nothing else wakes
    /// them: they wait for no event of their sockets.
    pub(crate) fn wake_free(&self, most: usize) {
        let mut free = self.free.borrow_mut();
        let count = most.min(free.len());
        for index in free.drain(..count) {
            self.net.wake(self.connections.borrow()[index as usize].1);
        }
    }

    /// Wakes every measured connection.
    pub(crate) fn wake_all(&self) {
        for (_, key) in self.connections.borrow().iter() {
            self.net.wake(*key);
        }
    }

    /// Open loop: gives the start at `due` to the connection that has been free for longest, or adds it
    /// to the backlog. The schedule goes on with `later`, counted from `begin`, the beginning of the
    /// window. `None`: the quota is used up.
    pub(crate) fn hand_out(
        &self,
        begin: Instant,
        due: Instant,
        later: &Starts,
    ) -> Option<HandedOut> {
        let calls = self.reduce_quota(self.calls)?;
        let mut free = self.free.borrow_mut();
        let mut connections = self.connections.borrow_mut();
        while let Some(index) = free.pop_front() {
            let (state, key) = &mut connections[index as usize];
            if matches!(state, ConnState::Free) {
                *state = ConnState::Given(ScheduledStart { due: Some(due), waited: false, calls });
                self.unsettled.set(self.unsettled.get() + 1);
                self.net.wake(*key);
                return Some(HandedOut::Given);
            }
        }
        self.backlog.borrow_mut().push(begin, due, calls, later);
        Some(HandedOut::Waits)
    }

    /// Takes at most `most` requests out of the quota and returns how many; `None`: it is empty.
    fn reduce_quota(&self, most: u32) -> Option<u32> {
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use drover_mech::net::NetOptions;
    use proptest::prelude::*;

    use super::*;
    use crate::plan::options::{LoadOptions, LoadPlan};
    use crate::plan::shape::LoadShare;
    use crate::run::worker::Worker;
    use crate::run::worker::testing::{options, starts};

    /// What may happen to one of three connections, or to the schedule.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// Another request comes due.
        Due,
        /// A connection asks for a scheduled start, and offers itself if there is none.
        Offer(u32),
        /// The server closes a connection that waits for a start; the connection asks again.
        Close(u32),
        /// The response to a connection's start has come, if the connection has one.
        Respond(u32),
        /// A connection could not be opened for the start that it has.
        Fail(u32),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let index = 0..3u32;
        proptest::collection::vec(
            prop_oneof![
                Just(Event::Due),
                index.clone().prop_map(Event::Offer),
                index.clone().prop_map(Event::Close),
                index.clone().prop_map(Event::Respond),
                index.prop_map(Event::Fail),
            ],
            0..200,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever happens, each due request is given out once, or waits.
        #[test]
        fn no_start_is_lost_or_given_twice(events in events()) {
            let plan = LoadPlan::new(LoadOptions { connections: 3, requests: Some(1000), ..options() });
            let plan = plan.unwrap();
            let net = Net::open(&NetOptions::new(plan.mechanism)).unwrap();
            let worker = Worker::new(&net, &plan, LoadShare { worker: 0, workers: 1 });
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
                    Event::Offer(index) | Event::Close(index) if held[index as usize].is_none() => {
                        held[index as usize] = worker.take(index, never);
                        match held[index as usize] {
                            Some(start) => taken.push(start.due.unwrap()),
                            None if matches!(event, Event::Close(_)) => worker.starts.withdraw(index),
                            None => worker.offer(index),
                        }
                    }
                    Event::Respond(index) if held[index as usize].take().is_some() => worker.settle(),
                    Event::Fail(index) => {
                        held[index as usize].take().into_iter().for_each(|t| worker.give_back(t));
                    }
                    _ => {}
                }
                let connections = worker.starts.connections.borrow();
                let given = connections.iter().filter(|connection| matches!(connection.0, ConnState::Given(_))).count();
                let waiting = worker.starts.backlog.borrow().len() as usize;
                prop_assert_eq!(taken.len() + given + waiting, due as usize);
                let at_work = held.iter().flatten().count() + given;
                prop_assert_eq!(worker.starts.unsettled.get() as usize, at_work);
                // No request waits while a connection is free.
                let free = connections.iter().any(|connection| matches!(connection.0, ConnState::Free));
                prop_assert!(waiting == 0 || !free);
            }
            prop_assert_eq!(worker.account.borrow().scheduled, due);
            let distinct: BTreeSet<Instant> = taken.iter().copied().collect();
            prop_assert_eq!(distinct.len(), taken.len());
        }
    }
}
