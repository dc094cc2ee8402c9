//! Files in TOML whose every fault is told with its place: experiments, and the configuration of a server.
//!
//! A document is read into a tree ([`Node`]) whose keys and values know where they stand, so that whoever
//! checks it says of each fault its file, line and column ([`Fault`]), and of an unknown name the nearest
//! known one ([`suggestion`]).

mod fault;
mod node;

pub use fault::{Fault, Faults, Place, Source, suggestion};
pub(crate) use fault::{listed, nearest};
pub use node::{Entry, Node, Type, Value};

/// A text as TOML has it, in quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
