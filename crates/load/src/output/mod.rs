//! The output of a run: a JSON result, tables, histograms, a summary, and its progress.

pub mod csv;
pub mod hdr;
pub mod http2;
pub mod merge;
pub mod objectives;
pub mod progress;
pub(crate) mod redact;
pub mod result;
pub(crate) mod summary;
pub mod tls;
mod warnings;
