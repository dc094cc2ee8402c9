//! Requests that other programs have written down. Nothing here does I/O: files that a text names are read by the
//! caller.

pub mod curl;
mod form;
pub mod har;
pub mod text;
pub mod urls;
