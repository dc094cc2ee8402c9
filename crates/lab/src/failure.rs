//! Why a run ended without values.

use std::fmt;

/// Why a run ended without values. A failure is a result of its cell, unless the run was interrupted or the lab itself
/// failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The user, or the system, asked the lab to end.
    Interrupted,
    /// This machine lacks what the cell needs: a right, a program, a facility of the kernel, a limit.
    /// Repeating the run does not help.
    NotTestable(String),
    /// Something went wrong; the text says what.
    Failed(String),
    /// The lab itself failed: an instrument, the load generator, a folder of the run. The text says what. The run says
    /// nothing about its cell.
    NotMeasured(String),
}

impl Failure {
    /// A run that went wrong; `reason` says how.
    pub fn failed(reason: impl fmt::Display) -> Failure {
        Failure::Failed(reason.to_string())
    }

    /// A run in which the lab itself failed; `reason` says how.
    pub fn not_measured(reason: impl fmt::Display) -> Failure {
        Failure::NotMeasured(reason.to_string())
    }

    /// The same failure, as one of the lab: what the lab does for itself never fails because of the subject.
    #[must_use]
    pub fn of_lab(self) -> Failure {
        match self {
            Failure::Failed(reason) => Failure::NotMeasured(reason),
            other => other,
        }
    }

    /// A cell that this machine cannot measure; `reason` says why.
    pub fn not_testable(reason: impl fmt::Display) -> Failure {
        Failure::NotTestable(reason.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::NotTestable(reason) => write!(f, "not testable here: {reason}"),
            Failure::Failed(reason) => f.write_str(reason),
            Failure::NotMeasured(reason) => write!(f, "not measured: {reason}"),
        }
    }
}

impl std::error::Error for Failure {}
