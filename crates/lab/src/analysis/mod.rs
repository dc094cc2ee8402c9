//! Statistics on plain slices: intervals, tests and sample sizes for few rounds. Nothing here knows of
//! experiments.
//!
//! The unit of every estimate is a *round*: the values of one round share the state of the machine,
//! so they are compared with each other, and rounds are what is counted. Each file holds one method,
//! with its reference and a test against a distribution whose truth is known;
//! `cargo bench -p drover-lab --bench coverage` repeats those tests with 10,000 simulated experiments.
//!
//! | question | method | file |
//! |---|---|---|
//! | what does a count say, which hardly varies? | the range of its rounds | [`curve`] |
//! | what does a subject cost, beside others that are alive? | medians over the means of cycles | [`turns`] |
//! | where is the median of some rounds? | order statistics | [`estimate::median`] |
//! | by what factor do two subjects differ? | t on paired logarithms | [`estimate::paired`] |
//! | by what factor do two sessions differ? | Welch's t on logarithms | [`estimate::independent`] |
//! | since when is a series of sessions at another level? | binary segmentation with stretches | [`decision::change_points`] |
//! | is every level like the lowest? | simultaneous max-t bounds | [`estimate::simultaneous`] |
//! | how does a metric grow? | t on one log–log slope per round | [`estimate::exponent`] |
//! | where does a subject stop keeping up? | interpolation per round | [`estimate::knee`] |
//! | what does the best of several do? | intersection–union | [`estimate::best`] |
//! | which of two spreads is larger? | Brown–Forsythe, paired, with Fieller's interval | [`estimate::spread`] |
//! | is there no difference? | two one-sided tests | [`decision::equivalence`] |
//! | how many rounds are needed? | power of the t test | [`decision::power`] |
//! | which of many claims stand together? | Holm | [`decision::holm`] |
//! | what does a limited measurement say? | one-sided bounds | [`censored`] |
//! | what can this machine tell? | random splits of equal subjects | [`calibrate`] |

pub mod calibrate;
pub mod censored;
pub mod curve;
pub mod decision;
pub mod estimate;
mod max_t;
pub mod noise;
mod ratio_of_means;
pub(crate) mod student;
pub mod summary;
pub mod turns;

pub use censored::Bound;
pub use curve::{AverageScale, Curve, Extreme, Interval};

/// Fewer rounds than this are not judged. The median of five has no 95 % interval at all
/// (1 − 2·0.5⁵ = 93.75 %), and with six the t interval is still 2.57 standard errors wide on each side.
pub const FEWEST_ROUNDS: usize = 6;

/// Fewer rounds than this are not judged where values are counted and do not vary by chance.
pub const FEWEST_COUNTED: usize = 2;
