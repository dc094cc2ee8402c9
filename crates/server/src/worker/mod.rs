//! A worker: its thread, the coroutine of a connection, and what it may take.

pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod thread;
