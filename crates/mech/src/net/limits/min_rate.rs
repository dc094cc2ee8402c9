//! The minimum rate at which a peer must take what is sent to it.
//!
//! The rate is computed from the kernel's counters of the socket (`TCP_INFO`, tcp(7)): the bytes that the
//! peer has acknowledged, divided by the time in which there were bytes to send or to acknowledge
//! (`tcpi_busy_time`, since Linux 4.10). So the peer is not blamed for time in which the server had
//! nothing to send, because it waited for a disk or for its turn; and bytes in socket buffers do not
//! count as taken. A send costs nothing: the kernel is asked once per window, when a send has to wait.

use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::SendLimits;
use crate::net::Conn;
use drover_sys::socket::{Delivered, delivered};

/// The lowest rate at which a peer may take what is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MinRate {
    /// Bytes per second, on average over `window`.
    pub bytes_per_second: NonZeroU64,
    /// How long a peer may be slower. The kernel is asked for the first time one second (or one window, if that
    /// is shorter) after a send to the peer first had to wait, and the peer is judged one window later. Not zero, and
    /// shorter than 2^31 times [`crate::net::NetOptions::timer_resolution`].
    pub window: Duration,
}

impl MinRate {
    /// At least `bytes_per_second`, on average over `window`.
    #[must_use]
    pub const fn new(bytes_per_second: NonZeroU64, window: Duration) -> MinRate {
        MinRate { bytes_per_second, window }
    }
}

/// How long a response may take before its rate is measured. By then the socket buffers of both sides,
/// which take bytes at once, are full.
const GRACE: Duration = Duration::from_secs(1);

/// The current window of one response, at whose end the peer's rate is judged.
#[derive(Default)]
pub(in crate::net) struct Pace {
    /// The tick at which the window ends; `None`: no send has waited yet.
    ends: Option<NonZeroU32>,
}

impl Pace {
    /// Judges the peer's rate if the window is over. To be called when a send begins to wait.
    ///
    /// # Errors
    /// `TimedOut` if the peer was too slow.
    pub(in crate::net) fn check(&mut self, conn: &Conn<'_>) -> io::Result<()> {
        let Some(min_rate) = conn.net().limits.min_rate else { return Ok(()) };
        conn.with(|inner, index| match self.ends {
            Some(ends) if !inner.timers.wheel.has_passed(ends) => Ok(()),
            Some(_) => {
                self.ends = Some(inner.timers.wheel.tick_after(min_rate.window));
                let socket = inner.slots[index].fd.as_ref();
                judge(&mut inner.sends, index, socket, min_rate.bytes_per_second)
            }
            None => {
                let first = GRACE.min(min_rate.window);
                self.ends = Some(inner.timers.wheel.tick_after(first));
                Ok(())
            }
        })
    }
}

/// Compares the kernel's counters with those at the end of the last window, and stores them for the next.
fn judge(
    sends: &mut SendLimits,
    index: u32,
    socket: Option<&OwnedFd>,
    bytes_per_second: NonZeroU64,
) -> io::Result<()> {
    let Some(end) = socket.and_then(|fd| delivered(fd.as_fd())) else { return Ok(()) };
    match sends.end_window(index, end) {
        Some(begin) if is_too_slow(&begin, &end, bytes_per_second) => {
            Err(io::ErrorKind::TimedOut.into())
        }
        _ => Ok(()),
    }
}

fn is_too_slow(begin: &Delivered, end: &Delivered, bytes_per_second: NonZeroU64) -> bool {
    let bytes = u128::from(end.bytes.saturating_sub(begin.bytes));
    let busy = end.busy.saturating_sub(begin.busy);
    bytes * 1_000_000 < u128::from(bytes_per_second.get()) * busy.as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_counts_in_which_there_were_bytes_to_take() {
        let begin = Delivered { bytes: 1000, busy: Duration::from_secs(5) };
        let is_slow = |bytes, busy: u64| {
            let busy = begin.busy + Duration::from_millis(busy);
            let end = Delivered { bytes: begin.bytes + bytes, busy };
            is_too_slow(&begin, &end, NonZeroU64::new(240).unwrap())
        };
        assert!(is_slow(0, 1));
        assert!(is_slow(239, 1000) && is_slow(2399, 10_000));
        assert!(!is_slow(240, 1000) && !is_slow(2400, 10_000));
        assert!(!is_slow(0, 0), "there was nothing to take");
        assert!(!is_slow(24, 100), "the disk was slow");
    }
}
