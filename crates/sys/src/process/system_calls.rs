//! A filter of the system calls that a process may make: seccomp(2).

use std::io;

use rustix::io::Errno;

use crate::syscall;

/// Filters the system calls of the calling thread, or of all threads of the process, and of what they start, for good.
/// `program` is a classic BPF program over `struct seccomp_data`.
///
/// The filter does not switch on mitigations of processor faults (`SECCOMP_FILTER_FLAG_SPEC_ALLOW`). Linux before 5.16 does
/// so for every filtered process otherwise, and makes all of its code slower.
///
/// # Errors
/// `ENOSYS` or `EINVAL`: the kernel has no filters (`CONFIG_SECCOMP_FILTER`), or is older than 4.17. `EPERM` or `EACCES`: an
/// outer filter forbids this one, or the thread may gain rights ([`forbid_new_privileges`](super::forbid_new_privileges)).
/// `Other`: a thread has another filter than this one.
pub fn filter_system_calls(program: &[libc::sock_filter], all_threads: bool) -> io::Result<()> {
    let len = program.len().try_into().map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let threads = if all_threads { libc::SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
    let flags = threads | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, which outlives the call, and does not write to it.
    let unlike = syscall!(syscall(
        libc::SYS_seccomp,
        libc::SECCOMP_SET_MODE_FILTER,
        flags,
        &raw const program
    ))?;
    match unlike {
        0 => Ok(()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_becomes_no_filter() {
        let error = filter_system_calls(&[], true).unwrap_err();
        assert!(Errno::from_io_error(&error).is_some(), "{error}");
    }
}
