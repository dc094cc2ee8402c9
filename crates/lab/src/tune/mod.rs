//! The best flags of a server for a user's files on this machine.
//!
//! `drover tune` goes through the flags that have something to choose ([`Knob`]), one after the other, each with
//! what was chosen before. Of each it makes a [`Contest`]: its candidates serve the user's own files, round by
//! round, at a moderate rate and at saturation ([`experiment`]). Who is clearly behind after a few rounds goes
//! ([`halving`]); the last two or three are measured anew, in as many rounds as an interval needs, and a
//! [`Ruling`] says who is taken, by which rule, with figures.

mod contest;
pub mod experiment;
pub mod halving;
mod knob;
mod reading;
mod ruling;
mod table;

pub use contest::{Step, hold, runs};
pub use halving::Out;
pub use knob::{Chosen, Contest, Knob, Scene, contest};
pub use reading::Contender;
pub use ruling::{Place, Rule, Ruling, rule};
pub use table::table;

/// The preset of the experiments.
pub const PRESET: &str = "tune";

/// The case with a moderate rate.
pub const MODERATE: &str = "moderate rate";

/// The case at saturation.
pub const SATURATION: &str = "saturation";

/// A difference that is smaller than this factor is none that anybody should choose by.
pub const MARGIN: f64 = 1.03;
