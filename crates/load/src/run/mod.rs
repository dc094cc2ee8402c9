//! How a run is carried out: a coordinator, its workers, their connections, and one request after the other.

pub(crate) mod accept_queue;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod control;
pub(crate) mod coordinator;
pub(crate) mod exchange;
pub(crate) mod http2;
pub mod idle;
pub(crate) mod interrupts;
pub mod listener;
pub(crate) mod phases;
pub(crate) mod reader;
pub(crate) mod stall_detector;
pub(crate) mod tls;
pub(crate) mod worker;
