//! How long the stages of reads took, if [`crate::fileio::FileIoOptions::timed`].

use std::time::{Duration, Instant};

/// How long the reads for one connection took since the last [`crate::fileio::FileIo::take_times`]. Each
/// duration but `longest` is a sum over all these reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTimes {
    /// The backend that read on other threads or in the kernel. Under `auto` also `splice`, if splice(2)
    /// sent instead of sendfile(2). `None`: neither.
    pub backend: Option<&'static str>,
    /// How many reads there were.
    pub reads: u32,
    /// Waiting for a free reading thread: from the request to read until the read begins. The kernel and
    /// the C library queue reads by themselves and do not report the beginning; under their backends
    /// the wait counts as part of `read`.
    pub queue: Duration,
    /// Reading: from the beginning of the read to its end.
    pub read: Duration,
    /// The way back: from the end of the read until the connection's coroutine continues. If only the
    /// worker sees the end of a read (`uring`, `linux-aio`), the time until then counts as part of `read`.
    pub back: Duration,
    /// The longest time of one read, from the request until the coroutine continues.
    pub longest: Duration,
}

/// When a read began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

impl ReadTimes {
    /// Adds a read that was requested at `asked`. The connection's coroutine continues now.
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
        let mut times = ReadTimes::default();
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
