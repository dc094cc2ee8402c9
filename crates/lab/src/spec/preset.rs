//! Presets: how much of an experiment is run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::Levels;
use super::pool::PoolSpec;
use super::setting::{CountSetting, TimeSetting};
use crate::model::Level;

/// The rounds of a preset that does not say how many: the fewest with an order-statistic interval of 95 %
/// for a median.
pub const ROUNDS: u32 = 6;

/// A preset: how much of the experiment is run. Flags of the command line win over the keys of a preset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The number of rounds; 6 if the key is missing. In each round every cell runs once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rounds: Option<u32>,
    /// The length of the measured window, in place of `measure.at_least` of `[phases]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<TimeSetting>,
    /// The least number of events in the window, in place of `measure.events` of `[phases]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<CountSetting>,
    /// The longest warm-up, in place of `warmup.at_most` of `[phases]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<TimeSetting>,
    /// The subjects that are run, in the order of the legend; all subjects if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<String>>,
    /// The cases that are run; all cases if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases: Option<Vec<String>>,
    /// The levels that are run, by factor. A factor that is missing here has the levels of its own key
    /// `levels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, Vec<Level>>,
    /// The cells that single subjects run in, where these are fewer than all of the preset: by subject, a list of tables
    /// of which a cell has to fit one. With it a preset runs the cells that decide its claims, and no others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Vec<BTreeMap<String, Levels>>>,
    /// Keys of pools, by the name of the pool. Each key given here replaces the pool's own key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<String, PoolSpec>,
    /// The part of its processors' time that a server gets, in place of the experiment's own key `slow`; `1` is all
    /// of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1))]
    pub slow: Option<f64>,
    /// How long the whole experiment may take. After the first round, no round is begun that would end later;
    /// the lab then says how many rounds were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<TimeSetting>,
}

impl Preset {
    /// How many rounds there are.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS)
    }
}
