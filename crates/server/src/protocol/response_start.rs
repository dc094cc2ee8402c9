//! When the request was here whose response is under way, in the six bytes that a connection has to spare.

use std::cell::Cell;

/// A time in units of 16 ns, of which 52 days can be told apart; 0: none.
#[derive(Default)]
pub(super) struct ResponseStart(Cell<[u16; 3]>);

/// A unit has so many nanoseconds.
const UNIT: u64 = 16;

/// The bits that are kept.
const MASK: u64 = (1 << 48) - 1;

impl ResponseStart {
    /// Keeps `at`, in nanoseconds, if there is no earlier time.
    pub(super) fn keep(&self, at: u64) {
        if self.0.get() == [0; 3] {
            let units = ((at / UNIT) & MASK).max(1);
            self.0.set([units as u16, (units >> 16) as u16, (units >> 32) as u16]);
        }
    }

    /// The nanoseconds from the time that was kept, or else from `start`, until `at`. Nothing is kept afterwards.
    #[inline]
    pub(super) fn until(&self, at: u64, start: u64) -> u64 {
        match self.0.get() {
            [0, 0, 0] => at - start,
            kept => {
                self.0.set([0; 3]);
                since(kept, at)
            }
        }
    }
}

#[cold]
fn since(kept: [u16; 3], now: u64) -> u64 {
    let [low, middle, high] = kept.map(u64::from);
    let start = low | middle << 16 | high << 32;
    (now / UNIT).wrapping_sub(start).wrapping_mul(UNIT) & (MASK * UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_is_kept_until_it_is_asked_for() {
        let hours = |hours: u64| hours * 3_600_000_000_000;
        let start = ResponseStart::default();
        assert_eq!(start.until(hours(3), hours(1)), hours(2));
        start.keep(hours(2));
        start.keep(0);
        assert_eq!(start.until(hours(3), hours(1)), hours(1));
        assert_eq!(start.until(hours(3), hours(1)), hours(2));
        // What is counted wraps around after 52 days.
        start.keep(hours(50 * 24));
        assert_eq!(start.until(hours(100 * 24), 0), hours(50 * 24));
    }
}
