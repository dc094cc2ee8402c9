//! The files that a run serves: pools in the page cache, on a disk, or behind a modelled disk.

mod pool;
mod probe;
mod store;

pub use pool::{Files, Shape};
pub use probe::Gain;
pub use store::{Site, Store};
