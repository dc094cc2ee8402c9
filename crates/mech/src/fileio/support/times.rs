//! How long reads took, stage by stage, for those who asked for it ([`super::Options::timed`]).

use std::time::{Duration, Instant};

/// What the reads for one connection took since that was last asked: sums over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The backend that read, or that sent in place of the usual one; `None`: nothing was read apart
    /// from sending.
    pub backend: Option<&'static str>,
    /// How many reads there were.
    pub reads: u32,
    /// From the wish to read to the beginning of the read: waiting for a free reader. A kernel or a
    /// library that queues by itself does not tell when it begins; there it counts as reading.
    pub queue: Duration,
    /// From the beginning of the read to its end.
    pub read: Duration,
    /// From the end of the read to the moment at which the connection's coroutine goes on. Where
    /// the worker itself takes in the end of the read, the way there counts as reading.
    pub back: Duration,
    /// The longest of all reads, from the wish to the moment at which the coroutine goes on.
    pub longest: Duration,
}

/// When a read began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

impl Times {
    /// Adds a read that was asked for at `asked`, and whose bytes are taken up now.
    pub(crate) fn add(&mut self, backend: &'static str, asked: Instant, span: Span) {
        let now = Instant::now();
        self.backend = Some(backend);
        self.reads += 1;
        self.queue += span.begun.saturating_duration_since(asked);
        self.read += span.ended.saturating_duration_since(span.begun);
        self.back += now.saturating_duration_since(span.ended);
        self.longest = self.longest.max(now.saturating_duration_since(asked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_to_the_whole_of_each_read() {
        let mut times = Times::default();
        let mut sum = Duration::ZERO;
        for wait in [3, 1] {
            let ended = Instant::now();
            let begun = ended.checked_sub(Duration::from_millis(5)).unwrap();
            let asked = begun.checked_sub(Duration::from_millis(wait)).unwrap();
            times.add("this", asked, Span { begun, ended });
            sum += Duration::from_millis(5 + wait);
        }
        assert_eq!((times.backend, times.reads), (Some("this"), 2));
        assert_eq!(
            (times.queue, times.read),
            (Duration::from_millis(4), Duration::from_millis(10))
        );
        assert_eq!(times.queue + times.read, sum);
        assert!(times.longest >= Duration::from_millis(8) && times.longest <= sum + times.back);
    }
}
