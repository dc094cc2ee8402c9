//! The phases of a run: warm-up, the measured window, drain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{Count, Time};

/// The phases of every run. Presets may set the length of the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// What comes before the window.
    #[serde(default)]
    pub warmup: Warmup,
    /// The measured window.
    #[serde(default)]
    pub measure: Measure,
    /// Whether requests under way at the end of the window are waited for and counted, with the CPU time that
    /// they take, on both sides of every ratio. Without it the window ends sharply for both.
    #[serde(default)]
    pub drain: bool,
}

/// The time before the window: not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// What ends it.
    #[serde(default)]
    pub until: Until,
    /// The longest that it may take; 3 s unless given. A window that begins before the subject is steady is
    /// marked as cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Time>,
}

/// What ends the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// The rate and the CPU time per event no longer drift, and every connection has been used once.
    #[default]
    Steady,
    /// All connections are open.
    Connected,
    /// Nothing: the window begins with the first request.
    Nothing,
}

/// The measured window: it ends when all that is given is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// The shortest that it may be; 1 s unless given, or what the preset's `window` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Time>,
    /// How many events (responses, connections, tokens) it has at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Count>,
    /// The longest that it may be, even with fewer events; 10 times `at_least` unless given. Then it is marked
    /// as having few events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Time>,
}
