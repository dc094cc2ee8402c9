//! The due starts of a schedule that wait for a free connection.
//!
//! Starts come due in the order of the schedule, and are taken in this order. So the backlog is only a
//! count, and a second iterator over the schedule that lags behind the first: its memory does not grow,
//! however long a server stalls.

use std::time::Instant;

use crate::plan::shape::Starts;

/// Starts whose time has come and that no connection has taken.
pub(crate) struct ScheduleBacklog {
    /// The calls that each start is for; only the newest may be for fewer.
    calls: u32,
    waiting: u64,
    newest_calls: u32,
    lag: Option<Lag>,
}

/// The position of the iterator that lags behind.
struct Lag {
    /// The beginning of the window, which starts are relative to.
    begin: Instant,
    /// The oldest start that waits.
    oldest: Instant,
    /// The starts after the oldest one.
    later: Starts,
}

impl ScheduleBacklog {
    /// An empty backlog, of starts for `calls` calls each.
    pub(crate) fn new(calls: u32) -> ScheduleBacklog {
        ScheduleBacklog { calls, waiting: 0, newest_calls: calls, lag: None }
    }

    /// Adds the start at `due`, for `calls` calls. `later` are the starts of the schedule after it,
    /// counted from `begin`, the beginning of the window.
    pub(crate) fn push(&mut self, begin: Instant, due: Instant, calls: u32, later: &Starts) {
        if self.waiting == 0 {
            self.lag = Some(Lag { begin, oldest: due, later: later.clone() });
        }
        self.waiting += 1;
        self.newest_calls = calls;
    }

    /// Takes the oldest start out, with its number of calls.
    pub(crate) fn pop(&mut self) -> Option<(Instant, u32)> {
        self.waiting = self.waiting.checked_sub(1)?;
        let lag = self.lag.as_mut()?;
        if self.waiting == 0 {
            return Some((lag.oldest, self.newest_calls));
        }
        // A start that waits was due before, so the schedule has it.
        let next = lag.begin + lag.later.next()?;
        Some((std::mem::replace(&mut lag.oldest, next), self.calls))
    }

    /// How many starts wait.
    pub(crate) fn len(&self) -> u64 {
        self.waiting
    }

    /// Drops all starts.
    pub(crate) fn clear(&mut self) {
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::shape::{Arrivals, LoadShare, Rate, Schedule, Unit};

    #[test]
    fn what_waits_is_taken_as_the_schedule_has_it() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let schedule =
                Schedule { rate: Rate::Constant(10.0), arrivals, unit: Unit::Connection };
            let starts = || {
                schedule.starts(
                    Some(Duration::from_secs(9)),
                    LoadShare { worker: 1, workers: 2 },
                    1,
                )
            };
            let begin = Instant::now();
            let expected: Vec<Instant> = starts().take(12).map(|start| begin + start).collect();
            let mut backlog = ScheduleBacklog::new(3);
            let mut later = starts();
            let mut push = |backlog: &mut ScheduleBacklog, calls| {
                let due = begin + later.next().unwrap();
                backlog.push(begin, due, calls, &later);
            };
            let mut taken = Vec::new();
            for (count, calls) in [(5, 3), (1, 3), (5, 3), (1, 2)] {
                (0..count).for_each(|_| push(&mut backlog, calls));
                assert_eq!(backlog.len(), count);
                taken.extend(std::iter::from_fn(|| backlog.pop()));
            }
            assert_eq!(taken.iter().map(|(due, _)| *due).collect::<Vec<_>>(), expected);
            assert_eq!(taken.iter().map(|(_, calls)| *calls).sum::<u32>(), 11 * 3 + 2);
            push(&mut backlog, 3);
            backlog.clear();
            assert_eq!((backlog.len(), backlog.pop()), (0, None));
        }
    }
}
