//! The lab's kernel part: threads and processes that wait in the kernel while the lab measures, and the
//! instruments that observe them.
//!
//! - [`kind`]: the ways in which a thread or a process waits for connections, as data.
//! - [`group`]: many waiters of one kind on one listening socket.
//! - [`connects`]: what a connection costs a group of waiters (`drover lab herd`).
//! - [`child`]: a server of processes that block in accept(2) (`drover lab child`).
//! - [`observer`]: finds the moment when every waiter of a group sleeps again.
//! - [`sched_trace`]: which threads are woken and fall asleep, from the scheduler's tracepoints.
//! - [`pipes`]: what an event costs a thread that waits for many pipes (`drover lab pipes`).
//! - [`devices`]: /dev/wakeq, and what an event costs its waiters (`drover lab wait-queue`).
//! - [`pinned_pages`]: bytes of a file that stay in memory.
//!
//! **What it is not.** No server but that one: a waiter takes a connection, closes it and waits again. Servers wait by the mechanisms
//! of the crate `mech`.
//!
//! ```
//! let kind = drover_waiters::kind::by_name("exclusive").expect("one of drover_waiters::kind::ALL");
//! assert!(!kind.model && kind.may_be_processes());
//! println!("{}: {}", kind.name, kind.summary);
//! ```
//!
//! System calls that only the lab makes, and their `unsafe` blocks, are in this crate.
#![cfg(target_os = "linux")]

mod accept_ring;
pub mod child;
pub mod connects;
mod counters;
pub mod devices;
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
