//! Factors: the axes along which an experiment's cells lie, and cases: named combinations of levels.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Level;

/// The name of the factor whose levels are the names of the cases.
pub const CASE: &str = "case";

/// A factor: a quantity, or a choice, that the experiment varies. A factor may be the axis of a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The factor's levels, in the order of tables and figures. A preset may choose other levels. A factor
    /// whose levels are set by the cases needs no levels here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// The unit of the levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The scale of the axis: linear or logarithmic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<AxisScale>,
    /// The name of the axis in figures; the factor's name if the key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AxisScale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios.
    Log,
}

/// A named combination of levels. An experiment with cases runs every cell in each case. The name of the case
/// is the level of the factor `case`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// The case's name in tables, figures and claims.
    pub name: String,
    /// The levels that make the case, by factor. Every case sets the same factors.
    #[serde(flatten)]
    pub levels: BTreeMap<String, Level>,
}
