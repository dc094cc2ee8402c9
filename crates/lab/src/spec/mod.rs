//! The experiment file, version 2: its types, its reader, its errors and its schema.

pub mod claim;
