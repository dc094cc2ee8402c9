//! `--spin-per-request`: a server that is slower than it need be, by a known time per request.
//!
//! `drover lab calibrate --slowed` measures with it how small a difference the lab finds.

use std::time::{Duration, Instant};

/// How often the clock is read to learn how long a reading takes.
const READINGS: usize = 1000;

/// How many readings of the clock a step may take, beside [`SHORTEST_PAUSE`].
const SLACK: u32 = 8;

/// A thread that loses its processor is away for longer than this: it takes two context switches to
/// come back.
const SHORTEST_PAUSE: Duration = Duration::from_micros(1);

/// A busy loop of a known length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    length: Duration,
    /// The longest step from one reading of the clock to the next that counts as work of this thread.
    longest_step: Duration,
}

impl Spin {
    /// A loop of this length.
    pub(crate) fn new(length: Duration) -> Spin {
        let reading = (0..READINGS).map(|_| {
            let start = Instant::now();
            start.elapsed()
        });
        // The shortest reading: the longer ones were interrupted.
        let reading = reading.min().unwrap_or_default();
        Spin { length, longest_step: SHORTEST_PAUSE + SLACK * reading }
    }

    /// Uses the processor for the length of this loop. Time in which the thread did not run does not count, so
    /// that its CPU time grows by this length at least.
    pub(crate) fn run(&self) {
        let mut spun = Duration::ZERO;
        let mut last = Instant::now();
        while spun < self.length {
            let now = Instant::now();
            let step = now - last;
            if step <= self.longest_step {
                spun += step;
            }
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_as_long_as_it_says() {
        let spin = Spin::new(Duration::from_micros(300));
        assert!(spin.longest_step >= SHORTEST_PAUSE);
        let start = Instant::now();
        spin.run();
        assert!(start.elapsed() >= Duration::from_micros(300));
    }
}
