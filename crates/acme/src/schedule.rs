//! When a certificate is renewed, and when a CA is asked again that has refused.
//!
//! Let's Encrypt allows five failed authorizations per name and hour (<https://letsencrypt.org/docs/rate-limits/>). The pauses
//! between attempts double from five minutes on, so that there are four attempts in the first hour and nine in the first day. They
//! are kept in a file: a server that is started again and again asks no more often.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::jws::sha256;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The pause after the first attempt that failed; it doubles, up to the longest.
const FIRST_PAUSE: u64 = 5 * MINUTE;
const LONGEST_PAUSE: u64 = 12 * HOUR;

/// No pause is longer, whatever the CA says or a clock has said.
const END_OF_PAUSE: u64 = 7 * DAY;

/// How many attempts for a name there may be in a day, and how many in an hour.
const DAILY_MOST: usize = 20;
const HOURLY_MOST: usize = 4;

/// When a certificate that is valid from `from` until `until` is renewed: when a third of its lifetime is left, or a little
/// earlier. How much earlier follows from `seed`, so that certificates that were issued at once are renewed one after the other.
#[must_use]
pub fn renewal_time(from: SystemTime, until: SystemTime, seed: &[u8]) -> SystemTime {
    let lifetime = until.duration_since(from).unwrap_or_default();
    let [first, second, ..] = sha256(seed);
    let earlier = lifetime / 30 * u32::from(u16::from_be_bytes([first, second])) / 65_536;
    until - lifetime / 3 - earlier
}

/// The attempts to get a certificate for a name, as they are kept in a file. Times are seconds since 1970.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct AttemptHistory {
    /// The attempts of the last day, oldest first.
    #[serde(default)]
    attempts: Vec<u64>,
    /// How many have failed since one has not.
    #[serde(default)]
    failures: u32,
    /// Until when there is no other attempt.
    #[serde(default)]
    paused_until: u64,
    /// Why the last attempt has failed, if it has.
    #[serde(default)]
    last_error: Option<String>,
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl AttemptHistory {
    /// How many attempts have failed since one has not.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Why the last attempt has failed, if it has.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// When there may be an attempt that is due at `due`.
    #[must_use]
    pub fn next(&self, due: SystemTime, now: SystemTime) -> SystemTime {
        let mut pause = self.paused_until;
        if let Some(oldest) = self.attempts.len().checked_sub(DAILY_MOST) {
            pause = pause.max(self.attempts[oldest] + DAY);
        }
        // A clock that was wrong when the file was written must not put the next attempt off for years.
        let pause = pause.min(seconds(now) + END_OF_PAUSE);
        due.max(UNIX_EPOCH + Duration::from_secs(pause))
    }

    /// Notes an attempt, as one that has failed: it may end with this process. To be kept before the CA is asked.
    pub fn begin(&mut self, now: SystemTime) {
        let now = seconds(now);
        self.attempts.retain(|it| (now.saturating_sub(DAY)..=now).contains(it));
        self.attempts.push(now);
        self.failures = self.failures.saturating_add(1);
        self.paused_until = now + self.pause();
    }

    fn pause(&self) -> u64 {
        let doubled = FIRST_PAUSE << self.failures.saturating_sub(1).min(16);
        doubled.min(LONGEST_PAUSE)
    }

    /// The attempt that was begun has failed. `retry_after`: how long the CA wants not to be asked. `random`: any number; the pause
    /// is up to a quarter longer by it, so that servers that have failed together do not come back together.
    pub fn failed(
        &mut self,
        now: SystemTime,
        why: &str,
        retry_after: Option<Duration>,
        random: u8,
    ) {
        let pause = self.pause() + self.pause() / 4 * u64::from(random) / 255;
        let pause = pause.max(retry_after.map_or(0, |it| it.as_secs())).min(END_OF_PAUSE);
        self.paused_until = seconds(now) + pause;
        self.last_error = Some(why.to_owned());
    }

    /// The attempt that was begun has brought a certificate.
    pub fn succeeded(&mut self) {
        (self.failures, self.paused_until, self.last_error) = (0, 0, None);
    }

    /// The attempt that was begun was given up by this server, and not refused.
    pub fn given_up(&mut self) {
        self.failures = self.failures.saturating_sub(1);
        self.paused_until = 0;
    }

    /// Ends the pause, because the user says that something is different, unless there were as many attempts as the CA allows.
    pub fn hurry(&mut self, now: SystemTime) {
        let hour_ago = seconds(now).saturating_sub(HOUR);
        let recent = self.attempts.iter().filter(|it| **it >= hour_ago).count();
        if recent < HOURLY_MOST {
            self.paused_until = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_is_left_or_a_little_earlier() {
        for days in [1, 6, 45, 90] {
            let (from, until) = (at(DAY), at(DAY + days * DAY));
            let times = [b"a", b"b", b"c"].map(|seed| renewal_time(from, until, seed));
            for time in times {
                let left = until.duration_since(time).unwrap().as_secs_f64() / (days * DAY) as f64;
                assert!((0.333..0.367).contains(&left), "{left}");
            }
            assert_ne!(times[0], times[1]);
            assert_eq!(renewal_time(from, until, b"a"), times[0]);
        }
        // A certificate whose dates are in the wrong order is renewed at once.
        assert_eq!(renewal_time(at(9), at(5), b"a"), at(5));
    }

    /// A CA that always refuses.
    fn attempts(within: u64, random: u8) -> usize {
        let (mut history, start) = (AttemptHistory::default(), 1_000_000);
        let mut now = start;
        let mut count = 0;
        while now < start + within {
            history.begin(at(now));
            count += 1;
            history.failed(at(now), "no", None, random);
            now = seconds(history.next(at(0), at(now)));
        }
        count
    }

    #[test]
    fn a_ca_that_refuses_is_asked_less_and_less() {
        assert_eq!((attempts(HOUR, 0), attempts(DAY, 0)), (4, 9));
        assert!(attempts(HOUR, 255) <= 4 && attempts(7 * DAY, 255) <= 24);
    }

    #[test]
    fn the_ca_s_own_pause_counts_if_it_is_longer() {
        let (now, due) = (at(1_000_000), at(0));
        let next = |wait: u64| {
            let mut history = AttemptHistory::default();
            history.begin(now);
            history.failed(now, "no", Some(Duration::from_secs(wait)), 0);
            seconds(history.next(due, now)) - 1_000_000
        };
        assert_eq!(next(1), FIRST_PAUSE);
        assert_eq!(next(HOUR), HOUR);
        assert_eq!(next(u64::MAX), END_OF_PAUSE);
    }

    #[test]
    fn a_success_ends_the_pauses_and_a_day_has_its_limit() {
        let mut history = AttemptHistory::default();
        let mut now = 1_000_000;
        for _ in 0..DAILY_MOST {
            history.begin(at(now));
            history.succeeded();
            now += 60;
        }
        assert_eq!((history.failures(), history.last_error()), (0, None));
        assert_eq!(seconds(history.next(at(0), at(now))), 1_000_000 + DAY);
    }

    #[test]
    fn whoever_mends_something_need_not_wait_as_long_as_the_limits_hold() {
        let (mut history, start) = (AttemptHistory::default(), 1_000_000);
        for attempt in 0..HOURLY_MOST as u64 {
            let now = at(start + attempt);
            history.hurry(now);
            assert!(history.next(at(0), now) <= now, "attempt {attempt}");
            history.begin(now);
            history.failed(now, "no", None, 0);
        }
        history.hurry(at(start + 10));
        assert!(seconds(history.next(at(0), at(start + 10))) > start + MINUTE);
        history.hurry(at(start + 2 * HOUR));
        assert!(history.next(at(0), at(start + 2 * HOUR)) <= at(start + 2 * HOUR));
    }

    /// The process ends while it waits for the CA, and is started again.
    #[test]
    fn an_attempt_without_an_end_counts() {
        let mut history = AttemptHistory::default();
        history.begin(at(1_000_000));
        let kept = serde_json::to_string(&history).unwrap();
        let again: AttemptHistory = serde_json::from_str(&kept).unwrap();
        assert_eq!(seconds(again.next(at(0), at(1_000_001))), 1_000_000 + FIRST_PAUSE);
    }

    proptest! {
        #[test]
        fn no_clock_puts_the_next_attempt_off_for_long(written: u32, read: u32, due: u32) {
            let mut history = AttemptHistory::default();
            history.begin(at(written.into()));
            history.failed(at(written.into()), "no", Some(Duration::from_secs(u64::MAX)), 7);
            let next = seconds(history.next(at(due.into()), at(read.into())));
            prop_assert!(next <= (u64::from(read) + END_OF_PAUSE).max(due.into()));
            prop_assert!(next >= u64::from(due));
        }

        #[test]
        fn any_file_can_be_read(text in "\\PC{0,60}") {
            let _any = serde_json::from_str::<AttemptHistory>(&text);
        }
    }
}
