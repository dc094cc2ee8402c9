//! What an experiment measures or stands on, in a process of its own that the lab starts: waiters, pipes, a wait queue,
//! a slow disk, a cell of another experiment, or the maker of a certificate.

pub(super) mod burst;
pub(super) mod cell;
pub(super) mod certificate;
pub(super) mod child;
pub(super) mod disk;
pub(super) mod herd;
pub(super) mod pipes;
pub(super) mod wait_queue;
