//! One io_uring: set-up for a single thread, submission, and the wait.
//!
//! A ring belongs to the thread that makes it (`IORING_SETUP_SINGLE_ISSUER`),
//! and the kernel posts completions only while that thread is in
//! io_uring_enter(2) (`IORING_SETUP_DEFER_TASKRUN`, 6.1): no interrupt of
//! running code, and events that come meanwhile are gathered into one.
//! Some time after a ring has been dropped the kernel interrupts its thread once
//! more to take the ring off it: a call that is not restarted returns `EINTR`.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno;

pub mod buffers;
pub mod features;

use features::{Parts, explain, is};

/// Makes rings, and tries again where there is no memory for them, after pauses of 0.6 s in all. Since
/// Linux 6.14 it counts as its user's locked memory, until some time after a ring has been dropped.
pub fn retry_on_enomem<T>(make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let pauses = [10, 20, 40, 80, 160, 320].map(Duration::from_millis);
    for pause in pauses {
        match make() {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => std::thread::sleep(pause),
            made => return made,
        }
    }
    make()
}

/// A submission and a completion queue shared with the kernel.
pub struct Ring {
    ring: IoUring,
    /// What did not fit into the submission queue, in order.
    waiting: VecDeque<squeue::Entry>,
    defers: bool,
}

impl Ring {
    /// Makes a ring for the calling thread. A completion queue that overflows
    /// loses nothing: the kernel keeps the rest (`IORING_FEAT_NODROP`) and
    /// passes it on in the next [`Ring::wait`].
    ///
    /// # Errors
    /// What io_uring_setup(2) says, with the cause: `ENOSYS` or `EPERM` where
    /// the kernel, a sysctl or a seccomp profile forbids it, `EMFILE`, `ENOMEM`;
    /// `Unsupported` if it lacks a part that every user needs, or one that is
    /// `needed` as well.
    pub fn open(submissions: u32, completions: u32, needed: Parts) -> io::Result<Ring> {
        Ring::build(submissions, completions, needed, true)
    }

    /// As [`Ring::open`], for a thread that hears of completions by its eventfd: the kernel
    /// posts them when they happen. What it defers until a call, it does not always ring for.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_with_eventfd(
        submissions: u32,
        completions: u32,
        needed: Parts,
        eventfd: BorrowedFd<'_>,
    ) -> io::Result<Ring> {
        let ring = Ring::build(submissions, completions, needed, false)?;
        let registered = ring.ring.submitter().register_eventfd(eventfd.as_raw_fd());
        registered.map_err(|error| explain("io_uring_register", error))?;
        Ok(ring)
    }

    fn build(submissions: u32, completions: u32, needed: Parts, defers: bool) -> io::Result<Ring> {
        let builder = || -> Builder {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp().setup_cqsize(completions);
            builder
        };
        let submissions = submissions.min(completions);
        let deferred = || {
            let mut builder = builder();
            builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
            builder.build(submissions)
        };
        let (ring, defers) = match if defers { deferred() } else { builder().build(submissions) } {
            // Linux before 6.1 knows the call but not these flags.
            Err(error) if defers && is(&error, Errno::INVAL) => {
                (builder().build(submissions), false)
            }
            made => (made, defers),
        };
        let ring = ring.map_err(|error| explain("io_uring_setup", error))?;
        let always = Parts::NODROP | Parts::TIMEOUT | Parts::POLL_MULTISHOT;
        Parts::check(&ring, always | needed)?;
        Ok(Ring { ring, waiting: VecDeque::new(), defers })
    }

    /// Whether completions wait until they are asked for, and interrupt nothing.
    pub fn defers(&self) -> bool {
        self.defers
    }

    /// Queues a request; the next [`Ring::wait`] submits it.
    ///
    /// # Safety
    /// What the entry points to must live until its last completion has been
    /// taken, or the ring is dropped.
    pub unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller keeps what the entry points to alive.
        if !self.waiting.is_empty() || unsafe { self.ring.submission().push(entry) }.is_err() {
            self.waiting.push_back(entry.clone());
        }
    }

    /// Submits what is queued and waits until there is a completion or `timeout`
    /// has passed (`None`: no limit): one system call, unless more was queued
    /// than the submission queue holds. Returns early when a signal handler ran.
    ///
    /// # Errors
    /// What io_uring_enter(2) says of the call itself.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        while !self.waiting.is_empty() {
            if !self.enter(Some(Duration::ZERO))? {
                return Ok(());
            }
            let mut queue = self.ring.submission();
            while let Some(entry) = self.waiting.front()
                // SAFETY: as `push`, whose caller keeps what the entry points to alive.
                && unsafe { queue.push(entry) }.is_ok()
            {
                self.waiting.pop_front();
            }
        }
        self.enter(timeout).map(drop)
    }

    /// One io_uring_enter(2). `false`: it could not do what was asked, and can
    /// when completions have been taken, or later.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
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
            Ok(_) => Ok(true),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME | Errno::INTR) => Ok(true),
                // No memory for a request; or the kernel holds completions that it
                // can only pass on when the queue has room again.
                Some(Errno::AGAIN | Errno::BUSY) => Ok(false),
                _ => Err(explain("io_uring_enter", error)),
            },
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
    pub unsafe fn register_buffers(
        &self,
        address: u64,
        entries: u16,
        group: u16,
    ) -> io::Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.ring.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// Whether the kernel has been given all requests, and has reported what it has to: a request
    /// that ends while it is submitted has, after this, either shown its completion or has none.
    pub fn is_settled(&mut self) -> bool {
        let queue = self.ring.submission();
        self.waiting.is_empty() && queue.is_empty() && !queue.cq_overflow()
    }

    /// Whether requests are queued that the kernel was not given yet.
    pub fn has_queued(&mut self) -> bool {
        !self.waiting.is_empty() || !self.ring.submission().is_empty()
    }

    /// Takes the next completion that the kernel has posted.
    pub fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }
}

impl std::os::fd::AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open for as long as the ring is.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use io_uring::opcode;

    use super::*;

    /// Far more requests than fit into either queue.
    #[test]
    fn full_queues_lose_nothing() {
        const REQUESTS: u64 = 500;
        let mut ring = match Ring::open(2, 4, Parts::empty()) {
            Ok(ring) => ring,
            Err(reason) => return testing::skip!("{reason}"),
        };
        for number in 0..REQUESTS {
            // SAFETY: a request to do nothing points to no memory.
            unsafe { ring.push(&opcode::Nop::new().build().user_data(number)) };
        }
        let (mut seen, mut overflowed) = (Vec::new(), false);
        while seen.len() < REQUESTS as usize {
            ring.wait(None).unwrap();
            overflowed |= ring.ring.submission().cq_overflow();
            let before = seen.len();
            while let Some(completion) = ring.completion() {
                seen.push(completion.user_data());
            }
            assert!(seen.len() > before, "lost after {before}");
        }
        assert!(overflowed);
        assert!(seen.into_iter().eq(0..REQUESTS));
    }
}
