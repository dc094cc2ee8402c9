//! The time of a worker's turn: one number of nanoseconds, which deadlines are compared with in one instruction, and the same as an
//! [`Instant`], whose difference from another takes some forty.

use std::cell::Cell;
use std::time::{Duration, Instant};

use drover_sys::process::monotonic_nanos;

/// When the clock was last read.
pub(crate) struct TurnTime {
    /// The first reading, in both forms.
    began: Instant,
    began_nanos: u64,
    now: Cell<Instant>,
    nanos: Cell<u64>,
}

impl TurnTime {
    pub(crate) fn new() -> TurnTime {
        let (began, began_nanos) = (Instant::now(), monotonic_nanos());
        TurnTime { began, began_nanos, now: Cell::new(began), nanos: Cell::new(began_nanos) }
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn read(&self) {
        self.nanos.set(monotonic_nanos());
        self.now.set(self.instant(self.nanos.get()));
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// The time on `CLOCK_MONOTONIC`.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.get()
    }

    /// A time on `CLOCK_MONOTONIC` of this worker's life.
    #[inline]
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.began + Duration::from_nanos(nanos.saturating_sub(self.began_nanos))
    }

    /// The reverse of [`TurnTime::instant`]; a time before this worker's life is its begin.
    pub(crate) fn nanos_of(&self, at: Instant) -> u64 {
        self.began_nanos.saturating_add(nanos(at.saturating_duration_since(self.began)))
    }
}

/// The nanoseconds of a duration; 64 bits are enough for 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_one_time() {
        let time = TurnTime::new();
        time.read();
        assert_eq!(time.nanos_of(time.now()), time.nanos());
        assert_eq!(time.instant(time.nanos()), time.now());
        let later = time.now() + Duration::from_hours(9);
        assert_eq!(time.instant(time.nanos_of(later)), later);
        assert_eq!(time.nanos_of(time.began - Duration::from_secs(1)), time.began_nanos);
    }
}
