//! A run second by second: what workers tell of themselves, and the sums of all.
//!
//! Once a second, and only if the listener wants it, a worker hands over a copy of what it has counted
//! so far. The difference of two copies is what happened between
//! them. The copy is made before the first event of the next second is counted, so that every event is
//! told in its own second, and seconds without an event are told as such.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::account::counts::{Account, TimeHistogram, times};

/// Counts of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SecondCounts {
    /// Requests sent.
    pub requests: u64,
    /// Responses that were complete.
    pub responses: u64,
    /// Errors of all classes, failed attempts to connect included.
    pub errors: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received: heads and bodies of responses.
    pub received: u64,
    /// Connections opened.
    pub opened: u64,
}

impl SecondCounts {
    fn each(self, other: SecondCounts, with: fn(u64, u64) -> u64) -> SecondCounts {
        SecondCounts {
            requests: with(self.requests, other.requests),
            responses: with(self.responses, other.responses),
            errors: with(self.errors, other.errors),
            sent: with(self.sent, other.sent),
            received: with(self.received, other.received),
            opened: with(self.opened, other.opened),
        }
    }
}

impl std::ops::AddAssign for SecondCounts {
    fn add_assign(&mut self, other: SecondCounts) {
        *self = self.each(other, |a, b| a + b);
    }
}

impl std::ops::Sub for SecondCounts {
    type Output = SecondCounts;

    fn sub(self, other: SecondCounts) -> SecondCounts {
        self.each(other, |a, b| a - b)
    }
}

/// What happened in one second of the window; or, as the last of a run, from its last full second to
/// its last response.
#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// What was counted in this second.
    pub counts: SecondCounts,
    /// The latencies of the responses, in nanoseconds.
    pub latencies: TimeHistogram,
}

impl Second {
    /// A second in which nothing happened.
    pub(crate) fn empty() -> Second {
        Second { counts: SecondCounts::default(), latencies: times() }
    }

    /// Everything that an account holds.
    pub(crate) fn of(account: &Account, open_loop: bool) -> Second {
        let latencies = match open_loop {
            true => account.latency.clone(),
            false => account.service_so_far(),
        };
        Second {
            counts: SecondCounts {
                requests: account.requests,
                responses: account.responses,
                errors: account.errors.total(),
                sent: account.sent_bytes,
                received: account.head_bytes + account.body_bytes,
                opened: account.connections.opened,
            },
            latencies,
        }
    }

    pub(crate) fn add(&mut self, other: &Second) {
        self.counts += other.counts;
        self.latencies.add(&other.latencies).expect("all histograms have the same bounds");
    }

    /// What happened since `earlier`; both count one source.
    fn since(&self, earlier: &Second) -> Second {
        let mut latencies = self.latencies.clone();
        latencies.subtract(&earlier.latencies).expect("counts only grow");
        Second { counts: self.counts - earlier.counts, latencies }
    }
}

/// The seconds of a worker's window, as they end. Off until [`Seconds::begin`].
#[derive(Default)]
pub(crate) struct Seconds {
    /// The end of the second that has not been closed yet.
    end: Cell<Option<Instant>>,
    closed: RefCell<Vec<SoFar>>,
}

/// Everything that a worker had counted at the end of a second; `None`: nothing was counted in that
/// second.
pub(crate) type SoFar = Option<Box<Second>>;

impl Seconds {
    /// Asks for the seconds of a window that begins at `start`.
    pub(crate) fn begin(&self, start: Instant) {
        self.end.set(Some(start + SECOND));
    }

    /// Whether a second is over at `now`. Call this before counting an event that happens at `now`.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.end.get().is_some_and(|end| now >= end)
    }

    /// The end of the second that comes next; `None`: off.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.end.get()
    }

    /// Closes every second that is over at `until`; `count` tells what has been counted so far.
    pub(crate) fn close(&self, until: Instant, count: impl FnOnce() -> Second) {
        let Some(mut end) = self.end.get().filter(|end| *end <= until) else { return };
        let mut closed = self.closed.borrow_mut();
        closed.push(Some(Box::new(count())));
        end += SECOND;
        while end <= until {
            closed.push(None);
            end += SECOND;
        }
        self.end.set(Some(end));
    }

    /// Takes the closed seconds out, the oldest first.
    pub(crate) fn take(&self) -> Vec<SoFar> {
        self.closed.take()
    }
}

/// Turns what a worker has counted so far into what happened since it told the last time.
pub(crate) struct Differences(Second);

impl Differences {
    pub(crate) fn new() -> Differences {
        Differences(Second::empty())
    }

    pub(crate) fn next(&mut self, so_far: Second) -> Second {
        let second = so_far.since(&self.0);
        self.0 = so_far;
        second
    }
}

/// Adds up the seconds of several sources: the first of all, the second of all, and so on.
pub(crate) struct Sum {
    /// `None`: a second in which nothing happened. It takes no room, however many there are.
    queues: Vec<VecDeque<Option<Second>>>,
    /// Sources that have no more full seconds.
    done: Vec<bool>,
}

impl Sum {
    pub(crate) fn new(sources: usize) -> Sum {
        Sum { queues: vec![VecDeque::new(); sources], done: vec![false; sources] }
    }

    pub(crate) fn push(&mut self, source: usize, second: Option<Second>) {
        self.queues[source].push_back(second);
    }

    pub(crate) fn end(&mut self, source: usize) {
        self.done[source] = true;
    }

    /// The next second that is known of all sources.
    pub(crate) fn pop(&mut self) -> Option<Second> {
        let waits = |(queue, done): (&VecDeque<_>, &bool)| queue.is_empty() && !done;
        if self.queues.iter().zip(&self.done).any(waits) {
            return None;
        }
        let mut seconds: Vec<_> = self.queues.iter_mut().filter_map(VecDeque::pop_front).collect();
        let mut sum = seconds.pop()?.unwrap_or_else(Second::empty);
        seconds.iter().flatten().for_each(|second| sum.add(second));
        Some(sum)
    }
}

/// One second.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::counts::record;

    fn account(responses: u64) -> Account {
        let mut account = Account::new();
        account.requests = responses + 1;
        account.responses = responses;
        for response in 1..=responses {
            record(&mut account.service, Duration::from_millis(response));
        }
        account
    }

    #[test]
    fn differences_are_what_happened_in_between() {
        let mut differences = Differences::new();
        let first = differences.next(Second::of(&account(3), false));
        assert_eq!((first.counts.requests, first.latencies.len()), (4, 3));
        let second = differences.next(Second::of(&account(5), false));
        assert_eq!((second.counts.requests, second.counts.responses), (2, 2));
        assert_eq!(second.latencies.len(), 2);
        assert!(second.latencies.min() >= 3_990_000);
        let quiet = differences.next(Second::of(&account(5), false));
        assert_eq!(quiet, Second::empty());
    }

    #[test]
    fn each_second_is_closed_once_and_quiet_ones_are_told_apart() {
        let (start, seconds) = (Instant::now(), Seconds::default());
        let count = || Second::of(&account(3), false);
        assert!(!seconds.is_over(start + 9 * SECOND));
        seconds.begin(start);
        assert!(!seconds.is_over(start + SECOND / 2) && seconds.is_over(start + SECOND));
        seconds.close(start + SECOND / 2, || unreachable!());
        seconds.close(start + SECOND * 7 / 2, count);
        assert!(!seconds.is_over(start + SECOND * 7 / 2));
        assert_eq!(seconds.take(), [Some(Box::new(count())), None, None]);
        seconds.close(start + 4 * SECOND, count);
        assert_eq!(seconds.take().len(), 1);
        assert_eq!(seconds.take(), []);
    }

    #[test]
    fn seconds_are_added_up_when_all_sources_have_told_theirs() {
        let of = |responses| Some(Second::of(&account(responses), false));
        let mut sum = Sum::new(2);
        sum.push(0, of(1));
        sum.push(0, of(2));
        assert!(sum.pop().is_none());
        sum.push(1, of(5));
        let first = sum.pop().unwrap();
        assert_eq!((first.counts.responses, first.latencies.len()), (6, 6));
        assert!(sum.pop().is_none());
        // One that is done is not waited for.
        sum.end(1);
        assert_eq!(sum.pop().unwrap().counts.responses, 2);
        sum.push(0, None);
        assert_eq!(sum.pop(), Some(Second::empty()));
        sum.end(0);
        assert!(sum.pop().is_none());
    }
}
