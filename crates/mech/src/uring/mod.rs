//! `uring`: io_uring as a completion mechanism.
//!
//! The kernel accepts, receives and sends, and reports what it has done; there is no
//! readiness to ask for. This file has the mechanism's record and its probe;
//! `driver.rs` does the work.

use std::io;

use crate::mechanism::{Features, Mechanism, MechanismKind, MechanismOptions};
use drover_sys::ring::retry_on_enomem;

mod accept;
mod discard;
mod driver;
mod in_flight;
mod receive;
mod send;
mod state;

pub(crate) use state::CompletionDriver;

/// The record of `uring`: io_uring, completions.
pub(crate) static URING: Mechanism = Mechanism {
    name: "uring",
    summary: "io_uring as completions: multishot accept and receive, provided buffers, one call per turn",
    features: Features::KERNEL_SET
        .union(Features::REPORTS_HANGUP)
        .union(Features::COMPLETION)
        .union(Features::EXCLUSIVE)
        .union(Features::THREAD_BOUND),
    waits_with: &["io_uring_enter"],
    kind: MechanismKind::Completion { probe },
};

/// Sets up a ring of the default size with all that the driver needs. The size matters: a ring may fail
/// with `ENOMEM` where its memory counts as locked memory.
fn probe() -> io::Result<()> {
    retry_on_enomem(|| state::ring(&MechanismOptions::default())).map(drop)
}

/// How many rings [`try_out`] opens at most. A process that may have so many has no tight limit.
const MOST_TRIED: usize = 256;

/// Checks whether `workers` rings can exist at once, and whether they defer their completions: rings that
/// do not defer are slower than epoll. To be called on a thread of its own, because a closed ring
/// interrupts its thread once more.
pub(crate) fn try_out(workers: usize) -> io::Result<()> {
    let make = |_| state::ring(&MechanismOptions::default());
    let rings =
        retry_on_enomem(|| (0..workers.min(MOST_TRIED)).map(make).collect::<io::Result<Vec<_>>>())?;
    if rings.iter().all(|made| made.ring.defers()) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "completions are not deferred before Linux 6.1"))
}
