//! The experiment file, version 2: its types, its reader, its errors and its schema.
//!
//! The types of this module are the format: the JSON Schema is derived from them, the reader checks a file
//! against that schema, and the reference in `docs/` is written from it.

pub mod claim;
pub mod experiment;
pub mod factor;
pub mod figure;
pub mod load;
pub mod metric;
pub mod phases;
pub mod pool;
pub mod preset;
pub mod setting;
pub mod subject;

pub use claim::Claim;
pub use experiment::Experiment;
pub use preset::Preset;
pub use subject::Subject;
