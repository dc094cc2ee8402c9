//! Drover serves files, loads servers, and measures which way of waiting for I/O wins on a machine.
//!
//! This library is the binary's inside: flags in [`cli`], and one module per face.
#![forbid(unsafe_code)]
// A closed pipe or terminal is an error to be handled, and the print macros panic on it.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;
pub mod disk;
pub mod trace_report;
