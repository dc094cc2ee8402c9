//! Notices when the whole generator stood still: stopped by a signal, frozen with its container or
//! its virtual machine, or left without a processor.
//!
//! A stopped process cannot time its own stop (signal(7): SIGSTOP cannot be caught), and its clock
//! goes on meanwhile. So a thread that does nothing else asks to be woken every [`PERIOD`]; by as
//! much as it wakes later than that, the process did not run.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often the thread wakes: a stop may be found up to so much too short.
const PERIOD: Duration = Duration::from_millis(10);

/// What wakes that thread later than this is a pause; less is what a busy machine's scheduler does
/// to any thread.
const NOTICED: Duration = Duration::from_millis(20);

/// Adds up the pauses from `start`, once that is known, until the other end of `over` is dropped.
pub(super) fn watch(start: &OnceLock<Instant>, over: &Receiver<()>) -> Duration {
    let mut paused = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let heard = over.recv_timeout(PERIOD);
        let now = Instant::now();
        if let Some(&start) = start.get() {
            paused += pause(asked, now, start);
        }
        if heard != Err(RecvTimeoutError::Timeout) {
            return paused;
        }
    }
}

/// How much of the time from `start` on was lost between `asked` and `now`.
fn pause(asked: Instant, now: Instant, start: Instant) -> Duration {
    let late = now.saturating_duration_since(asked + PERIOD);
    if late < NOTICED { Duration::ZERO } else { late.min(now.saturating_duration_since(start)) }
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
        assert_eq!(watch(&OnceLock::new(), &over), Duration::ZERO);
    }
}
