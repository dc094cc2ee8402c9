//! The laboratory: re-runs published experiments on this machine and judges their claims.
//!
//! In the order in which an experiment passes through: [`experiment`] is read and becomes a
//! [`plan`], the [`runner`] hands its points to [`processes`] and collects [`results`], each with its
//! [`metric`]s, and [`claims`] are judged by [`stats`]. Where not servers are compared but ways to wait
//! for connections, the [`herd`] takes the place of the processes.

pub mod awake;
mod built_in;
mod child;
pub mod claims;
pub mod compare;
pub mod disk;
pub mod experiment;
pub mod herd;
mod levels;
pub mod machine;
pub mod metric;
pub mod peers;
pub mod plan;
pub mod pool;

pub mod processes;
pub mod progress;
pub mod results;
pub mod runner;
mod server;
pub mod session;
pub mod stats;
pub mod store;
pub mod trace;
pub mod utc;
