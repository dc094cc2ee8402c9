//! `struct pollfd` and the bits of its events. poll(2), the /dev/poll model, `si_band` of a signal and the
//! poll requests of io_uring use these bits.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::readiness::{Interest, Ready};
use drover_sys::syscall;

/// The bits for an interest. `POLLRDHUP` is set only together with `POLLIN`: otherwise each wait would report
/// a half-close, even to an owner that does not read.
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

/// The events for the kernel's bits. `POLLNVAL` (the descriptor is not open) counts as an error, because the
/// next system call on the descriptor fails with `EBADF`.
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

/// The bytes of entries, for write(2) to a device.
pub(crate) fn as_bytes(entries: &[libc::pollfd]) -> &[u8] {
    // SAFETY: a pollfd has no padding, and any of its bytes may be read.
    unsafe { std::slice::from_raw_parts(entries.as_ptr().cast(), size_of_val(entries)) }
}

/// For so many entries a ppoll(2) that does not sleep needs no memory: the kernel copies them to its stack
/// (`POLL_STACK_ALLOC` in fs/select.c).
const ON_STACK: usize = 30;

/// ppoll(2) without a change of the signal mask. Returns how many entries have `revents`; the caller finds
/// these entries in the array. Returns 0 after `EINTR`. Without memory for all entries at once, a few are asked at a time,
/// so that no event is lost: mechanisms that must ask a descriptor once in a while do not fail.
///
/// # Errors
/// `EINVAL`: there are more entries than `RLIMIT_NOFILE`. `ENOMEM`: no entry is ready, and there is no memory to sleep.
pub(crate) fn wait(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    match wait_for_all(set, timeout) {
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
            let mut count = 0;
            for some in set.chunks_mut(ON_STACK) {
                count += wait_for_all(some, Some(Duration::ZERO))?;
            }
            match count == 0 && timeout != Some(Duration::ZERO) {
                true => Err(error),
                false => Ok(count),
            }
        }
        waited => waited,
    }
}

fn wait_for_all(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(syscall::timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: pointer and length come from one slice; the time-out is null or outlives the call; a null mask
    // means no change.
    match syscall!(ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, timeout, std::ptr::null())) {
        Ok(count) => Ok(count as usize),
        Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => Ok(0),
        Err(error) => Err(error),
    }
}
