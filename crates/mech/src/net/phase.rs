//! How far a worker is on the way to its end.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How far a worker is on the way to its end. A later phase never goes back to one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerPhase {
    /// It takes connections.
    Serving,
    /// It leaves new connections to other workers; those that it has go on ([`super::Net::retire`]).
    Retired,
    /// It is to end soon ([`super::Net::stop`]).
    Stopping,
}

impl WorkerPhase {
    /// Whether new connections are taken. If not, a response is the last one of its connection.
    #[must_use]
    pub fn takes_connections(self) -> bool {
        self == WorkerPhase::Serving
    }

    /// Whether the worker is to end soon.
    #[must_use]
    pub fn is_ending(self) -> bool {
        self == WorkerPhase::Stopping
    }
}

/// The phase of a worker, and how long idle connections may still send a request when it stops.
#[derive(Debug)]
pub(super) struct Life {
    phase: Cell<WorkerPhase>,
    /// How long idle connections may still send a request after [`super::Net::stop`].
    pub(super) linger: Cell<Duration>,
    /// The time until which idle connections may still send a request. `None`: the worker does not stop,
    /// or that time is over.
    linger_until: Cell<Option<Instant>>,
}

impl Life {
    pub(super) fn new() -> Life {
        Life {
            phase: Cell::new(WorkerPhase::Serving),
            linger: Cell::new(Duration::ZERO),
            linger_until: Cell::new(None),
        }
    }

    pub(super) fn phase(&self) -> WorkerPhase {
        self.phase.get()
    }

    /// Goes on to a phase, unless a later one has begun.
    pub(super) fn enter(&self, phase: WorkerPhase) {
        self.phase.set(self.phase.get().max(phase));
    }

    /// The worker stops. Returns until when idle connections may still send a request, if they may.
    pub(super) fn stop(&self, now: Instant) -> Option<Instant> {
        self.enter(WorkerPhase::Stopping);
        if !self.linger.get().is_zero() {
            self.linger_until.set(Some(now + self.linger.get()));
        }
        self.linger_until.get()
    }

    /// Whether an idle connection has no more time to send a request.
    pub(super) fn idle_is_over(&self) -> bool {
        self.phase().is_ending() && self.linger_until.get().is_none()
    }

    /// Whether the time of idle connections is over by now, and was not before.
    pub(super) fn ends_linger(&self, now: Instant) -> bool {
        let is_over = self.linger_until.get().is_some_and(|until| until <= now);
        if is_over {
            self.linger_until.set(None);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_have_their_time_and_no_phase_comes_back() {
        let (life, now) = (Life::new(), Instant::now());
        assert!(life.phase().takes_connections() && !life.idle_is_over());
        life.enter(WorkerPhase::Retired);
        assert!(!life.phase().takes_connections() && !life.phase().is_ending());
        life.linger.set(Duration::from_secs(1));
        assert_eq!(life.stop(now), Some(now + Duration::from_secs(1)));
        life.enter(WorkerPhase::Retired);
        assert!(life.phase().is_ending() && !life.idle_is_over() && !life.ends_linger(now));
        let over = now + Duration::from_secs(1);
        assert_eq!((life.ends_linger(over), life.ends_linger(over)), (true, false));
        assert!(life.idle_is_over());
    }
}
