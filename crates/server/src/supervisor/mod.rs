//! Workers as processes: who keeps them, and what one of them is.

pub(crate) mod keep;
pub(crate) mod process;
mod process_crew;
pub(crate) mod service_manager;
