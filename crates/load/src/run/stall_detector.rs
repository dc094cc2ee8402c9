//! How far the generator's own times can be believed: whether it stood still as a whole (stopped by a
//! signal, frozen with its container or its virtual machine, left without a processor), how late a
//! thread is woken, and what reading the clock costs.
//!
//! A stopped process cannot time its own stop (signal(7): SIGSTOP cannot be caught), and its clock
//! goes on meanwhile. So a thread that does nothing else asks to be woken every [`PERIOD`]; the
//! process did not run for as long as the thread wakes late.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use drover_sys::process;

use crate::account::counts::{record, times};

/// What the watching thread has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    /// How long the process stood still, all in all.
    pub(crate) paused: Duration,
    /// 99 % of the wake-ups were at most this late; `None`: there were no wake-ups.
    pub(crate) woken_late: Option<Duration>,
    /// What the clock shows between two readings, one right after the other.
    pub(crate) clock: Duration,
}

/// How often the thread wakes. A pause may be measured too short by up to this time.
const PERIOD: Duration = Duration::from_millis(10);

/// A wake-up later than this is a pause. The scheduler of a busy machine delays any thread by less.
const NOTICED: Duration = Duration::from_millis(20);

/// Watches while the run is `running_since` a moment, and not when nothing is under way: whoever closes thousands of connections may
/// keep the processor to itself. Returns when the sender of `over` is dropped.
pub(crate) fn watch(running_since: impl Fn() -> Option<Instant>, over: &Receiver<()>) -> Watched {
    // The worker threads have sharp timers too.
    let _ = process::sharpen_timers();
    let mut watched = Watched { clock: clock(), ..Watched::default() };
    let mut late = times();
    loop {
        let asked = Instant::now();
        let heard = over.recv_timeout(PERIOD);
        let now = Instant::now();
        if let Some(start) = running_since() {
            watched.paused += pause(asked, now, start);
            if heard.is_err_and(|error| error == RecvTimeoutError::Timeout) {
                record(&mut late, now.saturating_duration_since(asked + PERIOD));
            }
        }
        if heard != Err(RecvTimeoutError::Timeout) {
            let p99 = Duration::from_nanos(late.value_at_quantile(0.99));
            watched.woken_late = (!late.is_empty()).then_some(p99);
            return watched;
        }
    }
}

/// How much of the time from `start` on was lost between `asked` and `now`.
fn pause(asked: Instant, now: Instant, start: Instant) -> Duration {
    let late = now.saturating_duration_since(asked + PERIOD);
    if late < NOTICED { Duration::ZERO } else { late.min(now.saturating_duration_since(start)) }
}

/// The median of what the clock shows between two readings.
fn clock() -> Duration {
    let mut steps: [Duration; 101] = std::array::from_fn(|_| {
        let first = Instant::now();
        first.elapsed()
    });
    steps.sort_unstable();
    steps[steps.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_by_more_than_a_little_is_a_pause_within_the_window() {
        let asked = Instant::now();
        let after = |milliseconds| asked + Duration::from_millis(milliseconds);
        let of = |now, start| pause(asked, after(now), after(start)).as_millis();
        assert_eq!(of(10, 0), 0);
        assert_eq!(of(29, 0), 0);
        assert_eq!(of(710, 0), 700);
        assert_eq!(of(710, 300), 410);
        assert_eq!(of(710, 800), 0);
    }

    #[test]
    fn it_ends_with_the_run() {
        let (alive, over) = std::sync::mpsc::channel();
        drop(alive);
        let watched = watch(|| None, &over);
        assert_eq!((watched.paused, watched.woken_late), (Duration::ZERO, None));
    }
}
