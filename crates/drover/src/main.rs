//! The `drover` binary.
#![forbid(unsafe_code)]
fn main() {}
