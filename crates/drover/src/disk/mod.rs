//! A slow disk, modelled: a directory seen through a FUSE file system whose reads take as long as
//! the spindles of [`model`] say.
//!
//! The page cache and the read-ahead above it are the kernel's own. Every mount is a new file system
//! to the kernel, so that it begins cold: no page, no name and no attribute is known.

mod filesystem;
pub mod model;
mod mount;
mod options;
mod turning;

pub use mount::{Mounted, obstacle};
pub use options::Options;
