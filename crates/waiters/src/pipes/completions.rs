//! Reading tokens by an io_uring, with one read request for each pipe: the kernel does the reads.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use anyhow::{Context, bail};
use drover_mech::mechanisms::Mechanism;
use io_uring::types::SubmitArgs;
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::io::Errno;

use super::tokens::Tokens;
use super::{Reader, Round};

/// A bit in the `user_data` of a request that cancels a read.
const CANCELS: u64 = 1 << 32;

/// A ring, and the buffer of each read request.
pub(super) struct Completions {
    ring: IoUring,
    /// The buffer of each pipe. The kernel may write to the buffers until the last read request has ended.
    buffers: ManuallyDrop<Vec<Box<[u8]>>>,
    /// How many requests have not ended.
    under_way: usize,
}

impl Completions {
    /// Makes a ring with a buffer for each pipe.
    ///
    /// # Errors
    /// The reason of `by`'s probe, if this kernel's io_uring cannot be used. The error of io_uring_setup(2).
    pub(super) fn open(by: &Mechanism, tokens: &Tokens) -> anyhow::Result<Completions> {
        if let Err(reason) = by.probe() {
            bail!("{reason}");
        }
        let entries = u32::try_from(tokens.pipes().next_power_of_two())?;
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_single_issuer().setup_defer_taskrun();
        let ring = match builder.build(entries) {
            // EINVAL: before Linux 6.1 the kernel does not know these flags.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                IoUring::builder().dontfork().setup_clamp().build(entries)
            }
            made => made,
        };
        let ring = ring.context("io_uring_setup")?;
        let room = tokens.room();
        let buffers = (0..tokens.pipes()).map(|_| vec![0; room].into_boxed_slice()).collect();
        Ok(Completions { ring, buffers: ManuallyDrop::new(buffers), under_way: 0 })
    }

    /// Queues a request. If the submission queue is full, submits the queued requests first.
    fn push(&mut self, request: &squeue::Entry) -> io::Result<()> {
        self.under_way += 1;
        // SAFETY: a read request points to its pipe's boxed buffer, which is not freed or moved before the
        // last request has ended (`drop`). A cancellation contains no pointer.
        while unsafe { self.ring.submission().push(request) }.is_err() {
            self.enter(0)?;
        }
        Ok(())
    }

    /// Queues the read request of a pipe.
    fn push_read(&mut self, tokens: &Tokens, pipe: usize) -> io::Result<()> {
        let buffer = &mut self.buffers[pipe];
        let fd = types::Fd(tokens.reader(pipe).as_raw_fd());
        let read = opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32);
        // An offset of -1 means the file's current offset, the only one that a pipe accepts.
        let request = read.offset(u64::MAX).build().user_data(pipe as u64);
        self.push(&request)
    }

    /// Submits the queued requests, and waits for `wanted` completions. Returns early when a signal handler
    /// ran.
    fn enter(&mut self, wanted: u32) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        let arguments = SubmitArgs::new();
        // SAFETY: with EXT_ARG the kernel reads SubmitArgs, which outlives the call. The submission queue
        // has `queued` entries.
        let entered =
            unsafe { self.ring.submitter().enter(queued, wanted, flags, Some(&arguments)) };
        match entered {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the next completion: its `user_data` and its result.
    fn completion(&mut self) -> Option<(u64, i32)> {
        let completion = self.ring.completion().next()?;
        self.under_way -= 1;
        Some((completion.user_data(), completion.result()))
    }
}

impl Reader for Completions {
    fn register(&mut self, tokens: &Tokens) -> anyhow::Result<()> {
        for pipe in 0..tokens.pipes() {
            self.push_read(tokens, pipe)?;
        }
        Ok(self.enter(0)?)
    }

    fn turn(&mut self, tokens: &mut Tokens) -> anyhow::Result<Round> {
        self.enter(1)?;
        while let Some((pipe, length)) = self.completion() {
            let pipe = pipe as usize;
            let Ok(length) = usize::try_from(length) else {
                let error = io::Error::from_raw_os_error(-length);
                return Err(error).with_context(|| format!("cannot read from pipe {pipe}"));
            };
            tokens.pass(pipe, &self.buffers[pipe][..length])?;
            self.push_read(tokens, pipe)?;
        }
        Ok(Round::default())
    }

    fn deregister(&mut self, tokens: &mut Tokens) -> anyhow::Result<()> {
        self.enter(0)?;
        for pipe in 0..tokens.pipes() {
            let cancel = opcode::AsyncCancel::new(pipe as u64).build();
            self.push(&cancel.user_data(CANCELS | pipe as u64))?;
        }
        while self.under_way > 0 {
            self.enter(1)?;
            while let Some((data, result)) = self.completion() {
                if let (false, Ok(length)) = (data & CANCELS != 0, usize::try_from(result)) {
                    tokens.set_aside(data as usize, &self.buffers[data as usize][..length])?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if self.under_way == 0 {
            // SAFETY: no request is under way, so the kernel does not write to the buffers; this value ends
            // here. If requests are under way, after an error, the buffers are leaked.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}
