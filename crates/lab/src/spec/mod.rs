//! The experiment file, version 2: its types, its reader, its errors and its schema.
//!
//! The types of this module are the format: the JSON Schema is derived from them, the reader checks a file
//! against that schema, and the reference in `docs/` is written from it. The files beside this one are the types;
//! `reader/` has how a file is read and checked, and the files that come with the program; `schema/` has the
//! schema and the reference.

pub mod claim;
pub mod experiment;
pub mod factor;
pub mod figure;
pub mod load;
pub mod metric;
pub mod phases;
pub mod pool;
pub mod preset;
pub mod reader;
pub mod schema;
pub mod setting;
pub mod subject;

pub use crate::document::{Fault, Faults};
pub use claim::Claim;
pub use experiment::Experiment;
pub use preset::Preset;
pub(crate) use reader::is_id;
pub(crate) use reader::made;
pub use reader::{DiskFiles, FileSource, built_in, read, read_from};
pub use subject::SubjectSpec;
