//! What a run counts: every request in exactly one place, so that the sums add up.

pub(crate) mod counts;
pub(crate) mod histograms;
pub mod merge;
pub mod seconds;
