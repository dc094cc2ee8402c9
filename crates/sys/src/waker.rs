//! A handle that ends another thread's wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

use crate::syscall;

/// Ends the wait of the dispatcher that the waker belongs to, from any thread.
///
/// A wake that comes while the dispatcher is not waiting ends its next wait.
/// Several wakes before that wait count as one.
#[derive(Debug)]
pub struct Waker(WakeMethod);

#[derive(Debug)]
enum WakeMethod {
    /// A counter that is readable while it is not zero (eventfd(2)).
    Eventfd(OwnedFd),
    /// A signal to one thread, for mechanisms that wait for signals: an eventfd has
    /// no `fasync` method, so `O_ASYNC` on an eventfd does nothing.
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
    /// waits for. It must be a standard signal: the kernel refuses a real-time signal
    /// when the queue is full, and a wake is needed most then. A standard signal is
    /// delivered even then, without its siginfo (signal(7)).
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

    /// Ends the wait. Does nothing if the waiting thread has ended.
    ///
    /// # Errors
    /// Errors of write(2) or tgkill(2); no error is known to happen.
    pub fn wake(&self) -> io::Result<()> {
        match &self.0 {
            WakeMethod::Eventfd(fd) => match rustix::io::write(fd, &1u64.to_ne_bytes()) {
                // EAGAIN: the counter is at its maximum, so the eventfd is readable already.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            },
            WakeMethod::Signal { thread, number } => {
                let process = rustix::process::getpid().as_raw_nonzero().get();
                // SAFETY: tgkill takes three integers and touches no memory of this process.
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
