//! Figures: what a report plots.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::{Levels, Published};
use super::factor::AxisScale;
use crate::old_names::read_metric;

/// A chart with a line for each subject. Without the key `x`: a table with a row for each subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The figure's name in the report, which is the name that the document uses: `Figure 6(a)`.
    pub id: String,
    /// What the figure shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The metric that is plotted.
    #[serde(deserialize_with = "read_metric")]
    pub metric: String,
    /// The factor along the horizontal axis. If the key is missing, the figure is a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// The factors that have a panel for each level. If the key is missing: every factor that varies and is not
    /// the horizontal axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panels: Option<Vec<String>>,
    /// The cells that are plotted: for each factor, a level or a list of levels. A factor that is not named has
    /// all its levels.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub cells: BTreeMap<String, Levels>,
    /// The subjects that are plotted; all subjects if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<String>>,
    /// The scale of the vertical axis. If the key is missing, the lab chooses the scale by the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<AxisScale>,
    /// The values that the document published. The figure shows these values beside the measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}
