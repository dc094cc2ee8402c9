//! Who follows a run while it goes on.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use crate::account::seconds::Second;

/// Is told of a run's events as they happen. An error ends the run.
pub trait LoadListener {
    /// All connections that can be opened before the window are open: `open` of them. No request has
    /// been sent. Returns when the window is to begin; `None`: at once.
    ///
    /// # Errors
    /// An error of the listener; it ends the run.
    fn connected(&mut self, _open: u32) -> io::Result<Option<Instant>> {
        Ok(None)
    }

    /// The window begins at this time.
    ///
    /// # Errors
    /// An error of the listener; it ends the run.
    fn begins(&mut self, _at: SystemTime) -> io::Result<()> {
        Ok(())
    }

    /// Called about ten times a second. `elapsed`: the part of the window that is over, if it has
    /// begun; `responses`: how many have come.
    fn looked(&mut self, _elapsed: Option<Duration>, _responses: u64) {}

    /// Whether [`LoadListener::second`] is to be called: it costs every worker a copy of a histogram a
    /// second.
    fn wants_seconds(&self) -> bool {
        false
    }

    /// A second of the window is over: it began `at` after the beginning of the window, and has the
    /// length `long`. The last call tells what happened after the last full second, and `long` may
    /// be 0.
    ///
    /// # Errors
    /// An error of the listener; it ends the run.
    fn second(&mut self, _at: Duration, _long: Duration, _second: &Second) -> io::Result<()> {
        Ok(())
    }

    /// The server has closed `total` connections so far, between two responses.
    ///
    /// # Errors
    /// An error of the listener; it ends the run.
    fn closed(&mut self, _total: u64) -> io::Result<()> {
        Ok(())
    }

    /// A turn of a run of several is over, and nothing is under way: so many responses have come in all turns until now, and so long
    /// they took. The next turn begins when this returns.
    ///
    /// # Errors
    /// An error of the listener; it ends the run.
    fn turn_over(&mut self, _responses: u64, _window: Duration) -> io::Result<()> {
        Ok(())
    }

    /// The measured window is over; the connections are still open until this returns.
    ///
    /// # Errors
    /// An error of the listener; it ends the run.
    fn measured(&mut self) -> io::Result<()> {
        Ok(())
    }
}
