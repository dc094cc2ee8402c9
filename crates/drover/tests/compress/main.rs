//! Black-box tests of `drover compress`: what lies beside the files of a site afterwards, and what is told.

mod ends;
mod faults;
mod harness;
mod rights;
mod selection;
mod siblings;
mod stale;
