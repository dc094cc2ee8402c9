//! The minimum rate for clients that make room in their windows little by little: to the kernel such a connection has nothing to send,
//! so that its counters (`--min-rate` elsewhere) say nothing of it.

use std::io;

use drover_mech::net::MinRate;

/// What a client has made room for while responses waited for that.
#[derive(Default)]
pub(super) struct WindowPace {
    /// Since when responses wait, in nanoseconds, and how many bytes have been sent since.
    waits: Option<(u64, u64)>,
}

impl WindowPace {
    /// So many bytes had room.
    pub(super) fn has_sent(&mut self, len: usize) {
        if let Some((_, bytes)) = &mut self.waits {
            *bytes += len as u64;
        }
    }

    /// Responses wait for the client; judges its rate if that is so for a whole window of time.
    ///
    /// # Errors
    /// `TimedOut` if it was too slow.
    pub(super) fn check(&mut self, min_rate: Option<MinRate>, now: u64) -> io::Result<()> {
        let Some(MinRate { bytes_per_second, window, .. }) = min_rate else { return Ok(()) };
        let (since, bytes) = *self.waits.get_or_insert((now, 0));
        let nanos = u128::from(now - since);
        if nanos < window.as_nanos() {
            return Ok(());
        }
        if u128::from(bytes) * 1_000_000_000 < u128::from(bytes_per_second.get()) * nanos {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.waits = Some((now, 0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_that_makes_too_little_room_is_too_slow() {
        let rate = Some(MinRate::new(NonZeroU64::new(100).unwrap(), Duration::from_secs(2)));
        let second = 1_000_000_000;
        let mut pace = WindowPace::default();
        pace.has_sent(1 << 20);
        for (now, sent) in [(1, 0), (2, 150), (3, 50), (4, 100)] {
            pace.has_sent(sent);
            assert!(pace.check(rate, now * second).is_ok(), "{now}");
        }
        pace.has_sent(99);
        assert!(pace.check(rate, 5 * second).is_err());
        assert!(pace.check(None, 9 * second).is_ok());
    }
}
