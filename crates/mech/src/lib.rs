//! How a Linux server waits for I/O: every dispatch mechanism behind one
//! contract, and the coroutines that run on top of any of them.
//!
//! - [`dispatch`]: which descriptors are ready — a file per mechanism.
//! - [`waker`]: ending a wait from another thread.
//!
//! The crate knows no HTTP. It holds every system call and every `unsafe`
//! block of the project.
#![cfg(target_os = "linux")]

pub mod dispatch;
pub mod key;
mod sys;
pub mod waker;

pub use key::Key;
