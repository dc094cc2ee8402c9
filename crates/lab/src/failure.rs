//! Why a run ended without values.

use std::fmt;

/// Why a run ended without values. Every failure except an interruption is a result of its cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The user, or the system, asked the lab to end.
    Interrupted,
    /// This machine lacks what the cell needs: a right, a program, a facility of the kernel, a limit.
    /// Repeating the run does not help.
    NotTestable(String),
    /// Something went wrong; the text says what.
    Failed(String),
}

impl Failure {
    /// A run that went wrong; `reason` says how.
    pub fn failed(reason: impl fmt::Display) -> Failure {
        Failure::Failed(reason.to_string())
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
        }
    }
}

impl std::error::Error for Failure {}
