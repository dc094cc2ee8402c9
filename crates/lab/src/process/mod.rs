//! The processes that the lab starts: how they are started, watched, billed and ended.
//!
//! No process outlives the lab. A child dies with the thread that started it (`PR_SET_PDEATHSIG`), which
//! covers SIGKILL of the lab; the children of a child do not inherit that setting, so a [`Guard`] ends
//! those.

mod cgroup;
mod child;
mod guard;
mod interrupt;
mod tree;

pub use cgroup::{Cgroup, Hierarchy};
pub use child::{Child, Launch, Limits, command_line};
pub use guard::Guard;
pub use interrupt::Interrupt;
pub use tree::Tree;
