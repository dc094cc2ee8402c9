//! What users write on command lines and in files: lengths of time, amounts of memory, counts; and the error for what
//! cannot be carried out.
//!
//! Values in, values out: no I/O, and nothing of the commands that read them.
#![forbid(unsafe_code)]

pub mod count;
pub mod duration;
mod error;
pub mod size;

pub use error::UsageError;
