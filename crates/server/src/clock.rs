//! The time as a worker needs it: the date of responses, and a limit of log messages per second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_http1::date::{self, DateText};

/// The date of the responses. The system's clock is read once per second: the time of the
/// loop, which the worker has anyway, tells when a second is over.
pub(crate) struct DateClock {
    /// When the second of `date` is over.
    until: Instant,
    seconds: u64,
    date: DateText,
}

impl DateClock {
    pub(crate) fn new(now: Instant) -> DateClock {
        let mut clock = DateClock { until: now, seconds: 0, date: date::format(0) };
        clock.tick(now);
        clock
    }

    /// Whether another second has begun since the last call.
    #[inline]
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        if now < self.until {
            return false;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.until = now + Duration::from_nanos(u64::from(1_000_000_000 - since.subsec_nanos()));
        if since.as_secs() == self.seconds {
            return false;
        }
        self.seconds = since.as_secs();
        self.date = date::format(self.seconds);
        true
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(&self) -> u64 {
        self.seconds
    }

    /// The value of `Date`.
    pub(crate) fn date(&self) -> &DateText {
        &self.date
    }
}

/// Lets one message per second into the log, and counts the others.
#[derive(Default)]
pub(crate) struct Throttle {
    silent_until: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// Whether a message may be written: `Some` with the number of messages held back before it.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<u64> {
        if self.silent_until.is_some_and(|until| now < until) {
            self.held_back += 1;
            return None;
        }
        self.silent_until = Some(now + Duration::from_secs(1));
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_the_system_and_lasts_less_than_a_second() {
        let now = Instant::now();
        let mut clock = DateClock::new(now);
        assert!(clock.seconds() > 1_000_000_000);
        assert_eq!(*clock.date(), date::format(clock.seconds()));
        assert!(clock.until > now && clock.until <= now + Duration::from_secs(1));
        assert!(!clock.tick(now));
    }

    #[test]
    fn one_message_per_second_passes_and_says_how_many_did_not() {
        let now = Instant::now();
        let mut throttle = Throttle::default();
        assert_eq!(throttle.ask(now), Some(0));
        assert_eq!(throttle.ask(now), None);
        assert_eq!(throttle.ask(now), None);
        assert_eq!(throttle.ask(now + Duration::from_secs(1)), Some(2));
    }
}
