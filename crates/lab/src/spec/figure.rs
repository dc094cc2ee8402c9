//! Figures: what a report plots.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::{Levels, Published};
use super::factor::Scale;

/// A chart: a line, or without `x` a row of a table, for each subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name in the report, as the document has it: `Figure 6(a)`.
    pub id: String,
    /// What it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is plotted.
    pub metric: String,
    /// The factor along the horizontal axis; without it, the figure is a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<String>,
    /// The factors with a panel for each level; all others that vary unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panels: Option<Vec<String>>,
    /// The cells that are plotted: a level, or a list of levels, per factor.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub cells: BTreeMap<String, Levels>,
    /// The subjects that are plotted; all unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<String>>,
    /// The scale of the vertical axis; logarithmic where the values ask for it, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// The document's own values, drawn beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}
