//! A worker: its thread, the coroutine of a connection, and what it may take.

pub(crate) mod addresses;
pub(crate) mod clock;
pub(crate) mod connection;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod requests;
pub(crate) mod spin;
pub(crate) mod thread;
