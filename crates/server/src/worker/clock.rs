//! What a worker knows of the time: the date in its responses, and how often it may complain.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http1::date::{self, DateText};

/// The date of the responses. The system's clock is read once per second, by a comparison of the
/// loop's own time, which the worker has anyway.
pub(crate) struct Clock {
    /// When the second of `date` is over.
    until: Instant,
    seconds: u64,
    date: DateText,
}

impl Clock {
    pub(crate) fn new(now: Instant) -> Clock {
        let mut clock = Clock { until: now, seconds: 0, date: date::format(0) };
        clock.tick(now);
        clock
    }

    /// Whether another second has begun since the last call.
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
    /// `Some` with the number of messages held back before, if this one may be written.
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
        let mut clock = Clock::new(now);
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
