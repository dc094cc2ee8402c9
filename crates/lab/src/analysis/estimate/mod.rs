//! Estimates: how large an effect is, with an interval at every level of confidence.

pub mod best;
pub mod exponent;
pub mod independent;
pub mod knee;
pub mod median;
pub mod paired;
pub mod simultaneous;
pub mod spread;
