//! Every dispatch mechanism, and the choice among them.
//!
//! A *readiness* mechanism reports which descriptors would not block, and its user makes the transfer
//! ([`crate::readiness`], a file each). A *completion* mechanism makes the transfer itself and reports what it has done
//! (`uring/`). This file uses both; neither uses this file.

use std::path::Path;

use drover_sys::process::on_own_thread;

pub use crate::mechanism::{DevPollModel, Features, Mechanism, MechanismKind, MechanismOptions};
use crate::readiness::support::signal_device;
use crate::readiness::{devepoll, devpoll, epoll, poll, rtsig, select, uring_poll};
use crate::uring;

/// Every mechanism, the oldest first.
pub static ALL: &[&Mechanism] = &[
    &select::SELECT,
    &poll::POLL,
    &devpoll::DEVPOLL,
    &rtsig::RTSIG,
    &rtsig::RTSIG_BATCH,
    &rtsig::RTSIG_PER_FD,
    &devepoll::DEVEPOLL,
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

/// The mechanism that `auto` means for a server or a client of `workers` workers: the first usable one of
/// those that are fastest (docs/performance.md and docs/load.md). Never a model.
#[must_use]
pub fn auto(workers: usize) -> Option<&'static Mechanism> {
    rings(workers).ok().or_else(auto_of_readiness)
}

/// `uring`, if `workers` workers can have a fast ring each.
///
/// # Errors
/// The reason why they cannot, as a sentence for users.
pub fn rings(workers: usize) -> Result<&'static Mechanism, String> {
    // On a thread of its own, because a closed ring interrupts its thread once more.
    on_own_thread(|| uring::try_out(workers))
        .and_then(|tried| tried)
        .map(|()| &uring::URING)
        .map_err(|error| error.to_string())
}

/// The readiness mechanism that `auto` means, for a client that reads every byte of long messages, or that
/// reads slowly. A ring is slower for it: bytes that a ring receives are copied from its shared buffers.
#[must_use]
pub fn auto_of_readiness() -> Option<&'static Mechanism> {
    ["epoll-et", "epoll", "poll"]
        .into_iter()
        .filter_map(by_name)
        .find(|mechanism| mechanism.probe().is_ok())
}

/// A mechanism that a device of the kernel makes real (`kernel/` has the modules).
struct DeviceMechanism {
    mechanism: &'static Mechanism,
    device: &'static str,
    /// What it does over the device, in a line.
    summary: &'static str,
}

static DEVICES: [DeviceMechanism; 4] = [
    DeviceMechanism {
        mechanism: &devpoll::DEVPOLL,
        device: devpoll::PATH,
        summary: "/dev/poll, by a kernel module: a set in the kernel, results in mapped memory",
    },
    DeviceMechanism {
        mechanism: &rtsig::RTSIG_BATCH,
        device: signal_device::PATH,
        summary: "real-time signals, many per sigtimedwait4(), by a kernel module",
    },
    DeviceMechanism {
        mechanism: &rtsig::RTSIG_PER_FD,
        device: signal_device::PATH,
        summary: "signal-per-fd: at most one queued signal for a descriptor, by a kernel module",
    },
    DeviceMechanism {
        mechanism: &devepoll::DEVEPOLL,
        device: devepoll::PATH,
        summary: devepoll::DEVEPOLL.summary,
    },
];

/// The record of `mechanism`, if this kernel has its device.
fn over_device(mechanism: &Mechanism) -> Option<&'static DeviceMechanism> {
    let found = DEVICES.iter().find(|it| std::ptr::eq(it.mechanism, mechanism))?;
    Path::new(found.device).exists().then_some(found)
}

/// The device that `mechanism` uses, in place of its model if it has one, since this kernel has the device.
#[must_use]
pub fn device_of(mechanism: &Mechanism) -> Option<&'static str> {
    over_device(mechanism).map(|it| it.device)
}

/// What `mechanism` does here, in a line: [`Mechanism::summary`], or what it does over its device.
#[must_use]
pub fn summary(mechanism: &Mechanism) -> &'static str {
    over_device(mechanism).map_or(mechanism.summary, |it| it.summary)
}

/// The system calls that `mechanism` waits with here, and no others: [`Mechanism::waits_with`], or that of its device.
#[must_use]
pub fn waits_with(mechanism: &Mechanism) -> &'static [&'static str] {
    if device_of(mechanism).is_some() { &["ioctl"] } else { mechanism.waits_with }
}

/// Whether `mechanism` is a model of an interface that this kernel does not have.
#[must_use]
pub fn is_model(mechanism: &Mechanism) -> bool {
    mechanism.features.contains(Features::MODEL) && device_of(mechanism).is_none()
}

/// Whether `mechanism` is /dev/poll or its model, which alone uses [`MechanismOptions::devpoll`].
#[must_use]
pub fn models_devpoll(mechanism: &Mechanism) -> bool {
    std::ptr::eq(mechanism, &devpoll::DEVPOLL)
}
