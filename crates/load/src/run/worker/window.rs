//! The window of a run, as one worker sees it: whether it is open, from when to when, and its seconds.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::account::seconds::{Second, Seconds};

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the window: connections are being opened, or wait for its beginning.
    Opening,
    /// The window: requests are sent.
    Running,
    /// Between two turns of the window: no request is sent; responses may still come.
    Paused,
    /// After the window: no request is sent; responses may still come.
    Over,
}

/// The window of one worker.
pub(crate) struct WorkerWindow {
    phase: Cell<Phase>,
    start: Cell<Instant>,
    /// The end; `None`: not known yet, because the run ends with its last request.
    end: Cell<Option<Instant>>,
    /// The seconds of the window, if the listener wants them.
    pub(crate) seconds: Seconds,
}

impl WorkerWindow {
    /// A window that has not begun.
    pub(crate) fn new(now: Instant) -> WorkerWindow {
        WorkerWindow {
            phase: Cell::new(Phase::Opening),
            start: Cell::new(now),
            end: Cell::new(None),
            seconds: Seconds::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn start(&self) -> Instant {
        self.start.get()
    }

    pub(crate) fn end(&self) -> Option<Instant> {
        self.end.get()
    }

    /// Whether the end is known and has come at `now`.
    pub(crate) fn has_ended(&self, now: impl FnOnce() -> Instant) -> bool {
        self.end.get().is_some_and(|end| now() >= end)
    }

    /// Begins the window at `start`; `None`: it ends with the last request.
    pub(crate) fn begin(&self, start: Instant, duration: Option<Duration>) {
        self.start.set(start);
        self.end.set(duration.map(|duration| start + duration));
        self.phase.set(Phase::Running);
    }

    /// Ends the window, or a turn of it, `now` and returns its end: the planned end, if that has come.
    pub(crate) fn finish(&self, now: Instant, phase: Phase) -> Instant {
        let end = self.end.get().map_or(now, |end| end.min(now));
        self.end.set(Some(end));
        self.phase.set(phase);
        end
    }

    /// The run is over, also if the window never began.
    pub(crate) fn set_over(&self) {
        self.phase.set(Phase::Over);
    }

    /// Closes the seconds that are over at `now`, with what `so_far` counts. Call this before counting
    /// an event that happens at `now`.
    pub(crate) fn close_seconds(&self, now: Instant, so_far: impl FnOnce() -> Second) {
        if self.seconds.is_over(now) {
            let until = self.end.get().map_or(now, |end| now.min(end));
            self.seconds.close(until, so_far);
        }
    }
}
