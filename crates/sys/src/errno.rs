//! What error numbers mean to those that may try again.

use std::io;

use rustix::io::Errno;

/// Whether an accept(2), open(2), socket(2) or connect(2) has failed because descriptors or memory have run out. The same
/// call may succeed later, or once something is closed; nothing is wrong with the file or the peer.
///
/// | error | what has run out | where the manual says it |
/// |---|---|---|
/// | `EMFILE` | the descriptors of this process (`RLIMIT_NOFILE`) | accept(2), open(2), socket(2) |
/// | `ENFILE` | the open files of the system (`fs.file-max`) | accept(2), open(2), socket(2) |
/// | `ENOBUFS` | memory for sockets, often by their own limit (tcp(7), `tcp_mem`) | accept(2), socket(2) |
/// | `ENOMEM` | memory of the kernel | accept(2), open(2), socket(2) |
///
/// connect(2) makes no descriptor, but in Linux it fails with `ENOBUFS` or `ENOMEM` too, although its page lists neither.
/// `EAGAIN` is not one of them: it says that no connection waits, or that a rename disturbed openat2(2). An error of the
/// kind `OutOfMemory` without a number, from an allocation of this process, is one.
#[must_use]
pub fn is_exhaustion(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
        || error.kind() == io::ErrorKind::OutOfMemory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_and_memory_run_out_and_nothing_else() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(is_exhaustion(&errno.into()), "{errno}");
        }
        assert!(is_exhaustion(&io::ErrorKind::OutOfMemory.into()));
        let others = [Errno::AGAIN, Errno::NOSPC, Errno::CONNREFUSED, Errno::ADDRNOTAVAIL];
        assert!(others.into_iter().all(|errno| !is_exhaustion(&errno.into())));
        assert!(!is_exhaustion(&io::Error::other("no descriptors")));
    }
}
