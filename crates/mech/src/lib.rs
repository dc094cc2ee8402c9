//! How a Linux server waits for I/O: every dispatch mechanism behind one
//! contract, and the coroutines that run on top of any of them.
//!
//! - [`dispatch`]: which descriptors are ready — a file per mechanism.
//! - [`accept`]: how new connections are shared among workers — a file per strategy.
//! - [`net`]: what coroutines see — connections that own their buffers, an
//!   executor, deadlines — over any mechanism.
//! - [`fileio`]: how a file's bytes reach a socket — a file per backend.
//! - [`fs`]: files beneath a root, by the kernel's own rule.
//! - [`open_pool`]: threads that open such files, for names that a disk must be asked for.
//! - [`preparation`]: ways to spare work before a file is read, as `drover mechanisms` lists them.
//! - [`inotify`]: hearing of changes in directories.
//! - [`wait_queue`]: who of many waiters is woken, by the policies of old kernels.
//!
//! The crate knows no HTTP. What it takes from the kernel without a decision of its own is in the crate
//! [`sys`].
#![cfg(target_os = "linux")]

pub mod accept;
pub mod dispatch;
pub mod fileio;
pub mod fs;
mod futex;
pub mod inotify;
pub mod key;
pub mod net;
pub mod open_pool;
mod pool;
pub mod preparation;
mod robust_lock;
pub mod wait_queue;

pub use key::Key;
