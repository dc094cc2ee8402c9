//! The lab: experiments that are data, the plan of their runs, what drives and measures them, and the
//! statistics that judge each claim.
//!
//! **What it is not.** No load generator and no server: it starts both as processes, `drover load` and any server,
//! and reads what they and the kernel say. It draws no conclusion that its samples do not bear: a claim that cannot be
//! decided is told as such.
//!
//! ```
//! use drover_lab::spec::built_in;
//!
//! let experiment = built_in::experiment("dispatch-overhead").expect("it comes with the program").unwrap();
//! let cells = experiment.cells(&experiment.presets["quick"]);
//! assert!(!cells.is_empty());
//! println!("{}: {} cells, {} claims", experiment.id, cells.len(), experiment.claim.len());
//! ```
//!
//! `examples/session.rs` runs an experiment and writes its report.
//!
//! # Where things are
//!
//! [`spec`] is the experiment file, [`plan`] makes cells and rounds of it, [`run`] makes one run (a [`subject`] is
//! started, [`drive`] loads it, [`instrument`] reads what it costs), [`session`] makes all runs, [`journal`] and
//! [`record`] keep and read them. [`claims`] judges, by the methods of [`analysis`]; [`report`] says it all.
//! [`compare`], [`calibrate`], [`versus`], [`decide`] and [`tune`] are the commands that need more than a report.

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
pub mod old_names;
pub mod path_text;
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
pub mod trace;
pub mod tune;
pub mod versus;
pub mod wire;
