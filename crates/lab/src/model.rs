//! The types that all parts of the lab share: a cell of an experiment, and a sample of a cell.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::old_names::read_under_metrics;

/// The level of a factor: a number, or a name where the factor has no order (`"1gbit"`).
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Level {
    /// A quantity in the factor's unit.
    Number(f64),
    /// One of several alternatives.
    Name(String),
}

impl Level {
    /// The quantity, if the level is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Level::Number(number) => Some(*number),
            Level::Name(_) => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Number(number) => number.fmt(f),
            Level::Name(name) => f.write_str(name),
        }
    }
}

/// A subject at one level of every factor: what one run measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The name of the subject.
    pub subject: String,
    /// A level for every factor of the experiment, by the factor's name. The name of the case, if the
    /// experiment has cases, is the level of the factor `case`.
    pub levels: BTreeMap<String, Level>,
}

impl fmt::Display for Cell {
    /// The subject, then each factor with its level: `nginx, body 128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        self.levels.iter().try_for_each(|(factor, level)| write!(f, ", {factor} {level}"))
    }
}

/// The measurement of one run, with every reason to doubt it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The measured cell.
    pub cell: Cell,
    /// The round, from 1. The runs of a round are close in time and have one seed, so that samples of a round are
    /// comparable.
    pub round: u32,
    /// The values, each in its metric's unit, by the metric's name.
    #[serde(deserialize_with = "read_under_metrics")]
    pub values: BTreeMap<String, f64>,
    /// The marks, which limit what the values mean; empty for a clean run.
    #[serde(default)]
    pub validity: BTreeSet<Mark>,
    /// Why the run failed and has no values. A failure is a result: leaving it out must not make a claim hold.
    #[serde(default)]
    pub failure: Option<String>,
}

impl Sample {
    /// A sample without values yet.
    #[must_use]
    pub fn new(cell: Cell, round: u32) -> Sample {
        Sample { cell, round, values: BTreeMap::new(), validity: BTreeSet::new(), failure: None }
    }
}

/// A reason to doubt a sample, or to read its values as bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The load generator used all of its processors: rates are lower bounds of what the subject can do,
    /// and latencies are upper bounds.
    GeneratorLimited,
    /// Requests were sent later than scheduled, or responses read late: latencies are upper bounds.
    Late,
    /// Some requests ended in an error or an unexpected status.
    Errors,
    /// Other work on the machine kept the subject from its processor for a noticeable share of the window.
    Preempted,
    /// The measured window began before the subject was steady.
    Cold,
    /// The window saw fewer events than its metrics need.
    FewEvents,
    /// Everything that was offered was answered: rates say what was asked for, and are lower bounds of what the subject can do.
    AnsweredAll,
    /// The machine paused (stolen time, a stopped virtual machine).
    Stalled,
    /// This machine could not make the run: it lacks a right, a program, a facility of the kernel, or room within a
    /// limit. `failure` says which. The mark says nothing about the subject.
    Unavailable,
    /// The lab itself failed, so that the run says nothing about the subject. `failure` says how. The journal keeps such
    /// runs, and nothing else counts them.
    NotMeasured,
    /// Any other warning of the load generator; the sample's artefacts have its words.
    Warned,
}
