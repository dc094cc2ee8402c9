//! Converts C's return conventions to [`std::io::Result`], for the few calls that rustix does not have.

use std::time::Duration;

#[doc(hidden)]
pub use libc;

/// Calls a libc function that returns −1 and sets `errno` on failure.
///
/// Expands to an `unsafe` call: the caller's `// SAFETY:` comment stands above the macro.
#[macro_export]
macro_rules! syscall {
    ($name:ident ( $($argument:expr),* $(,)? )) => {{
        #[allow(unused_unsafe, clippy::undocumented_unsafe_blocks, clippy::macro_metavars_in_unsafe)]
        // SAFETY: the caller's comment above the macro gives the reason for this call.
        let returned = unsafe { $crate::syscall::libc::$name($($argument),*) };
        if returned == -1 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(returned)
        }
    }};
}

/// A time-out as `struct timespec`. A time-out with too many seconds becomes the longest possible one.
#[must_use]
pub fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    }
}
