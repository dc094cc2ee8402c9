//! Presets: how much of an experiment is run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::Pool;
use super::setting::{Count, Time};
use crate::model::Level;

/// The rounds of a preset that does not say how many: the fewest with an order-statistic interval of 95 %
/// for a median.
pub const ROUNDS: u32 = 6;

/// The scale of a run. What the command line says wins over a preset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// How many rounds; 6 unless given. In each of them every cell runs once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rounds: Option<u32>,
    /// The length of the window, in place of `[phases]`' `measure.at_least`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Time>,
    /// The events of the window, in place of `[phases]`' `measure.events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Count>,
    /// The longest warm-up, in place of `[phases]`' `warmup.at_most`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Time>,
    /// Only these subjects, in the order of the legend; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<String>>,
    /// Only these cases; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cases: Option<Vec<String>>,
    /// The levels of factors, in place of the factors' own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, Vec<Level>>,
    /// Keys of pools, in place of the pools' own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<String, Pool>,
    /// How long the whole experiment may take: no round is begun that would end later. What is cut is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Time>,
}

impl Preset {
    /// How many rounds there are.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS)
    }
}
