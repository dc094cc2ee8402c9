//! What several readiness mechanisms share: a table by descriptor, `struct pollfd`, the queue of signals, and
//! the dispatcher that adds a waker.

pub(crate) mod descriptors;
pub(crate) mod dispatcher;
pub(crate) mod pollfd;
pub(crate) mod siginfo;
pub(crate) mod signal_device;
pub(crate) mod signal_queue;
pub(crate) mod signal_reader;
