//! One io_uring: set-up for a single thread, submission, and the wait.
//!
//! A ring belongs to the thread that makes it (`IORING_SETUP_SINGLE_ISSUER`),
//! and the kernel posts completions only while that thread is in
//! io_uring_enter(2) (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1). So the kernel does
//! not interrupt running code, and reports all completions of a turn together.
//! Some time after a ring has been dropped the kernel interrupts its thread once
//! more to take the ring off it: a call that is not restarted returns `EINTR`.
//!
//! A ring takes no requests but those of its parts ([`RingParts`]; `IORING_REGISTER_RESTRICTIONS`, Linux 5.10). So bytes
//! that a fault has written into the submission queue open no file and make no socket. The ring begins disabled
//! (`IORING_SETUP_R_DISABLED`), because restrictions are laid on disabled rings alone. They cost nothing that can be
//! measured: 56 ns for a request to do nothing with them and without. They do not bind code that can make a ring of its
//! own: what that may open is a matter of the sandbox (landlock(7)), which holds for requests of rings too.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno;

pub mod buffers;
pub mod features;

use features::{RingParts, explain, is};

/// How many completions end a wait that gathers.
const GATHERED_MOST: u32 = 128;

/// Makes a ring by `make`, and tries again if that fails with `ENOMEM`, with pauses of 0.6 s in all. Since
/// Linux 6.14 a ring's memory counts as locked memory of its user, until some time after the ring was dropped.
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
    /// Requests that did not fit into the submission queue, in order.
    waiting: VecDeque<squeue::Entry>,
    defers: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("defers", &self.defers)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Makes a ring for the calling thread. A completion queue that overflows
    /// loses nothing: the kernel keeps the rest (`IORING_FEAT_NODROP`) and
    /// passes it on in the next [`Ring::wait`].
    ///
    /// # Errors
    /// Errors of io_uring_setup(2), with the cause: `ENOSYS` or `EPERM` where
    /// the kernel, a sysctl or a seccomp profile forbids io_uring, `EMFILE`, `ENOMEM`.
    /// `Unsupported` if the kernel lacks a part that every ring needs, or a part in
    /// `needed`.
    pub fn open(submissions: u32, completions: u32, needed: RingParts) -> io::Result<Ring> {
        Ring::build(submissions, completions, needed, None)
    }

    /// Makes a ring for a thread that waits for completions on an eventfd. The kernel posts completions
    /// when they happen: it does not always signal the eventfd for completions that it defers.
    ///
    /// # Errors
    /// Errors of [`Ring::open`].
    pub fn open_with_eventfd(
        submissions: u32,
        completions: u32,
        needed: RingParts,
        eventfd: BorrowedFd<'_>,
    ) -> io::Result<Ring> {
        Ring::build(submissions, completions, needed, Some(eventfd))
    }

    fn build(
        submissions: u32,
        completions: u32,
        needed: RingParts,
        eventfd: Option<BorrowedFd<'_>>,
    ) -> io::Result<Ring> {
        let defers = eventfd.is_none();
        let builder = || -> Builder {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp().setup_cqsize(completions).setup_r_disabled();
            builder
        };
        let submissions = submissions.min(completions);
        let deferred = || {
            let mut builder = builder();
            builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
            builder.build(submissions)
        };
        let (ring, defers) = match if defers { deferred() } else { builder().build(submissions) } {
            // Linux before 6.1 has io_uring but not these flags.
            Err(error) if defers && is(&error, Errno::INVAL) => {
                (builder().build(submissions), false)
            }
            made => (made, defers),
        };
        let ring = ring.map_err(|error| explain("io_uring_setup", error))?;
        let always = RingParts::NODROP | RingParts::TIMEOUT | RingParts::POLL_MULTISHOT;
        RingParts::check(&ring, always | needed)?;
        let submitter = ring.submitter();
        eventfd
            .map_or(Ok(()), |eventfd| submitter.register_eventfd(eventfd.as_raw_fd()))
            .and_then(|()| submitter.register_restrictions(&mut needed.restrictions()))
            .and_then(|()| submitter.register_enable_rings())
            .map_err(|error| explain("io_uring_register", error))?;
        Ok(Ring { ring, waiting: VecDeque::new(), defers })
    }

    /// Whether the kernel posts completions only in [`Ring::wait`] (`IORING_SETUP_DEFER_TASKRUN`).
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

    /// Submits the queued requests and waits until there is a completion or `timeout`
    /// has passed (`None`: no limit). One system call, unless more requests were queued
    /// than the submission queue takes. Returns early when a signal handler ran.
    ///
    /// # Errors
    /// Errors of io_uring_enter(2) itself; a request's error is in its completion.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        while !self.waiting.is_empty() {
            if !self.enter(Some(Duration::ZERO), Duration::ZERO)? {
                return Ok(());
            }
            let mut queue = self.ring.submission();
            while let Some(entry) = self.waiting.front()
                // SAFETY: the caller of `push` keeps alive what the entry points to.
                && unsafe { queue.push(entry) }.is_ok()
            {
                self.waiting.pop_front();
            }
        }
        self.enter(timeout, Duration::ZERO).map(drop)
    }

    /// The same, but returns only after `gather`, with what has come by then, unless nothing has or 128
    /// completions have come before. From Linux 6.12 on one system call (`IORING_FEAT_MIN_TIMEOUT`); else a sleep between two.
    ///
    /// # Errors
    /// Those of [`Ring::wait`].
    pub fn wait_gathering(
        &mut self,
        timeout: Option<Duration>,
        gather: Duration,
    ) -> io::Result<()> {
        if gather.is_zero() || !self.waiting.is_empty() {
            return self.wait(timeout);
        }
        if self.ring.params().is_feature_min_timeout() {
            return self.enter(timeout, gather).map(drop);
        }
        self.wait(Some(Duration::ZERO))?;
        std::thread::sleep(gather);
        self.wait(Some(Duration::ZERO))
    }

    /// One io_uring_enter(2). `false`: the kernel could not submit or wait now; it can
    /// after completions have been taken, or later.
    fn enter(&mut self, timeout: Option<Duration>, gather: Duration) -> io::Result<bool> {
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if self.ring.params().is_feature_no_iowait() {
            // Without this flag an idle server counts as waiting for a disk (iowait).
            flags |= EnterFlags::NO_IOWAIT;
        }
        let limit = timeout.map(Timespec::from);
        let mut arguments = SubmitArgs::new();
        if let Some(limit) = &limit {
            arguments = arguments.timespec(limit);
        }
        let mut wanted = u32::from(timeout != Some(Duration::ZERO));
        if !gather.is_zero() {
            // The kernel wakes the thread for so many completions, or after the shorter time if there is one.
            wanted = GATHERED_MOST;
            arguments = arguments.min_wait_usec(gather.as_micros().min(u32::MAX.into()) as u32);
        }
        let queued = self.ring.submission().len() as u32;
        // SAFETY: EXT_ARG goes with SubmitArgs; it and its timespec outlive the
        // call; `queued` entries are in the queue.
        let entered =
            unsafe { self.ring.submitter().enter(queued, wanted, flags.bits(), Some(&arguments)) };
        match entered {
            Ok(_) => Ok(true),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME | Errno::INTR) => Ok(true),
                // EAGAIN: no memory for a request. EBUSY: the kernel keeps completions
                // that it can pass on only when the completion queue has room.
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
    /// the ring is dropped. The buffers that the entries name live as long.
    pub unsafe fn register_buffers(
        &self,
        address: u64,
        entries: u16,
        group: u16,
    ) -> io::Result<()> {
        // SAFETY: the caller promises that `address` is such memory.
        unsafe { self.ring.submitter().register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// Whether the kernel has been given all requests and has no completion to report. A request that
    /// ends while it is submitted has shown its completion by then, if it has one.
    pub fn is_settled(&mut self) -> bool {
        let queue = self.ring.submission();
        self.waiting.is_empty() && queue.is_empty() && !queue.cq_overflow()
    }

    /// Whether requests are queued that the kernel has not been given yet.
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

    /// Every number that the kernel knows as a request, with nothing in it.
    #[test]
    fn a_ring_takes_no_request_that_is_not_of_its_parts() {
        let mut probe = io_uring::Probe::new();
        let asked = IoUring::new(2).and_then(|ring| ring.submitter().register_probe(&mut probe));
        if let Err(reason) = asked {
            return drover_testing::skip!("{reason}");
        }
        let mut refused = [0; 4];
        let parts = [
            RingParts::empty(),
            RingParts::READS,
            RingParts::SOCKETS,
            RingParts::SOCKETS | RingParts::CONNECT,
        ];
        for (parts, refused) in parts.into_iter().zip(&mut refused) {
            let mut ring = Ring::open(8, 16, parts).unwrap();
            let taken = parts.requests();
            for code in (0..=u8::MAX).filter(|code| probe.is_supported(*code)) {
                if taken.contains(&code) {
                    continue;
                }
                let mut entry = [0_u8; size_of::<squeue::Entry>()];
                entry[0] = code;
                // SAFETY: an entry is 64 bytes of integers, the first of which is the request's number.
                let entry: squeue::Entry = unsafe { std::mem::transmute(entry) };
                // SAFETY: the kernel refuses the request before it looks at what it points to.
                unsafe { ring.push(&entry) };
                ring.wait(None).unwrap();
                let result = ring.completion().unwrap().result();
                assert_eq!(result, -libc::EACCES, "{parts:?}: {code}");
                *refused += 1;
            }
        }
        assert!(refused[0] > 20 && refused[2] == refused[3] + 1, "{refused:?}");
    }

    /// `IORING_OP_OPENAT` and the others are refused as they are submitted.
    #[test]
    fn a_ring_takes_no_requests_but_those_of_its_parts() {
        let (name, fd) = (c"/dev/null", io_uring::types::Fd(libc::AT_FDCWD));
        let others = [
            opcode::OpenAt::new(fd, name.as_ptr()).build(),
            opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build(),
            opcode::Write::new(fd, name.as_ptr().cast(), 1).build(),
            opcode::Nop::new().build().flags(squeue::Flags::IO_DRAIN),
        ];
        for parts in [RingParts::empty(), RingParts::READS, RingParts::SOCKETS] {
            let mut ring = match Ring::open(8, 16, parts) {
                Ok(ring) => ring,
                Err(reason) => return drover_testing::skip!("{reason}"),
            };
            for entry in &others {
                // SAFETY: the name is a constant.
                unsafe { ring.push(entry) };
                ring.wait(None).unwrap();
                assert_eq!(ring.completion().unwrap().result(), -libc::EACCES, "{parts:?}");
            }
            let probed = ring.ring.submitter().register_probe(&mut io_uring::Probe::new());
            assert!(probed.is_err_and(|error| is(&error, Errno::ACCESS)));
        }
    }

    /// Submits far more requests than fit into the submission or the completion queue.
    #[test]
    fn full_queues_lose_nothing() {
        const REQUESTS: u64 = 500;
        let mut ring = match Ring::open(2, 4, RingParts::empty()) {
            Ok(ring) => ring,
            Err(reason) => return drover_testing::skip!("{reason}"),
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
