//! The fence between C's return conventions and `io::Result`, for the few
//! calls that rustix does not have.

use std::time::Duration;

/// Calls a libc function that returns −1 and sets `errno` on failure.
///
/// Expands to an `unsafe` call: the caller's `// SAFETY:` comment stands above
/// the macro.
macro_rules! syscall {
    ($name:ident ( $($argument:expr),* $(,)? )) => {{
        #[allow(unused_unsafe, clippy::undocumented_unsafe_blocks)]
        let returned = unsafe { libc::$name($($argument),*) };
        if returned == -1 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(returned)
        }
    }};
}
pub(crate) use syscall;

/// A time-out as C has it; one that C cannot hold is for ever all the same.
pub(crate) fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    }
}
