//! The laboratory: re-runs published experiments on this machine and judges their claims.

pub mod experiment;
