//! The lab: experiments that are data, the plan of their runs, what drives and measures them, and the
//! statistics that judge each claim.

pub mod analysis;
pub mod claims;
pub mod failure;
pub mod journal;
pub mod model;
pub mod plan;
pub mod process;
pub mod spec;
pub mod wire;
