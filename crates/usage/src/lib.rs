//! Values as users write them on command lines and in files: lengths of time, amounts of memory, counts;
//! [`UsageError`], the error for a command that cannot be carried out, and [`printable`] text.
//!
//! Text in, values out: no I/O, and no knowledge of the commands that use it.
//!
//! ```
//! use std::time::Duration;
//!
//! assert_eq!(drover_usage::duration::parse("1.5m").unwrap(), Duration::from_secs(90));
//! assert!(drover_usage::duration::parse("1 fortnight").is_err());
//! ```
#![forbid(unsafe_code)]

pub mod count;
pub mod duration;
mod error;
pub mod size;
mod terminal;

pub use error::UsageError;
pub use terminal::{escaped, is_command, printable};
