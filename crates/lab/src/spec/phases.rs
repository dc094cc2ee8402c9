//! The phases of a run: warm-up, the measured window, drain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::setting::{CountSetting, TimeSetting};

/// The phases of every run: warm-up, measured window, drain. A preset may set the length of the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// The warm-up, which comes before the measured window.
    #[serde(default)]
    pub warmup: Warmup,
    /// The measured window.
    #[serde(default)]
    pub measure: Measure,
    /// Whether the run waits for the requests that are under way at the end of the window. If true, these
    /// requests and the CPU time of these requests both count in ratios such as CPU time per response. If
    /// false, neither counts.
    #[serde(default)]
    pub drain: bool,
    /// The length of a turn. With this key, servers that differ in nothing but the subject are alive at once, and the load goes
    /// from one to the other in turns of this length, until each has had its window: a drift of the machine then meets all of them
    /// alike. A turn lasts until its last response; rates and costs are medians of the turns. For a load that sends the next
    /// request when the response to the last one is complete. Cells with a limited wire, or with files on a disk, have their window
    /// in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TimeSetting>,
    /// Factors whose levels take turns, too: cells that differ only in the subject and in these factors are alive at once. For
    /// claims that compare levels, such as with and without TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turn_over: Vec<String>,
}

/// The warm-up: the time before the measured window. The warm-up itself is not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// What ends the warm-up; `"steady"` if the key is missing.
    #[serde(default)]
    pub until: Until,
    /// The longest warm-up; 3 s if the key is missing. If the subject is not steady by then, the window begins
    /// all the same and is marked as cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<TimeSetting>,
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
    /// There is no warm-up: the window begins with the first request.
    Nothing,
}

/// The measured window. The window ends when `at_least` and `events` are both reached, or `at_most` is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// The shortest window; 1 s if the key is missing. The key `window` of a preset replaces this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<TimeSetting>,
    /// The least number of events (responses, connections, tokens) in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<CountSetting>,
    /// The longest window, even with fewer `events`; 10 times `at_least` if the key is missing. A window that
    /// ends with fewer events is marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<TimeSetting>,
}
