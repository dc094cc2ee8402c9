//! How a Linux server waits for I/O: every dispatch mechanism behind one
//! contract, and the coroutines that run on top of any of them.
//!
//! - [`mechanisms`]: every dispatch mechanism as data, and the choice among them.
//! - [`readiness`]: mechanisms that tell which descriptors are ready — a file each.
//! - `uring`: the mechanism that makes the transfers itself, io_uring.
//! - [`net`]: what coroutines see — connections that own their buffers, an executor, deadlines — over any mechanism.
//! - [`accept`]: how new connections are shared among workers — a file per strategy.
//! - [`fileio`]: how a file's bytes reach a socket — a file per backend.
//! - [`files`]: files beneath a root, by the kernel's own rule; threads that open them; hearing of their changes.
//!
//! The crate knows no HTTP. What it takes from the kernel without a decision of its own is in the crate [`sys`].
#![cfg(target_os = "linux")]

pub mod accept;
pub mod fileio;
pub mod files;
pub mod key;
mod mechanism;
pub mod mechanisms;
pub mod net;
pub mod readiness;
mod thread_pool;
mod uring;

pub use key::Key;
pub use sys;
