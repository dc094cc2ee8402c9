//! What several accept strategies share: a thread that accepts, a wait queue, and a lock that the kernel
//! releases when its holder dies.

pub(crate) mod accept_thread;
mod futex;
mod interrupt;
pub(crate) mod robust_lock;
pub mod wait_queue;
