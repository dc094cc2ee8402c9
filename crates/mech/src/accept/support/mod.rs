//! What several accept strategies share: a thread that accepts, a wait queue, a lock that outlives its holder.

pub(crate) mod accept_thread;
mod futex;
mod interrupt;
pub(crate) mod robust_lock;
pub mod wait_queue;
