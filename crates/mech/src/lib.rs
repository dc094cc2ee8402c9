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
//! - [`process`]: CPU clocks, pinning, limits, children.
//! - [`shared`]: numbers in memory that processes share.
//! - [`socket`]: listening and connecting sockets.
//! - [`wait_queue`]: who of many waiters is woken, by the policies of old kernels.
//! - [`waker`]: ending a wait from another thread.
//!
//! The crate knows no HTTP. It holds every system call and every `unsafe`
//! block of the project, but for those that only the lab needs: these are in the
//! crate `waiters`.
#![cfg(target_os = "linux")]

pub mod accept;
mod buffer_ring;
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
pub mod process;
mod ring;
mod ring_parts;
mod robust_lock;
pub mod shared;
pub mod socket;
mod sys;
pub mod wait_queue;
pub mod waker;

pub use key::Key;
