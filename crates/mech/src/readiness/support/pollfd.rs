//! `struct pollfd` and its bits, which poll(2), the /dev/poll model, a signal's
//! `si_band` and io_uring's poll have in common.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::readiness::{Interest, Ready};
use sys::syscall;

/// `POLLRDHUP` is asked for only together with reading, because a half-close
/// would otherwise be reported at each wait without end.
pub(crate) fn bits(interest: Interest) -> i16 {
    let mut bits = 0;
    if interest.contains(Interest::READABLE) {
        bits |= libc::POLLIN | libc::POLLRDHUP;
    }
    if interest.contains(Interest::WRITABLE) {
        bits |= libc::POLLOUT;
    }
    bits
}

/// `POLLNVAL` (not an open descriptor) counts as an error: it is one that the
/// next system call on the descriptor returns.
pub(crate) fn ready(bits: i16) -> Ready {
    let mut ready = Ready::empty();
    if bits & libc::POLLIN != 0 {
        ready |= Ready::READABLE;
    }
    if bits & libc::POLLOUT != 0 {
        ready |= Ready::WRITABLE;
    }
    if bits & libc::POLLRDHUP != 0 {
        ready |= Ready::HANGUP | Ready::READABLE;
    }
    if bits & libc::POLLHUP != 0 {
        ready |= Ready::HANGUP | Ready::READABLE | Ready::WRITABLE;
    }
    if bits & (libc::POLLERR | libc::POLLNVAL) != 0 {
        ready |= Ready::ERROR | Ready::READABLE | Ready::WRITABLE;
    }
    ready
}

/// ppoll(2) with the caller's signal mask: how many entries have `revents`.
/// The ready entries are then found by a walk over the array.
///
/// # Errors
/// `EINVAL` if there are more entries than `RLIMIT_NOFILE`, `ENOMEM`. `EINTR` is
/// no error but "none".
pub(crate) fn wait(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(syscall::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and its length are one live slice; the time-out is null
    // or outlives the call; a null mask leaves the mask alone.
    match syscall!(ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, timeout, std::ptr::null())) {
        Ok(count) => Ok(count as usize),
        Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => Ok(0),
        Err(error) => Err(error),
    }
}
