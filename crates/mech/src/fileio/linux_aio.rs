//! `linux-aio`: io_submit(2), the kernel's first interface for asynchronous reads, then a vectored send.
//! An eventfd ends the worker's wait (`IOCB_FLAG_RESFD`).
//!
//! Only reads with `O_DIRECT` are asynchronous. io_submit(2) itself does all other reads, and blocks
//! until the disk has answered. So each read opens the file a second time with `O_DIRECT`, through
//! /proc/self/fd. Offsets and lengths are multiples of a page; a read may end early at the end of the
//! file. If the file system does not support `O_DIRECT`, the worker reads through the page cache and
//! waits, as io_submit(2) would.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::fileio::support::notifier::Notifier;
use crate::fileio::support::reads::{Ended, Read, Reader, Reads};
use crate::fileio::{Backend, FileIoCounts, FileIoOptions};
use drover_sys::syscall;
use drover_sys::waker::Waker;

/// The `linux-aio` backend.
pub(crate) static LINUX_AIO: Backend = Backend {
    place: 6,
    name: "linux-aio",
    summary: "io_submit(2) with O_DIRECT, past the page cache, then one vectored send",
    past_cache: true,
    sends_unread: false,
    reads_apart: true,
    calls: &[libc::SYS_io_submit, libc::SYS_io_getevents, libc::SYS_io_destroy],
    open: |options, waker| Ok(Box::new(open(&LINUX_AIO, options, waker)?)),
};

/// How many reads of one worker may be under way. `fs.aio-max-nr` limits the reads of all processes
/// together.
const MOST: u32 = 128;

/// The result of a read that the file system cannot do with `O_DIRECT`.
const INVAL: i64 = -(libc::EINVAL as i64);

/// Makes the reads of one worker. `linux-aio-sendfile` uses this function too.
pub(super) fn open(
    backend: &'static Backend,
    options: &FileIoOptions,
    waker: &Arc<Waker>,
) -> io::Result<Reads<LinuxAio>> {
    let aio = LinuxAio {
        context: Context::new()?,
        notifier: Notifier::new(waker)?,
        direct: Vec::new(),
        done: Vec::new(),
        counts: Arc::clone(&options.counts),
    };
    Ok(Reads::new(aio, options, backend, waker))
}

pub(super) struct LinuxAio {
    context: Context,
    notifier: Notifier,
    /// The reads under way, by [`Read::id`], each with its file opened with `O_DIRECT`.
    direct: Vec<Option<(OwnedFd, Read)>>,
    /// Reads that the worker did itself and has not reported yet.
    done: Vec<Ended>,
    counts: Arc<FileIoCounts>,
}

impl Reader for LinuxAio {
    const ALIGNMENT: u64 = 4096;

    unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", read.file);
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
            return self.read_at_once(read);
        };
        // SAFETY: the caller leaves the buffer unused until the read has ended. `direct` keeps the file
        // open for as long.
        match unsafe { self.context.submit(&read, &file, &self.notifier) } {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return self.read_at_once(read),
            Err(error) => return Err(error.into()),
        }
        let index = read.id as usize;
        if self.direct.len() <= index {
            self.direct.resize_with(index + 1, || None);
        }
        self.direct[index] = Some((file, read));
        Ok(())
    }

    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        ended.append(&mut self.done);
        if self.context.has_events() {
            self.take(0, ended)?;
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        if self.done.is_empty() {
            let mut ended = Vec::new();
            self.take(1, &mut ended)?;
            self.done = ended;
        }
        Ok(())
    }
}

impl LinuxAio {
    /// Reads without `O_DIRECT` on the worker's thread. The next [`Reader::finished`] reports the read.
    fn read_at_once(&mut self, read: Read) -> io::Result<()> {
        self.done.push(self.ended_at_once(read));
        self.notifier.notify()
    }

    /// Reads through the page cache, and blocks until the disk has answered.
    fn ended_at_once(&self, read: Read) -> Ended {
        self.counts.not_direct.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the descriptor stays open, and nothing else uses the buffer, until the read's end is
        // reported (`Reader::begin`).
        let result = unsafe {
            let file = BorrowedFd::borrow_raw(read.file);
            let buffer = std::slice::from_raw_parts_mut(read.buffer, read.len);
            rustix::io::pread(file, buffer, read.offset)
        };
        Ended { id: read.id, result: result.map_err(io::Error::from), span: None }
    }

    /// Collects the reads that have ended; waits until at least `least` have.
    fn take(&mut self, least: usize, ended: &mut Vec<Ended>) -> io::Result<()> {
        let mut events = [Event::default(); MOST as usize];
        for event in self.context.events(least, &mut events)? {
            let id = event.data as u32;
            let under_way = self.direct[id as usize].take();
            let result = match (event.result, under_way) {
                (0.., _) => Ok(event.result as usize),
                // Some file systems accept an O_DIRECT read that they cannot do, and fail it later.
                (INVAL, Some((_, read))) => {
                    ended.push(self.ended_at_once(read));
                    continue;
                }
                (error, _) => Err(io::Error::from_raw_os_error(-error as i32)),
            };
            ended.push(Ended { id, result, span: None });
        }
        Ok(())
    }
}

/// The result of one read, from io_getevents(2): the kernel's `struct io_event`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    second_result: i64,
}

/// The head of a context's ring of events, which the kernel maps into the process: `struct aio_ring` in
/// the kernel's fs/aio.c.
#[repr(C)]
struct RingHead {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

/// An aio context (io_setup(2)).
struct Context(libc::c_ulong);

impl Context {
    fn new() -> io::Result<Context> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the pointer is to a zeroed context that outlives the call.
        syscall!(syscall(libc::SYS_io_setup, MOST, &raw mut context))?;
        Ok(Context(context))
    }

    /// Submits a read of `file`, whose end adds 1 to the notifier's eventfd.
    ///
    /// # Safety
    /// The file stays open, and nothing else uses the buffer, until the read has ended.
    unsafe fn submit(&self, read: &Read, file: &OwnedFd, notifier: &Notifier) -> Result<(), Errno> {
        const IOCB_CMD_PREAD: u16 = 0;
        const IOCB_FLAG_RESFD: u32 = 1;
        // SAFETY: an iocb of zeroes is valid: a pread without flags.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_data = u64::from(read.id);
        block.aio_lio_opcode = IOCB_CMD_PREAD;
        block.aio_fildes = file.as_raw_fd() as u32;
        block.aio_buf = read.buffer as u64;
        block.aio_nbytes = read.len as u64;
        block.aio_offset = read.offset as i64;
        block.aio_flags = IOCB_FLAG_RESFD;
        block.aio_resfd = notifier.fd().as_raw_fd() as u32;
        let mut blocks = [&raw mut block];
        // SAFETY: the kernel copies the one block before the call returns. The caller promises that the
        // block's file and buffer stay valid.
        match syscall!(syscall(libc::SYS_io_submit, self.0, 1, blocks.as_mut_ptr())) {
            Ok(_) => Ok(()),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Whether io_getevents(2) would return an event. Makes no system call.
    fn has_events(&self) -> bool {
        // SAFETY: a context's number is the address of its ring, which stays mapped until io_destroy(2).
        // The kernel stores the tail after the events, with a write barrier.
        let ring = unsafe { &*ptr::with_exposed_provenance::<RingHead>(self.0 as usize) };
        ring.head.load(Ordering::Relaxed) != ring.tail.load(Ordering::Acquire)
    }

    /// Waits for at least `least` events, and writes as many as there are into `events`.
    fn events<'e>(&self, least: usize, events: &'e mut [Event]) -> io::Result<&'e [Event]> {
        loop {
            let (pointer, timeout) = (events.as_mut_ptr(), ptr::null::<libc::timespec>());
            // SAFETY: `events` has room for `events.len()` events, and outlives the call.
            let taken = syscall!(syscall(
                libc::SYS_io_getevents,
                self.0,
                least,
                events.len(),
                pointer,
                timeout,
            ));
            match taken {
                Ok(count) => return Ok(&events[..count as usize]),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: only this value owns the context. The call waits for reads that are under way.
        let _ = syscall!(syscall(libc::SYS_io_destroy, self.0));
    }
}
