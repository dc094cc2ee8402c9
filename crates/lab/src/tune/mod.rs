//! The best flags of a server for a user's files on this machine.
//!
//! `drover tune` goes through the flags that have something to choose ([`Knob`]), one after the other, each with the
//! values that were chosen before. For each flag it makes a [`Contest`]: the candidates serve the user's own files,
//! round by round, at a moderate rate and at saturation ([`experiment`]). Candidates that are clearly behind after a
//! few rounds are removed ([`halving`]). The last two or three are measured again, in as many rounds as an interval
//! needs. A [`Ruling`] says which candidate is taken, by which rule, with figures.

mod bench;
mod contest;
pub mod experiment;
pub mod halving;
mod knob;
mod reading;
mod ruling;
mod table;

pub use bench::{TuneBench, TuneEvent, TuneRequest};
pub use contest::{Step, run_contest, runs};
pub use halving::Out;
pub use knob::{Contest, Knob, TakenFlags, TuneContext, contest};
pub use reading::Contender;
pub use ruling::{Finalist, Ruling, RulingReason, rule};
pub use table::table;

/// The preset of the experiments.
pub const PRESET: &str = "tune";

/// The case with a moderate rate.
pub const MODERATE: &str = "moderate rate";

/// The case at saturation.
pub const SATURATION: &str = "saturation";

/// A ratio closer to 1 than this factor is too small to choose by.
pub const MARGIN: f64 = 1.03;
