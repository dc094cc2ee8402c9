//! What a run is asked to do: its options, where and when its requests start, what they ask, and in which order.

pub(crate) mod endpoints;
pub mod http2;
pub mod options;
pub mod order;
pub(crate) mod origin;
pub(crate) mod random;
pub mod request;
pub mod shape;
pub mod sources;
pub mod status;
pub mod target;
pub mod tls;
