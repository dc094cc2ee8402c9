//! The experiment file, version 2: its types, its reader, its errors and its schema.
//!
//! The types of this module are the format: the JSON Schema is derived from them, the reader checks a file
//! against that schema, and the reference in `docs/` is written from it.

pub mod built_in;
mod check;
pub mod claim;
mod each;
mod embedded;
pub mod experiment;
pub mod factor;
pub mod figure;
pub mod load;
pub(crate) mod made;
pub mod metric;
pub mod phases;
pub mod pool;
pub mod preset;
mod read;
pub mod reference;
pub mod schema;
pub mod setting;
pub mod subject;
mod walk;

pub use crate::document::{Fault, Faults};
pub(crate) use check::is_id;
pub use claim::Claim;
pub use experiment::Experiment;
pub use preset::Preset;
pub use read::{Disk, Files, read, read_from};
pub use subject::Subject;
