//! A worker: the coroutines that it runs, its time and deadlines, how other threads reach it, and a thread with all of it.

pub(in crate::net) mod executor;
pub(in crate::net) mod remote;
pub(in crate::net) mod turn_time;
pub(in crate::net) mod wheel;
pub(in crate::net) mod worker_clock;
pub(in crate::net) mod worker_thread;
