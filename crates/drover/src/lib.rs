//! Drover serves files, loads servers, and measures which way of waiting for I/O wins on a machine.
//!
//! This library is the binary's inside: the flags and help in [`cli`]. It is glue, and nothing for other programs: those use the
//! crates `server`, `load`, `compress`, `mech` and `http1`.
//!
//! ```console
//! $ drover serve public
//! $ drover load http://127.0.0.1:8080/
//! $ drover lab
//! ```
#![forbid(unsafe_code)]
// A closed pipe or terminal is an error to be handled, and the print macros panic on it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;

/// When the kernel gives no more memory, a server ends connections, not itself.
#[global_allocator]
static ALLOCATOR: drover_sys::reserve::ReserveAllocator = drover_sys::reserve::ReserveAllocator;
