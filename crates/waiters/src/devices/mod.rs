//! What the lab does with the devices of `kernel/` that no mechanism uses (docs/kernel.md), in an emulated machine.
//!
//! - [`wait_queue`]: an open /dev/wakeq, and threads that wait in it.
//! - [`settle`]: whom an event wakes there, and what that costs (`drover lab wait-queue`).

pub mod settle;
pub mod wait_queue;
