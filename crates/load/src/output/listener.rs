//! Who follows a run while it goes on.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use crate::account::seconds::Second;

/// Is told of a run's events as they happen. An error ends the run.
pub trait Listener {
    /// Every connection that can be opened beforehand is open, so many in all, and no request has
    /// been sent. Returns when the window is to begin; `None`: at once.
    ///
    /// # Errors
    /// The listener's own.
    fn connected(&mut self, _open: u32) -> io::Result<Option<Instant>> {
        Ok(None)
    }

    /// The window begins at this time.
    ///
    /// # Errors
    /// The listener's own.
    fn begins(&mut self, _at: SystemTime) -> io::Result<()> {
        Ok(())
    }

    /// About ten times a second: so much of the window is over, if it has begun, and so many replies
    /// have come.
    fn looked(&mut self, _elapsed: Option<Duration>, _replies: u64) {}

    /// Whether [`Listener::second`] is to be called: it costs every worker a copy of a histogram a
    /// second.
    fn wants_seconds(&self) -> bool {
        false
    }

    /// A second of the window is over; the one that begins `at` after its beginning, and lasts so
    /// `long`. The last one is what happened after the last full second, and may have no length.
    ///
    /// # Errors
    /// The listener's own.
    fn second(&mut self, _at: Duration, _long: Duration, _second: &Second) -> io::Result<()> {
        Ok(())
    }

    /// The server has closed so many connections in all, between two replies.
    ///
    /// # Errors
    /// The listener's own.
    fn closed(&mut self, _total: u64) -> io::Result<()> {
        Ok(())
    }

    /// The measured window is over; the connections are still open until this returns.
    ///
    /// # Errors
    /// The listener's own.
    fn measured(&mut self) -> io::Result<()> {
        Ok(())
    }
}
