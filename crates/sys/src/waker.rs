//! Ending another thread's wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

use crate::syscall;

/// Ends the wait of the dispatcher it belongs to, from any thread.
///
/// A wake that comes while the dispatcher is not waiting ends its next wait;
/// several wakes before that are one.
#[derive(Debug)]
pub struct Waker(WakeMethod);

#[derive(Debug)]
enum WakeMethod {
    /// A counter that is readable while it is not zero (eventfd(2)).
    Eventfd(OwnedFd),
    /// A signal to one thread: an eventfd has no `fasync` method, so `O_ASYNC`
    /// on it does nothing and mechanisms on signals need this.
    Signal { thread: libc::pid_t, number: libc::c_int },
}

impl Waker {
    /// A waker with an eventfd of its own, which the mechanism watches for reading.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM` (eventfd(2)).
    pub fn eventfd() -> io::Result<Waker> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(WakeMethod::Eventfd(fd)))
    }

    /// A waker that sends signal `number`, which `thread` has blocked and
    /// waits for: a standard signal. A real-time one would be refused when the
    /// queue is full, just when a wake is needed most; a standard one is
    /// delivered all the same, without its siginfo.
    pub fn signal(thread: libc::pid_t, number: libc::c_int) -> Waker {
        Waker(WakeMethod::Signal { thread, number })
    }

    /// The eventfd, if this waker has one.
    pub fn as_eventfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            WakeMethod::Eventfd(fd) => Some(fd.as_fd()),
            WakeMethod::Signal { .. } => None,
        }
    }

    /// Ends the wait; where nobody waits any more, does nothing.
    ///
    /// # Errors
    /// What the kernel says; no error is known to happen.
    pub fn wake(&self) -> io::Result<()> {
        match &self.0 {
            WakeMethod::Eventfd(fd) => match rustix::io::write(fd, &1u64.to_ne_bytes()) {
                // The counter is at its maximum: it is readable, which is all we want.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            },
            WakeMethod::Signal { thread, number } => {
                let process = rustix::process::getpid().as_raw_nonzero().get();
                // SAFETY: tgkill takes three integers and touches no memory of ours.
                match syscall!(syscall(libc::SYS_tgkill, process, *thread, *number)) {
                    Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Makes an eventfd unreadable again.
    pub fn drain(&self) -> io::Result<()> {
        if let WakeMethod::Eventfd(fd) = &self.0 {
            match rustix::io::read(fd, &mut [0u8; 8]) {
                Ok(_) | Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
