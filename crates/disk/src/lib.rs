//! A model of a slow disk: a directory seen through a FUSE file system. Reads take as long as the spindles of
//! [`model`] say.
//!
//! The page cache and the read-ahead are the kernel's own. Every mount is a new file system to the kernel, so that it
//! begins cold: no page, no name and no attribute is cached.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod filesystem;
pub mod model;
mod mount;
mod options;
mod turning;

pub use mount::{Mounted, obstacle};
pub use options::DiskOptions;
