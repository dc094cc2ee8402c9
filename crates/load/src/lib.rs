//! The load generator: connections that send requests at a pace, check every response, and count
//! everything so that the sums add up.
//!
//! In reading order: [`plan`] is what a run is asked to do, [`shape`] when requests start,
//! [`request`] what is asked and [`order`] in which order; `origin` is a server, and [`sources`] where
//! connections come from. `conductor` runs the workers; `phases` takes each through a run, `worker` is
//! what its connections share, `client` is one of those, which sends requests in `exchange`, reads
//! responses with `reader` and counts in `account`; `pauses` knows when none of them ran, `interrupts` of
//! signals. [`result`] is what a run tells machines, `summary` what it tells people.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod account;
pub mod input;
pub mod output;
pub mod plan;
pub mod run;

use std::time::SystemTime;

pub use account::seconds::Second;
pub use output::listener::Listener;
use output::result::LoadResult;
pub use output::summary::print as print_summary;
use plan::options::{Options, Plan};
pub use run::idle::{IdleResult, idle};

/// Carries out a run, and tells `listener` of its events as they happen.
///
/// # Errors
/// A [`UsageError`](usage::UsageError) for options that cannot be carried out; otherwise
/// what the kernel or the listener says.
pub fn run(options: Options, listener: &mut dyn Listener) -> anyhow::Result<LoadResult> {
    let plan = Plan::new(options)?;
    if plan.processes > 1 && plan.process.is_none() {
        return run::processes::conduct(&plan, listener);
    }
    let start = SystemTime::now();
    let run = run::coordinator::conduct(&plan, listener)?;
    Ok(LoadResult::new(&plan, start, run))
}
