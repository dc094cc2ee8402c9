//! Sockets that a service manager has opened for the process: sd_listen_fds(3).

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::syscall;

/// The variables by which a service manager tells of sockets.
pub const VARIABLES: [&str; 3] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// The number of the first socket; the others follow.
const FIRST: RawFd = 3;

/// Takes the descriptors that a service manager has passed to this process, in their order: none if there is no manager,
/// or if it means another process. They can be taken once. Call this function before other threads start programs, which
/// would inherit the descriptors.
///
/// # Errors
/// `EBADF` if one of them is not open; `InvalidInput` for numbers that cannot be read, and for a descriptor that this process
/// has opened itself, so that no manager has passed it. Nothing is taken then.
pub fn passed_sockets() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| match env::var(name) {
        Ok(text) => text.parse::<u32>().map(Some).map_err(|_| io::ErrorKind::InvalidInput.into()),
        Err(_) => io::Result::Ok(None),
    };
    let is_meant = number("LISTEN_PID")? == Some(std::process::id());
    let count = number("LISTEN_FDS")?.filter(|_| is_meant).unwrap_or(0);
    let count = RawFd::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
    if count == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    // What came with the exec cannot be closed by an exec, and everything that this process opens is (O_CLOEXEC).
    let check = |number: RawFd| {
        // SAFETY: fcntl with F_GETFD takes integers and touches no memory.
        match syscall!(fcntl(number, libc::F_GETFD))? & libc::FD_CLOEXEC {
            0 => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("LISTEN_FDS says {count}, and descriptor {number} was not passed"),
            )),
        }
    };
    (FIRST..FIRST.saturating_add(count)).try_for_each(check)?;
    let take = |number: RawFd| {
        // SAFETY: fcntl with F_SETFD takes integers and touches no memory. The descriptor is this process's to use: the
        // manager has said so in the environment, which safe code cannot change.
        syscall!(fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC))?;
        // SAFETY: the descriptor is open, as fcntl has just found. It came with the exec, so nobody in this process owns it
        // unless it was taken here before, which `TAKEN` excludes.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    };
    (FIRST..FIRST.saturating_add(count)).map(take).collect()
}
