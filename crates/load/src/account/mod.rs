//! What a run counts: every request in exactly one place, so that the sums add up.

pub(crate) mod counts;
pub mod errors;
pub(crate) mod histograms;
pub(crate) mod http2;
pub mod seconds;
