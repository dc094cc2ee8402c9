//! The question of a user, measured on this machine: which mechanism is best for a number of connections, of which
//! some are active, with a given lifetime.
//!
//! `drover lab decide` turns a [`Question`] into experiments ([`DecideRequest`]), one for each [`Axis`] with several
//! candidates, fits the experiments into the time ([`fit`]), and derives the answer from the samples ([`Decision`]):
//! what to use and why, what makes no difference, and what this machine cannot measure.

mod answer;
mod candidates;
mod experiment;
pub mod fit;
mod question;
#[cfg(test)]
mod tests;
mod verdict;

pub use answer::{Decision, SCHEMA};
pub use candidates::{Axis, Candidates, candidates};
pub(crate) use candidates::{of_accept, of_dispatch, of_files};
pub use experiment::DecideRequest;
pub use question::{Lifetime, Question, ResponseKind, ScaledQuestion};

/// The preset of the experiments.
pub const PRESET: &str = "decide";

/// The case with a low rate.
pub const LOW_RATE: &str = "low rate";

/// The case at saturation.
pub const SATURATION: &str = "saturation";

/// The title of the subject that `auto` takes.
const AUTO: &str = "what auto takes here";
