//! A load generator for HTTP/1.1 and HTTP/2: connections that send requests on a schedule, check every response, and
//! count everything so that the sums add up.
//!
//! Latency counts from the intended start of a request, so a server that stalls cannot hide it. The
//! result warns when the generator itself was the bottleneck. It runs no scripts.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use drover_load::plan::options::LoadOptions;
//! use drover_load::plan::request::{RequestContent, RequestTemplate};
//!
//! /// Follows no events of the run.
//! struct Quiet;
//! impl drover_load::LoadListener for Quiet {}
//!
//! let url = "http://127.0.0.1:8080/".parse().expect("a URL");
//! let request = RequestTemplate { url, content: RequestContent::default().into() };
//! let mechanism = drover_mech::mechanisms::auto_of_readiness().expect("Linux has poll(2)");
//! let mut options = LoadOptions::new(vec![request], mechanism); // a closed loop
//! options.connections = 10;
//! options.duration = Some(Duration::from_secs(5));
//! let result = drover_load::run(options, &mut Quiet)?;
//! println!("{} responses", result.responses);
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! `examples/run_load.rs` keeps a schedule and prints the summary.
//!
//! # Where things are
//!
//! - [`plan`]: what a run is asked to do: its options, when requests start ([`plan::shape`]), which
//!   requests ([`plan::request`]), over which protocol ([`plan::http2`]), in which order ([`plan::order`]), from which local addresses
//!   ([`plan::sources`]), and with which TLS ([`plan::tls`]).
//! - [`mod@run`]: how a run is carried out. `coordinator` leads the workers, `phases` leads one worker
//!   through a run. `worker` is what the connections of a worker share; it draws the life of a request.
//!   `connection` opens a connection and says what is spoken on it: `client` is one of HTTP/1.1, on which `exchange` sends and
//!   receives, and `reader` reads a response; `http2` is one whose requests have streams. `tls` makes the handshake of a connection.
//! - [`account`]: counts and histograms.
//! - [`input`]: requests from files of other programs. [`output`]: JSON, CSV, histograms, summary, objectives, and joining
//!   results.
//! - [`processes`]: a run of several processes.
//! - [`warning`]: what a run warns of.
//!
//! Rooms use those before them only: `plan`, `input`, `account`, `run`, `output`, `processes`.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod account;
pub mod input;
pub mod output;
pub mod plan;
pub mod processes;
pub mod run;
#[cfg(test)]
mod testing;
pub mod warning;

use std::time::SystemTime;

pub use account::seconds::Second;
use output::result::LoadResult;
pub use output::summary::print as print_summary;
use plan::options::{LoadOptions, LoadPlan};
pub use run::idle::{IdleResult, idle};
pub use run::listener::LoadListener;

/// Carries out a run, and tells `listener` of its events as they happen.
///
/// # Errors
/// A [`UsageError`](drover_usage::UsageError) for options that cannot be carried out; otherwise
/// what the kernel or the listener says.
pub fn run(options: LoadOptions, listener: &mut dyn LoadListener) -> anyhow::Result<LoadResult> {
    let plan = LoadPlan::new(options)?;
    if plan.processes > 1 && plan.process.is_none() {
        return processes::conduct(&plan, listener);
    }
    let start = SystemTime::now();
    let run = run::coordinator::conduct(&plan, listener)?;
    Ok(LoadResult::new(&plan, start, run))
}
