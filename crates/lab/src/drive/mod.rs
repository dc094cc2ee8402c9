//! The load of a run: how a subject is driven.

pub mod background;
mod command;
mod http;
mod marks;
mod result;
mod warmup;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use command::CommandLoad;
pub use http::{HttpLoad, LoadTurn, TurnedLoad};
pub use warmup::{Warm, WarmUp};

use crate::failure::Failure;
use crate::model::Mark;
use crate::process::Child;
use crate::subject::{Running, Scene};

/// The window of a load: its length, its events, and its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The shortest window.
    pub at_least: Duration,
    /// The longest window.
    pub at_most: Duration,
    /// The number of events that the window should have.
    pub events: Option<u64>,
    /// Whether every connection is to be used once before the window begins.
    pub use_every_connection: bool,
    /// Whether requests under way at the end are waited for and counted.
    pub drain: bool,
}

impl Window {
    /// The length of the window in which enough events happen at a rate of `events_per_s`, if the rate is known.
    #[must_use]
    pub fn length(&self, events_per_s: Option<f64>) -> Duration {
        let wanted = match (self.events, events_per_s) {
            // A tenth more time is planned, because the rate may be lower than before.
            (Some(events), Some(rate)) if rate > 0.0 => {
                Duration::try_from_secs_f64(1.1 * events as f64 / rate).unwrap_or(self.at_most)
            }
            // Without a rate, the time for the events is unknown.
            (Some(_), _) => self.at_most,
            (None, _) => self.at_least,
        };
        wanted.max(self.at_least).min(self.at_most.max(self.at_least))
    }
}

/// A moment at which instruments are read. The load pauses until they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The window begins.
    Begin,
    /// The window has ended; every connection is still open.
    End,
}

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Driven {
    /// Metrics, by name.
    pub values: BTreeMap<String, f64>,
    /// Reasons to doubt the values.
    pub marks: BTreeSet<Mark>,
    /// The length of the window by the load's own clock, in seconds.
    pub seconds: f64,
    /// The number of events (usually responses) in the window.
    pub events: f64,
    /// The number of events in the window and in the tail after the window.
    pub events_with_tail: f64,
    /// The TLS handshakes that ended in the window.
    pub handshakes: f64,
    /// The bytes of the events in the window.
    pub bytes: f64,
    /// The load's own result.
    pub result: Value,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Remarks for readers of the result.
    pub notes: Vec<String>,
}

/// What a load is directed at.
#[derive(Debug)]
pub struct Target<'a> {
    /// The run's surroundings.
    pub scene: &'a Scene<'a>,
    /// A file of the paths to ask for, if the experiment serves files.
    pub urls: Option<&'a Path>,
    /// Whether the files are read from a disk, so that a request before the window would spoil it.
    pub is_cold: bool,
}

/// The exit status of a program that was used wrongly, and of a program of Rust that panicked.
const OWN_FAULTS: [i32; 2] = [2, 101];

/// A failure of the load generator is the lab's own if the generator was killed, panicked or was called wrongly. A server
/// that cannot be reached does not do that to it.
fn of_generator(failure: Failure, generator: &mut Child) -> Failure {
    let Ok(Some(status)) = generator.ended() else { return failure };
    let is_own = status.code().is_none_or(|code| OWN_FAULTS.contains(&code));
    if is_own { failure.of_lab() } else { failure }
}

/// A kind of load.
pub trait LoadDriver: std::fmt::Debug {
    /// Drives the subject until it is steady, for `at_most` at the longest, with connections that are closed
    /// afterwards. `None` if this kind of load cannot warm up.
    ///
    /// # Errors
    /// The errors of [`LoadDriver::measure`].
    fn warm_up(
        &self,
        subject: &mut Running,
        target: &Target<'_>,
        at_most: Duration,
    ) -> Result<Option<Warm>, Failure>;

    /// Drives the subject and measures. Calls `at` at the beginning and at the end of the window.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if this machine lacks the generator; [`Failure::Failed`] if the generator gives no
    /// result; [`Failure::Interrupted`]; the errors of `at`.
    fn measure(
        &self,
        subject: &mut Running,
        target: &Target<'_>,
        window: &Window,
        warm: Option<&Warm>,
        at: &mut dyn FnMut(Moment, &mut Running) -> Result<(), Failure>,
    ) -> Result<Driven, Failure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_as_long_as_its_events_take_within_bounds() {
        let window = Window {
            at_least: Duration::from_secs(1),
            at_most: Duration::from_secs(10),
            events: Some(2000),
            use_every_connection: true,
            drain: false,
        };
        assert_eq!(window.length(Some(1000.0)), Duration::from_millis(2200));
        assert_eq!(window.length(Some(1e6)), Duration::from_secs(1));
        assert_eq!(window.length(Some(1.0)), Duration::from_secs(10));
        assert_eq!(window.length(None), Duration::from_secs(10));
        assert_eq!(Window { events: None, ..window }.length(None), Duration::from_secs(1));
    }
}
