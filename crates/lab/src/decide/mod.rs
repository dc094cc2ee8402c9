//! The question that people come with, asked of this machine: which mechanism for so many connections, of which
//! so many are active, that live so long.
//!
//! `drover lab decide` turns a [`Question`] into experiments ([`Request`]), one for each [`Axis`] with something
//! to choose, fits them into its time ([`fit`]), and reads the answer off their samples ([`Decision`]): what to
//! take and why, what does not matter, and what this machine cannot tell.

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
pub use experiment::Request;
pub use question::{Lifetime, Question, Response, Scene};

/// The preset of the experiments.
pub const PRESET: &str = "decide";

/// The case with a low rate.
pub const LOW_RATE: &str = "low rate";

/// The case at saturation.
pub const SATURATION: &str = "saturation";

/// The title of the subject that `auto` takes.
const AUTO: &str = "what auto takes here";
