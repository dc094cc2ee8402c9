//! The process that keeps its rights, and the worker processes that it keeps.

mod admin_keeper;
pub(crate) mod child;
mod heartbeat;
pub(crate) mod keep;
mod messages;
pub(crate) mod process;
mod process_crew;
mod renewal;
pub(crate) mod service_manager;
