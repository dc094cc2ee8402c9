//! What workers have done: counted in shared memory, told at the end and at SIGUSR1.

pub(crate) mod counters;
pub(crate) mod history;
pub(crate) mod response_times;
pub(crate) mod statistics;
