//! When the request was here whose response is under way, in the six bytes that a connection has to spare.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A time in units of 16 ns since a worker has begun, of which 52 days can be told apart; 0: none.
#[derive(Default)]
pub(super) struct ResponseStart(Cell<[u16; 3]>);

/// A unit has so many nanoseconds.
const UNIT: u64 = 16;

/// The bits that are kept.
const MASK: u64 = (1 << 48) - 1;

impl ResponseStart {
    /// Keeps `at`, a time since the worker has begun, if there is no earlier one.
    pub(super) fn keep(&self, at: Duration) {
        if self.0.get() == [0; 3] {
            let units = ((at.as_nanos() as u64 / UNIT) & MASK).max(1);
            self.0.set([units as u16, (units >> 16) as u16, (units >> 32) as u16]);
        }
    }

    /// The nanoseconds from the time that was kept, or else from what `start` returns, until `at`, for a worker that has begun at
    /// `epoch`. Nothing is kept afterwards.
    #[inline]
    pub(super) fn until(
        &self,
        at: Instant,
        epoch: Instant,
        start: impl FnOnce() -> Instant,
    ) -> u64 {
        match self.0.get() {
            [0, 0, 0] => (at - start()).as_nanos() as u64,
            kept => {
                self.0.set([0; 3]);
                since(kept, at - epoch)
            }
        }
    }
}

#[cold]
fn since(kept: [u16; 3], now: Duration) -> u64 {
    let [low, middle, high] = kept.map(u64::from);
    let start = low | middle << 16 | high << 32;
    (now.as_nanos() as u64 / UNIT).wrapping_sub(start).wrapping_mul(UNIT) & (MASK * UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_is_kept_until_it_is_asked_for() {
        let epoch = Instant::now();
        let after = |hours| epoch + Duration::from_hours(hours);
        let nanos = |hours| Duration::from_hours(hours).as_nanos() as u64;
        let start = ResponseStart::default();
        assert_eq!(start.until(after(3), epoch, || after(1)), nanos(2));
        start.keep(Duration::from_hours(2));
        start.keep(Duration::ZERO);
        assert_eq!(start.until(after(3), epoch, || after(1)), nanos(1));
        assert_eq!(start.until(after(3), epoch, || after(1)), nanos(2));
        // What is counted wraps around after 52 days.
        start.keep(Duration::from_hours(50 * 24));
        assert_eq!(start.until(after(100 * 24), epoch, || epoch), nanos(50 * 24));
    }
}
