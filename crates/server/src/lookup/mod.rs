//! From a path to a file: opened at once or by another thread, kept, watched.

pub mod cache;
pub(crate) mod candidates;
pub(crate) mod entry;
pub(crate) mod files;
pub(crate) mod kept;
pub mod listings;
pub(crate) mod packed_head;
pub(crate) mod pending;
pub(crate) mod revalidate;

pub(crate) mod watch;
