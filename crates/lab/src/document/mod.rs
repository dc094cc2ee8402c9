//! TOML files with precise fault messages: experiments, and the configuration of a server.
//!
//! A document is read into a tree ([`Node`]). Every key and value of the tree has its location, so that a check can
//! report each fault with file, line and column ([`Fault`]), and for an unknown name the nearest known name
//! ([`suggestion`]).

mod fault;
mod node;

pub use fault::{Fault, Faults, Location, SourceText, suggestion};
pub(crate) use fault::{listed, nearest};
pub use node::{KeyEntry, Node, Type, Value};

/// A text as a TOML string, in quotes.
#[must_use]
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
