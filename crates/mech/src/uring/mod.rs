//! `uring`: io_uring as a completion mechanism.
//!
//! The kernel does the accepting, receiving and sending and reports what it has
//! done, so there is no readiness to ask for: this file holds the record and
//! the trial, and `net/completion.rs` the work.

use std::io;

use crate::mechanism::{Features, Kind, Mechanism, Options};
use sys::ring::retry_on_enomem;

mod accept;
mod discard;
mod driver;
mod in_flight;
mod receive;
mod send;
mod state;

pub(crate) use state::CompletionDriver;

/// io_uring, completions.
pub(crate) static URING: Mechanism = Mechanism {
    name: "uring",
    summary: "io_uring as completions: multishot accept and receive, provided buffers, one call per turn",
    features: Features::KERNEL_SET
        .union(Features::REPORTS_HANGUP)
        .union(Features::COMPLETION)
        .union(Features::EXCLUSIVE)
        .union(Features::THREAD_BOUND),
    waits_with: &["io_uring_enter"],
    kind: Kind::Completion { probe },
};

/// Sets up what the driver needs, as large as it is by default: memory may be short where it counts
/// as locked.
fn probe() -> io::Result<()> {
    retry_on_enomem(|| state::ring(&Options::default())).map(drop)
}

/// Who may have so many has no narrow limit.
const MOST_TRIED: usize = 256;

/// Sets up so many at once, and sees whether they defer their completions, without which they measure
/// worse than epoll. To be asked on a thread of its own, as a probe.
pub(crate) fn try_out(workers: usize) -> io::Result<()> {
    let make = |_| state::ring(&Options::default());
    let rings =
        retry_on_enomem(|| (0..workers.min(MOST_TRIED)).map(make).collect::<io::Result<Vec<_>>>())?;
    if rings.iter().all(|made| made.ring.defers()) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "completions are not deferred before Linux 6.1"))
}
