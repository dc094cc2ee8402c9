//! How a subject is driven: the load of a run.

pub mod background;
mod command;
mod http;
mod result;
mod warmup;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use command::CommandLoad;
pub use http::HttpLoad;
pub use warmup::{Warm, WarmUp};

use crate::failure::Failure;
use crate::model::Mark;
use crate::subject::{Running, Scene};

/// What a load is to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The shortest window.
    pub at_least: Duration,
    /// The longest window.
    pub at_most: Duration,
    /// How many events it should have.
    pub events: Option<u64>,
    /// Whether every connection is to be used once before the window begins.
    pub use_every_connection: bool,
    /// Whether requests under way at the end are waited for and counted.
    pub drain: bool,
}

impl Window {
    /// How long the window is to be if so many events happen per second, as far as that is known.
    #[must_use]
    pub fn length(&self, events_per_s: Option<f64>) -> Duration {
        let wanted = match (self.events, events_per_s) {
            // A tenth more: the rate may be lower than it was.
            (Some(events), Some(rate)) if rate > 0.0 => {
                Duration::try_from_secs_f64(1.1 * events as f64 / rate).unwrap_or(self.at_most)
            }
            // Nobody knows how long that takes.
            (Some(_), _) => self.at_most,
            (None, _) => self.at_least,
        };
        wanted.max(self.at_least).min(self.at_most.max(self.at_least))
    }
}

/// A moment at which instruments are read. The load waits meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The window begins.
    Begin,
    /// The window has ended; every connection is still open.
    End,
}

/// What a load has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Driven {
    /// Metrics, by name.
    pub values: BTreeMap<String, f64>,
    /// Reasons to doubt them.
    pub marks: BTreeSet<Mark>,
    /// The length of the window by the load's own clock, in seconds.
    pub seconds: f64,
    /// How many events, responses as a rule, fell into the window.
    pub events: f64,
    /// How many there were with those that came after the window.
    pub events_with_tail: f64,
    /// Bytes of the events in the window.
    pub bytes: f64,
    /// The load's own result.
    pub result: Value,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What else a reader has to know.
    pub notes: Vec<String>,
}

/// Where and what is driven.
#[derive(Debug)]
pub struct Target<'a> {
    /// The run's surroundings.
    pub scene: &'a Scene<'a>,
    /// A file of the paths to ask for, if the experiment serves files.
    pub urls: Option<&'a Path>,
    /// Whether the files are read from a disk, so that a request before the window would spoil it.
    pub is_cold: bool,
}

/// A kind of load.
pub trait Load: std::fmt::Debug {
    /// Drives the subject until it is steady, at most for `at_most`, with connections that are closed
    /// again. `None` if this load cannot.
    ///
    /// # Errors
    /// As [`Load::measure`].
    fn warm_up(
        &self,
        subject: &mut Running,
        target: &Target<'_>,
        at_most: Duration,
    ) -> Result<Option<Warm>, Failure>;

    /// Drives the subject and measures. `at` is called at the beginning and at the end of the window.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if this machine lacks the generator; [`Failure::Failed`] if it yields no
    /// result; [`Failure::Interrupted`]; what `at` says.
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
