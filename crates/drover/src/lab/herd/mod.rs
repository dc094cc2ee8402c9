//! Herds: what a connection costs when many wait for it.
//!
//! The crate `waiters` measures it, in a process of its own (`drover lab herd`); [`executor`] starts that
//! process, and [`limits`] tells how many waiters there may be here.

pub mod executor;
pub mod limits;

pub use waiters::connects::Record;
