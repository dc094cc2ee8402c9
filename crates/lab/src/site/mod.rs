//! The files that a run serves: pools in the page cache, on a disk, or behind a modelled disk; and the files of a
//! user's folder.

mod pool;
mod probe;
mod sampled;
mod store;

pub use pool::{PoolFiles, Shape};
pub use probe::Gain;
pub use sampled::{Bounds, SampledFiles, size_words};
pub use store::{RunSite, Store};
