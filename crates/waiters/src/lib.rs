//! The lab's kernel part: what waits in the kernel while the lab measures, and what the lab sees of it.
//!
//! - [`kind`]: the ways in which a thread or a process waits for connections, as data.
//! - [`group`]: many waiters of one kind on one listening socket.
//! - [`connects`]: what a connection costs such a group (`drover lab herd`).
//! - [`observer`]: when every waiter of a group sleeps again.
//! - [`sched_trace`]: which threads are woken and fall asleep, from the scheduler's tracepoints.
//! - [`pipes`]: what an event costs a thread that waits for many pipes (`drover lab pipes`).
//! - [`pinned_pages`]: bytes of a file that stay in memory.
//!
//! The crate stands beside `mech` and uses its public functions; system calls that only the lab makes,
//! and the `unsafe` blocks that these need, are here.
#![cfg(target_os = "linux")]

mod accept_ring;
pub mod connects;
mod counters;
mod fork;
pub mod group;
pub mod kind;
mod model;
pub mod observer;
pub mod options;
pub mod pinned_pages;
pub mod pipes;
pub mod sched_trace;
mod waiter;

pub use group::WaiterGroup;
pub use kind::WaiterKind;
