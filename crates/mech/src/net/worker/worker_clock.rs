//! What goes by the time of a worker's turn: knowledge of the page cache, and how long the worker has polled.

use std::cell::Cell;
use std::time::Duration;

use super::turn_time::{TurnTime, nanos};

/// How long a file that was in the page cache is assumed to be still there. The kernel reclaims pages last
/// that were just sent. If the assumption is wrong, the worker waits for the disk.
const CACHE_KNOWN_FOR: Duration = Duration::from_secs(1);

/// The time of a worker's turn, and what goes by it.
pub(in crate::net) struct WorkerClock {
    /// The time at the end of the last wait, or of a later reading in the turn.
    pub(in crate::net) time: TurnTime,
    /// The time until which knowledge of the page cache is used ([`CACHE_KNOWN_FOR`]), in nanoseconds.
    cache_known_until: Cell<u64>,
    /// How long the worker has looked for events without finding one, instead of sleeping.
    spun: Cell<Duration>,
}

impl WorkerClock {
    pub(in crate::net) fn new() -> WorkerClock {
        let time = TurnTime::new();
        let cache_known_until = Cell::new(time.nanos());
        WorkerClock { time, cache_known_until, spun: Cell::new(Duration::ZERO) }
    }

    /// Whether what is known of the page cache is to be forgotten now ([`CACHE_KNOWN_FOR`]).
    #[inline]
    pub(in crate::net) fn ends_cache_knowledge(&self) -> bool {
        let now = self.time.nanos();
        let is_over = self.cache_known_until.get() <= now;
        if is_over {
            self.cache_known_until.set(now + nanos(CACHE_KNOWN_FOR));
        }
        is_over
    }

    /// How long the worker has looked for events without finding one, instead of sleeping.
    pub(in crate::net) fn spun(&self) -> Duration {
        self.spun.get()
    }

    /// The worker has looked for events since `begin`, and found none.
    pub(in crate::net) fn add_spun(&self, begin: u64) {
        self.spun.set(self.spun() + Duration::from_nanos(self.time.nanos() - begin));
    }
}
