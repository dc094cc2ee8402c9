//! The load generator: connections that send requests at a pace, check every reply, and count
//! everything so that the sums add up.
//!
//! In reading order: [`plan`] is what a run is asked to do, [`pace`] when requests start, `target`
//! what they ask of whom. `conductor` runs the workers, `worker` is one of them, `client` one of
//! its connections, which reads replies with `reader` and counts in `account`. [`result`] is what a
//! run tells machines, `summary` what it tells people.

mod account;
mod client;
mod conductor;
pub mod pace;
pub mod plan;
mod progress;
mod reader;
pub mod result;
mod summary;
pub mod target;
mod worker;

use std::time::SystemTime;

use plan::{Options, Plan};
use result::LoadResult;

/// Carries out a run. With `events`, prints `connected` on stdout once all connections are open and
/// before the first request is sent, and `measured` when the window is over and before the
/// connections are closed.
///
/// # Errors
/// A [`UsageError`](crate::error::UsageError) for options that cannot be carried out; otherwise
/// what the kernel says.
pub fn run(options: Options, events: bool) -> anyhow::Result<LoadResult> {
    let plan = Plan::new(options)?;
    let start = SystemTime::now();
    let run = conductor::conduct(&plan, events)?;
    Ok(LoadResult::new(&plan, start, run))
}

pub use summary::print as print_summary;
