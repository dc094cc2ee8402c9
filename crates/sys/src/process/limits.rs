//! Resource limits of this process (getrlimit(2)), and the size of its table of descriptors.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use super::status_of;

/// A resource limit of this process; `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit that the kernel enforces now.
    pub soft: Option<u64>,
    /// How far the process may raise the soft limit without privileges.
    pub hard: Option<u64>,
}

/// `RLIMIT_NOFILE`: one more than the highest descriptor number.
#[must_use]
pub fn open_files_limit() -> Limit {
    limit(Resource::Nofile)
}

/// Raises the soft limit on descriptors to the hard one and returns the limit
/// that holds then.
///
/// # Errors
/// Errors of prlimit(2).
pub fn raise_open_files_limit() -> io::Result<Limit> {
    let Limit { hard, .. } = open_files_limit();
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })?;
    Ok(open_files_limit())
}

/// Has the kernel write no core dump of this process and of those that it starts: it would hold their private keys. The limit is one
/// byte, not none, because a program that gets core dumps through a pipe gets them at a limit of none as well (core(5)). A limit of
/// none that cannot be raised is left.
///
/// # Errors
/// Errors of prlimit(2).
pub fn write_no_core_dumps() -> io::Result<()> {
    if limit(Resource::Core).hard == Some(0) {
        return Ok(());
    }
    Ok(rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) })?)
}

/// The lowest descriptor number that is not in use. If the numbers in use have no gaps, this is how many
/// descriptors are open.
///
/// # Errors
/// `EMFILE` if all descriptors are in use, `ENOMEM`.
pub fn lowest_free_descriptor() -> io::Result<u64> {
    let lowest = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    Ok(lowest.as_raw_fd().unsigned_abs().into())
}

/// Makes room in this process' table of descriptors for `count` descriptors, or for as many as the limit
/// allows. The room takes 8 bytes for each.
///
/// The kernel enlarges a full table, to a power of two, in the call that opens the next descriptor. If
/// threads share the table, that call sleeps until no processor can be reading the old table
/// (`expand_files` in fs/file.c waits for an RCU grace period): for 5 to 16 ms, at 64 descriptors, at
/// 256, and so on. An event loop must not sleep so long; it calls this function before it begins. A child
/// made by fork(2) gets only as much room as its open descriptors need.
///
/// # Errors
/// `EMFILE` if all descriptors are in use, `ENOMEM`.
pub fn make_room_for_descriptors(count: u64) -> io::Result<()> {
    let count = open_files_limit().soft.map_or(count, |limit| limit.min(count));
    let Some(last) = count.checked_sub(1).and_then(|last| RawFd::try_from(last).ok()) else {
        return Ok(());
    };
    let any = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    // The new descriptor gets the lowest free number from `last` on.
    match rustix::io::fcntl_dupfd_cloexec(&any, last) {
        // EMFILE: all numbers from `last` on are in use, so the table has room for them.
        Ok(_) | Err(Errno::MFILE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How many descriptors `process` has open; `None` if it is gone, or belongs to another user.
#[must_use]
pub fn open_descriptors(process: u32) -> Option<u64> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
    // The list itself is read by a descriptor.
    Some(entries - u64::from(process == std::process::id()))
}

/// How many descriptors the table of `process` has room for (`FDSize` in
/// proc_pid_status(5)); `None` if there is no such process.
#[must_use]
pub fn room_for_descriptors(process: u32) -> Option<u64> {
    status_of(process, "FDSize:")
}

/// `RLIMIT_SIGPENDING`: how many signals may be queued for all processes of
/// this real user together.
#[must_use]
pub fn pending_signals_limit() -> Limit {
    limit(Resource::Sigpending)
}

/// `RLIMIT_MEMLOCK`: how many bytes this process may lock in memory. The memory of rings counts for it before Linux 5.12.
#[must_use]
pub fn locked_memory_limit() -> Limit {
    limit(Resource::Memlock)
}

/// `RLIMIT_NPROC`: how many threads this real user may have, over all processes.
#[must_use]
pub fn processes_limit() -> Limit {
    limit(Resource::Nproc)
}

pub(super) fn limit(resource: Resource) -> Limit {
    let Rlimit { current, maximum } = rustix::process::getrlimit(resource);
    Limit { soft: current, hard: maximum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_limit_can_be_raised_to_the_hard_one() {
        let raised = raise_open_files_limit().unwrap();
        assert_eq!(raised.soft, raised.hard);
        assert!(pending_signals_limit().hard.is_none_or(|hard| hard > 0));
    }

    #[test]
    fn the_table_of_descriptors_has_the_room_that_was_made() {
        let room = || room_for_descriptors(std::process::id()).unwrap();
        let limit = raise_open_files_limit().unwrap().soft.unwrap_or(u64::MAX);
        let wanted = limit.min(2 * room());
        make_room_for_descriptors(wanted).unwrap();
        assert!(room() >= wanted);
        make_room_for_descriptors(0).unwrap();
        // A count above the limit is no error. (A table for a limit of 10⁹ would take 8 GB.)
        if limit <= 1 << 20 {
            make_room_for_descriptors(u64::MAX).unwrap();
        }
    }
}
