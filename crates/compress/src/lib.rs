//! Compressed siblings of a site's files, for servers that send them: FILE.gz, FILE.br and FILE.zst beside FILE.
//!
//! A run has three steps: `walk.rs` finds files by name; `siblings::inspect` opens each and removes siblings that hold old content;
//! `siblings::write` writes those that are missing, the largest files first. Every file is opened beneath the root by the rule of the
//! server, and written under a hidden name first. Others may write to the site meanwhile, and root may run this: names are looked up
//! in open folders (`folder.rs`), and what they stand for is compared before it is changed.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod encode;
mod folder;
mod levels;
mod options;
mod original;
mod run;
mod select;
mod siblings;
#[cfg(test)]
mod swaps;
mod temporary;
mod threads;
mod walk;

pub use levels::{CompressionLevels, parse_coding, short_name};
pub use options::CompressOptions;
pub use run::{CompressEvent, compress};
pub use select::{FileSelection, parse_pattern};
pub use siblings::SiblingOutcome;
pub use walk::LeftOut;
