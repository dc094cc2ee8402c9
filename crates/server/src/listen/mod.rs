//! The addresses of a server, bound, and how their connections come to workers.

pub(crate) mod bind;
pub(crate) mod sockets;
