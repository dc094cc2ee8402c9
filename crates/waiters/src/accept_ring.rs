//! An io_uring that accepts connections, one request at a time.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::types::SubmitArgs;
use io_uring::{EnterFlags, IoUring, Probe, opcode, types};
use rustix::io::Errno;

/// A ring with at most one accept request under way. Only the thread that made the ring may use it.
pub(crate) struct AcceptRing {
    ring: IoUring,
}

impl AcceptRing {
    /// Makes a ring for the calling thread. The kernel posts completions while that thread is in
    /// io_uring_enter(2) (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1); on older kernels, at any time.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM`: the kernel, a sysctl or a seccomp profile forbids io_uring. `Unsupported`: the
    /// kernel has no accept requests, or cannot say so (before Linux 5.6).
    pub(crate) fn open() -> io::Result<AcceptRing> {
        let deferred = || {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_single_issuer().setup_defer_taskrun();
            builder.build(2)
        };
        let ring = match deferred() {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                IoUring::builder().dontfork().build(2)
            }
            made => made,
        };
        let ring =
            ring.map_err(|error| io::Error::new(error.kind(), format!("io_uring_setup: {error}")))?;
        let mut probe = Probe::new();
        // Kernels before Linux 5.6 have no probe, and answer EINVAL.
        let probed = ring.submitter().register_probe(&mut probe);
        if probed.is_err() || !probe.is_supported(opcode::Accept::CODE) {
            let reason = "the kernel's io_uring cannot be asked for accept requests (Linux 5.6)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(AcceptRing { ring })
    }

    /// Queues a request for one connection of `listener`. The next [`AcceptRing::enter`] submits it.
    pub(crate) fn request(&mut self, listener: &OwnedFd) {
        let listener = types::Fd(listener.as_raw_fd());
        let no_address = std::ptr::null_mut();
        let accept = opcode::Accept::new(listener, no_address, no_address.cast());
        let request = accept.flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: the request's pointers are null: the peer's address is not wanted.
        let pushed = unsafe { self.ring.submission().push(&request) };
        pushed.expect("one request is under way at a time, and the queue has room for two");
    }

    /// Submits the queued request and lets the kernel post completions. With `waits`, blocks until there is a
    /// completion, or a signal handler ran.
    ///
    /// # Errors
    /// The error of io_uring_enter(2).
    pub(crate) fn enter(&mut self, waits: bool) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        let arguments = SubmitArgs::new();
        // SAFETY: with EXT_ARG the kernel reads SubmitArgs, which outlives the call. The submission queue
        // has `queued` entries.
        let entered = unsafe {
            self.ring.submitter().enter(queued, u32::from(waits), flags, Some(&arguments))
        };
        match entered {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// The connection of the last request. `None`: the request has not ended.
    ///
    /// # Errors
    /// The request's error, one of accept(2).
    pub(crate) fn taken(&mut self) -> io::Result<Option<OwnedFd>> {
        let Some(completion) = self.ring.completion().next() else { return Ok(None) };
        match completion.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            // SAFETY: the kernel made this descriptor for this request, and nothing else owns it.
            fd => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }
}
