//! Black-box tests of `drover serve`: the binary as a child on a free port, raw sockets as clients.
//!
//! What could differ between dispatch mechanisms is tested on each of them (`matrix.rs`); HTTP, which
//! is the same code for all, on one.

mod accepting;
mod access_log;
mod activation;
mod admin;
mod allowed_hosts;
mod authentication;
mod cache;
mod conditions;
mod config;
mod connections;
mod cors;
mod counters;
mod deploy;
mod disk;
mod early_hints;
mod error_pages;
mod explaining;
mod faults;
mod files;
mod hanging;
mod harness;
#[cfg(target_arch = "x86_64")]
mod hijacked;
mod hosts;
mod hung_mounts;
mod limits;
mod listings;
mod logging;
mod matrix;
mod memory;
mod methods;
mod names;
mod no_memory;
mod opening;
mod password_floods;
mod paths;
mod pipelines;
mod precompressed;
mod private_files;
mod processes;
mod proxies;
mod ranges;
mod reloading;
mod request_limits;
mod revalidating;
mod rules;
mod sandbox;
mod server_timing;
mod service;
mod signals;
mod soak;
mod spinning;
mod stopping;
mod symlinks;
mod taking_over;
mod threads;
mod time_outs;
mod trace;
mod unix_sockets;
mod usage;
mod user;
mod validators;
mod zones;
