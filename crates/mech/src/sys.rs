//! The fence between C's return conventions and `io::Result`, for the few
//! calls that rustix does not have.

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
