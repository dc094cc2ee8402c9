//! What Linux offers and Rust's standard library does not: one safe wrapper for each kernel facility.
//!
//! - [`socket`]: listening, connecting and sending sockets.
//! - [`errno`]: which errors say that descriptors or memory have run out.
//! - [`socket_diag`]: connections whose handshake is under way.
//! - [`ring`]: one io_uring, the parts of it that a kernel may lack, and the buffers that it receives into.
//! - [`message_socket`]: messages between programs, with descriptors.
//! - [`waker`]: ending a wait from another thread, by eventfd(2) or by a signal.
//! - [`shared_counters`]: numbers in memory that processes share.
//! - [`private_folder`]: folders in which nobody but their owner can put anything.
//! - [`process`]: CPU clocks, pinning, limits, rights, children.
//! - [`reserve`]: memory for the time when the kernel gives no more.
//! - [`tcp_table`]: the kernel's tables of TCP sockets.
//! - [`unix_listener`]: listening at the path of a unix(7) socket.
//! - [`whole_file`]: files that are written whole or not at all.
//! - [`syscall!`]: converts C's return conventions to [`std::io::Result`].
//!
//! **What it is not.** No complete binding: rustix has most system calls, and `sys` those parts and rules that Drover
//! needs beside it. Nothing here retries, waits or chooses by itself.
//!
//! ```
//! use drover_sys::waker::Waker;
//!
//! // What another thread does to end this thread's wait.
//! let waker = Waker::eventfd()?;
//! waker.wake()?;
//! assert!(waker.as_eventfd().is_some()); // readable now, for every mechanism
//! waker.drain()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A wrapper decides nothing: the crates that use `sys` choose the mechanism. `unsafe` is
//! allowed in `sys`, `mech` and `waiters`, and nowhere else in the project.
#![cfg(target_os = "linux")]

pub mod errno;
pub mod message_socket;
pub mod private_folder;
pub mod process;
pub mod reserve;
pub mod ring;
pub mod shared_counters;
pub mod socket;
pub mod socket_diag;
pub mod syscall;
pub mod tcp_table;
pub mod unix_listener;
pub mod waker;
pub mod whole_file;
pub mod zone;
