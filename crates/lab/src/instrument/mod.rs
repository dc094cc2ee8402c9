//! Instruments: readings around the measured window, in addition to the load's own result.

pub mod counters;
pub mod cpu;
pub mod disk;
pub mod events;
pub mod idle;
pub mod machine;
pub mod memory;
pub mod stages;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::failure::Failure;
use crate::model::Mark;
use crate::subject::Running;

/// An instrument is read at the beginning and at the end of the window. The load waits during both readings, so that
/// the readings cover exactly the window.
pub trait Instrument: std::fmt::Debug {
    /// The name in records.
    fn name(&self) -> &'static str;

    /// Reads at the beginning of the window.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if this machine does not have it; [`Failure::Failed`].
    fn begin(&mut self, subject: &mut Running) -> Result<(), Failure>;

    /// Reads at the end of the window, which was `seconds` long by the lab's clock.
    ///
    /// # Errors
    /// The errors of [`Instrument::begin`].
    fn end(&mut self, subject: &mut Running, seconds: f64) -> Result<Readings, Failure>;
}

/// The readings of an instrument.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// Metrics, and values from which metrics are computed, by name.
    pub values: BTreeMap<String, f64>,
    /// Reasons to doubt the sample.
    pub marks: BTreeSet<Mark>,
    /// How the instrument reads, and other remarks.
    pub notes: Value,
}

impl Readings {
    /// Sets a value.
    pub fn set(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_string(), value);
    }
}

/// Names of readings from which metrics are computed.
pub mod reading {
    /// CPU time of the subject in the window, in seconds.
    pub const CPU_S: &str = "cpu-s";
    /// How long the subject's threads were ready to run and had no processor, in seconds.
    pub const WAITED_S: &str = "waited-s";
    /// Time of the subject's processors that no thread used, in seconds.
    pub const IDLE_S: &str = "idle-s";
    /// Processors of the subject times the window, in seconds.
    pub const CAPACITY_S: &str = "capacity-s";
}

/// The share of the window that the subject may wait for a processor without the mark `preempted`.
const PREEMPTED: f64 = 0.03;

/// Whether other work has kept the subject from its processors.
///
/// Threads of the subject also wait for each other, which does not count. If the idle counter has measured how long
/// the processors were busy, the waiting that others can have caused is at most their part of the busy time.
/// Otherwise it is at most the time that the subject left on its processors. `part` is what the subject may use of them: waiting for
/// the rest is no preemption.
#[must_use]
pub fn was_preempted(values: &BTreeMap<String, f64>, seconds: f64, part: f64) -> bool {
    let value = |name: &str| values.get(name).copied();
    let (Some(waited), Some(cpu)) = (value(reading::WAITED_S), value(reading::CPU_S)) else {
        return false;
    };
    let capacity = part * value(reading::CAPACITY_S).unwrap_or(seconds);
    let by_others = match value(reading::IDLE_S) {
        Some(idle) => (capacity - idle - cpu).max(0.0),
        None => (capacity - cpu).max(0.0),
    };
    waited.min(by_others) > PREEMPTED * capacity
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preempted(values: &[(&str, f64)]) -> bool {
        was_preempted(
            &values.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            1.0,
            1.0,
        )
    }

    #[test]
    fn waiting_for_oneself_is_no_preemption() {
        let busy = [(reading::WAITED_S, 0.5), (reading::CPU_S, 0.99), (reading::CAPACITY_S, 1.0)];
        assert!(!preempted(&busy));
        let half = [(reading::WAITED_S, 0.2), (reading::CPU_S, 0.5), (reading::CAPACITY_S, 1.0)];
        assert!(preempted(&half));
        // Half of the processor was idle, so that no other work had the rest.
        let mut idle = half.to_vec();
        idle.push((reading::IDLE_S, 0.49));
        assert!(!preempted(&idle));
        assert!(!preempted(&[(reading::CPU_S, 0.5)]));
        let slowed = half.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        assert!(!was_preempted(&slowed, 1.0, 0.5));
    }
}
