//! The processes that the lab starts: how they are started, watched, measured and ended.
//!
//! No process outlives the lab. A child dies with the thread that started it (`PR_SET_PDEATHSIG`), even if the lab is
//! killed by SIGKILL. The children of a child do not inherit that setting; a [`Guard`] ends them.

mod cgroup;
mod child;
mod guard;
mod interrupt;
mod quota;
mod tree;

pub use cgroup::{Cgroup, Hierarchy};
pub use child::{Child, Launch, ResourceLimits, Turn, command_line};
pub use guard::Guard;
pub use interrupt::Interrupt;
pub use quota::CpuShare;
pub use tree::Tree;
