//! The lab: experiments that are data, the plan of their runs, what drives and measures them, and the
//! statistics that judge each claim.

pub mod analysis;
pub mod calibrate;
pub mod claims;
pub mod compare;
pub mod decide;
mod digits;
pub mod document;
pub mod drive;
pub mod failure;
pub mod hash;
pub mod instrument;
pub mod journal;
pub mod model;
pub mod placement;
pub mod plan;
pub mod process;
pub mod record;
pub mod report;
pub mod run;
pub mod session;
pub mod site;
pub mod spec;
pub mod subject;
pub mod tune;
pub mod versus;
pub mod wire;
