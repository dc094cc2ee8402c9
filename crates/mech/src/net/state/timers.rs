//! When a worker has something to do next, if no event comes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use drover_sys::process::monotonic_nanos;

use crate::key::Key;
use crate::net::worker::turn_time::nanos;
use crate::net::worker::wheel::Wheel;
#[cfg(doc)]
use crate::net::{Conn, NetOptions};

/// The deadlines of connections, which are coarse, and the alarms of coroutines, which are precise. All times are
/// nanoseconds on `CLOCK_MONOTONIC`.
pub(in crate::net) struct Timers {
    /// The deadlines ([`Conn::set_deadline`]).
    pub(in crate::net) wheel: Wheel,
    /// Precise sleeps ([`Conn::sleep_until`]).
    alarms: BinaryHeap<Reverse<(u64, Key)>>,
    /// The time of [`NetOptions::spin`].
    spin: Duration,
}

impl Timers {
    pub(in crate::net) fn new(now: u64, resolution: Duration, spin: Duration) -> Timers {
        Timers { wheel: Wheel::new(now, resolution), alarms: BinaryHeap::new(), spin }
    }

    /// Resumes the coroutine of `key` at `at`. [`Key::WAKER`] has none: it only ends the wait.
    pub(in crate::net) fn set_alarm(&mut self, at: u64, key: Key) {
        self.alarms.push(Reverse((at, key)));
    }

    /// Takes an alarm whose time has come.
    #[inline]
    pub(in crate::net) fn take_alarm(&mut self, now: u64) -> Option<Key> {
        self.alarms.peek().filter(|alarm| alarm.0.0 <= now)?;
        self.alarms.pop().map(|Reverse((_, key))| key)
    }

    /// Whether a deadline may have passed.
    #[inline]
    pub(in crate::net) fn may_be_late(&self, now: u64) -> bool {
        self.wheel.next().is_some_and(|next| next <= now)
    }

    /// Whether the worker polls before alarms, instead of sleeping ([`NetOptions::spin`]).
    #[inline]
    pub(in crate::net) fn spins(&self) -> bool {
        !self.spin.is_zero()
    }

    /// How long a wait of the turn that began at `now` may last; `None`: no limit.
    pub(in crate::net) fn timeout(&self, now: u64) -> Option<Duration> {
        let alarm = self.alarms.peek().map(|alarm| alarm.0.0.saturating_sub(nanos(self.spin)));
        let due = match (alarm, self.wheel.next()) {
            (Some(alarm), Some(tick)) => Some(alarm.min(tick)),
            (alarm, tick) => alarm.or(tick),
        }?;
        // `now` is the start of this turn. Only a precise sleep needs the exact time from the clock.
        let now = if Some(due) == alarm { monotonic_nanos() } else { now };
        Some(Duration::from_nanos(due.saturating_sub(now)))
    }
}
