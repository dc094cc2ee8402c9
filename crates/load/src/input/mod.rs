//! Requests from files of other programs: lists of URLs, HAR files, curl commands.

pub mod curl;
pub mod har;
pub mod urls;
