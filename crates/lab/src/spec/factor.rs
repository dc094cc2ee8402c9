//! Factors: the axes along which an experiment's cells lie, and cases: named combinations of levels.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Level;

/// The name of the factor whose levels are the names of the cases.
pub const CASE: &str = "case";

/// An axis: a quantity, or a choice, that is varied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// The levels, in their order. A preset may choose others. A factor that every case sets needs none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// The unit of the levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How the axis is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// The name of the axis in figures; the factor's name unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios.
    Log,
}

/// A named combination of levels. An experiment with cases runs every cell in each of them; the name of
/// the case is the level of the factor `case`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Its name in tables, figures and claims.
    pub name: String,
    /// The levels that make the case, by factor. Every case sets the same factors.
    #[serde(flatten)]
    pub levels: BTreeMap<String, Level>,
}
