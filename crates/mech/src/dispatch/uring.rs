//! `uring`: io_uring as a completion mechanism.
//!
//! The kernel does the accepting, receiving and sending and reports what it has
//! done, so there is no readiness to ask for: this file holds the record and
//! the trial, and `net/completion.rs` the work.

use std::io;

use super::{Features, Kind, Mechanism, Options};
use crate::net::completion;

/// io_uring, completions.
pub(super) static URING: Mechanism = Mechanism {
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
    completion::ring(&Options::default()).map(drop)
}

/// Whether it can be set up, and defers its completions, without which it measures worse than epoll.
/// To be asked on a thread of its own, as a probe.
pub(super) fn is_fast() -> bool {
    completion::ring(&Options::default()).is_ok_and(|(ring, _buffers)| ring.defers())
}
