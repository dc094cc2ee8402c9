//! What several readiness mechanisms share: tables of descriptors, poll(2) entries, and the queue of signals.

pub(crate) mod descriptors;
pub(crate) mod dispatcher;
pub(crate) mod pollfd;
pub(crate) mod signal_queue;
pub(crate) mod signal_reader;
