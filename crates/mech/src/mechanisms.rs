//! Every dispatch mechanism, and the choice among them.
//!
//! A *readiness* mechanism tells which descriptors would not block, and its user makes the transfer
//! ([`crate::readiness`], a file each). A *completion* mechanism makes the transfer itself and tells what it has done
//! (`uring/`). This file stands above both.

use sys::process::on_own_thread;

pub use crate::mechanism::{DevPollModel, Features, Kind, Mechanism, Options};
use crate::readiness::{
    devpoll, epoll, poll, rtsig, rtsig_batch, rtsig_per_fd, select, uring_poll,
};
use crate::uring;

/// Every mechanism, in the order that people list them: oldest first.
pub static ALL: &[&Mechanism] = &[
    &select::SELECT,
    &poll::POLL,
    &devpoll::DEVPOLL,
    &rtsig::RTSIG,
    &rtsig_batch::RTSIG_BATCH,
    &rtsig_per_fd::RTSIG_PER_FD,
    &epoll::EPOLL,
    &epoll::EPOLL_ET,
    &epoll::EPOLL_ONESHOT,
    &uring_poll::URING_POLL,
    &uring::URING,
];

/// The mechanism with that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Mechanism> {
    ALL.iter().copied().find(|mechanism| mechanism.name == name)
}

/// What a server or a client of so many workers takes that is told to choose: the first usable one of
/// those that measure best (see docs/performance.md and docs/load.md), none of which is ever a model.
#[must_use]
pub fn auto(workers: usize) -> Option<&'static Mechanism> {
    rings(workers).ok().or_else(auto_of_readiness)
}

/// The mechanism of [`auto`] where so many workers can have a fast ring each.
///
/// # Errors
/// The reason why not, in words for people.
pub fn rings(workers: usize) -> Result<&'static Mechanism, String> {
    // See `Mechanism::probe`.
    on_own_thread(|| uring::try_out(workers))
        .and_then(|tried| tried)
        .map(|()| &uring::URING)
        .map_err(|error| error.to_string())
}

/// The same for those who look at all of long messages, or read slowly: a ring receives what comes
/// into buffers that its connections share, and it is copied from there.
#[must_use]
pub fn auto_of_readiness() -> Option<&'static Mechanism> {
    ["epoll-et", "epoll", "poll"]
        .into_iter()
        .filter_map(by_name)
        .find(|mechanism| mechanism.probe().is_ok())
}

/// Whether it is the model of /dev/poll, which [`Options::devpoll`] is for.
#[must_use]
pub fn models_devpoll(mechanism: &Mechanism) -> bool {
    std::ptr::eq(mechanism, &devpoll::DEVPOLL)
}
