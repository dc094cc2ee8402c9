//! Clients, and the proxies in front of the server that speak for them.

pub(crate) mod client;
