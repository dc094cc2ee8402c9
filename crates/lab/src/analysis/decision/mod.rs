//! Decisions: whether there is an effect, or none, or a change, and how many rounds such a decision needs.

pub mod best;
pub mod change_points;
pub mod equivalence;
pub mod holm;
pub mod power;
