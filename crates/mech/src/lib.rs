//! How a Linux server waits for I/O: every dispatch mechanism behind one
//! contract, and the coroutines that run on top of any of them.
//!
#![doc = include_str!("../README.md")]
//!
//! # More than coroutines
//!
//! A worker with several listeners, services, deadlines of its own or files is made of its parts: [`net::Net`],
//! [`net::Listener`], [`net::Executor`]; `examples/hello.rs` is the smallest. A program that makes the transfers without
//! coroutines, and only asks which descriptors are ready, takes a [`readiness::Dispatcher`]; `examples/echo.rs` shows what
//! each feature of a mechanism asks of its user.
//!
//! # The modules
//!
//! - [`mechanisms`]: every dispatch mechanism as data, and the choice among them.
//! - [`readiness`]: mechanisms that tell which descriptors are ready — a file each.
//! - `uring`: the mechanism that makes the transfers itself, io_uring.
//! - [`net`]: what coroutines see — connections that own their buffers, an executor, deadlines — over any mechanism.
//! - [`accept`]: how new connections are shared among workers — a file per strategy.
//! - [`fileio`]: how a file's bytes reach a socket — a file per backend.
//! - [`files`]: files beneath a root, by the kernel's own rule; threads that open them; hearing of their changes.
//!
//! What the crate takes from the kernel without a decision of its own is in the crate `drover_sys`. The types of that crate
//! that users need are here too: [`accept::Address`], [`accept::ListenOptions`], [`readiness::Waker`].
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
