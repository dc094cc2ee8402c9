//! One io_uring: set-up for a single thread, submission, and the wait.
//!
//! A ring belongs to the thread that makes it (`IORING_SETUP_SINGLE_ISSUER`),
//! and the kernel posts completions only while that thread is in
//! io_uring_enter(2) (`IORING_SETUP_DEFER_TASKRUN`, 6.1): no interrupt of
//! running code, and events that come meanwhile are gathered into one.
//! Some time after a ring has been dropped the kernel interrupts its thread once
//! more to take the ring off it: a call that is not restarted returns `EINTR`.

use std::io;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno;

/// A submission and a completion queue shared with the kernel.
pub(crate) struct Ring {
    ring: IoUring,
}

impl Ring {
    /// Makes a ring for the calling thread. A completion queue that overflows
    /// loses nothing: the kernel keeps the rest (`IORING_FEAT_NODROP`) and
    /// passes it on in the next [`Ring::wait`].
    ///
    /// # Errors
    /// What io_uring_setup(2) says, with the remedy: `ENOSYS` or `EPERM` where
    /// the kernel, a sysctl or a seccomp profile forbids it, `EMFILE`, `ENOMEM`;
    /// `EOPNOTSUPP` before Linux 5.13, which has no multishot poll.
    pub(crate) fn open(submissions: u32, completions: u32) -> io::Result<Ring> {
        let builder = || -> Builder {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp().setup_cqsize(completions);
            builder
        };
        let deferred = builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .build(submissions);
        let ring = match deferred {
            // Linux before 6.1 knows the call but not these flags.
            Err(error) if is(&error, Errno::INVAL) => builder().build(submissions),
            made => made,
        }
        .map_err(explain)?;
        // IORING_FEAT_RSRC_TAGS came with 5.13, as multishot poll did.
        if !ring.params().is_feature_resource_tagging() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring before Linux 5.13"));
        }
        Ok(Ring { ring })
    }

    /// Queues a request; it is submitted by the next [`Ring::wait`], or now if
    /// the queue is full.
    ///
    /// # Errors
    /// What io_uring_enter(2) says when the queue was full.
    ///
    /// # Safety
    /// What the entry points to must live until its last completion has been
    /// taken, or the ring is dropped.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller keeps what the entry points to alive.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Submits what is queued and waits until there is a completion or `timeout`
    /// has passed (`None`: no limit): one system call. Returns early when a
    /// signal handler ran.
    ///
    /// # Errors
    /// What io_uring_enter(2) says of the call itself.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if self.ring.params().is_feature_no_iowait() {
            // Otherwise an idle server counts as waiting for a disk.
            flags |= EnterFlags::NO_IOWAIT;
        }
        let limit = timeout.map(Timespec::from);
        let mut arguments = SubmitArgs::new();
        if let Some(limit) = &limit {
            arguments = arguments.timespec(limit);
        }
        let wanted = u32::from(timeout != Some(Duration::ZERO));
        let queued = self.ring.submission().len() as u32;
        // SAFETY: EXT_ARG goes with SubmitArgs, which outlives the call as its
        // timespec does; `queued` entries are in the queue.
        let entered =
            unsafe { self.ring.submitter().enter(queued, wanted, flags.bits(), Some(&arguments)) };
        match entered {
            Ok(_) => Ok(()),
            Err(error) if is(&error, Errno::TIME) || is(&error, Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lends the kernel a ring of provided buffers.
    ///
    /// # Errors
    /// `EINVAL` before Linux 5.19.
    ///
    /// # Safety
    /// `address` is page-aligned memory for `entries` entries that lives until
    /// the ring is dropped, as the buffers do that the entries name.
    pub(crate) unsafe fn register_buffers(
        &self,
        address: u64,
        entries: u16,
        group: u16,
    ) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.ring.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// Takes the next completion that the kernel has posted.
    pub(crate) fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Says who forbids io_uring: the error number alone sends people searching.
fn explain(error: io::Error) -> io::Error {
    let reason = if is(&error, Errno::PERM) || is(&error, Errno::ACCESS) {
        "the sysctl kernel.io_uring_disabled or a seccomp profile forbids it"
    } else if is(&error, Errno::NOSYS) {
        "the kernel is built without it, or a seccomp profile hides it"
    } else {
        return error;
    };
    io::Error::new(error.kind(), format!("io_uring_setup: {error}: {reason}"))
}
