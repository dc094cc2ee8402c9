//! `posix-aio`: aio_read(3), the C library's asynchronous reads, then a vectored send.
//!
//! glibc reads on threads of its own, at most 20 by default, and serialises the reads of one descriptor.
//! For each read that ends, glibc starts a thread that calls a function of this file (`SIGEV_THREAD`), and
//! this function wakes the worker. The alternative is a signal to the whole process (`SIGEV_SIGNAL`).
//! Such a signal ends a process that has neither a handler for it nor blocks it.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::fileio::support::reads::{Ended, Read, Reader, Reads};
use crate::fileio::support::results::ReadResults;
use crate::fileio::support::times::Span;
use crate::fileio::{Backend, FileIoCounts, FileIoOptions};
use drover_sys::syscall;
use drover_sys::waker::Waker;

/// The `posix-aio` backend.
pub(crate) static POSIX_AIO: Backend = Backend {
    place: 5,
    name: "posix-aio",
    summary: "aio_read(3), which the C library does with threads, then one vectored send",
    past_cache: false,
    sends_unread: false,
    reads_apart: true,
    // The C library starts its threads with the scheduling of the caller.
    calls: &[libc::SYS_sched_getparam, libc::SYS_sched_getscheduler],
    open: |options, waker| Ok(Box::new(open(options, waker))),
};

/// How many reads of one worker may be in the library's queue.
const MOST: usize = 256;

fn open(options: &FileIoOptions, waker: &Arc<Waker>) -> Reads<PosixAio> {
    let counts = Arc::clone(&options.counts);
    let results = ReadResults::new(Arc::clone(waker));
    let aio = PosixAio { operations: Vec::new(), results, counts, under_way: 0 };
    Reads::new(aio, options, &POSIX_AIO, waker)
}

#[expect(clippy::vec_box, reason = "the library has the addresses of the boxed operations")]
struct PosixAio {
    /// The operations, by [`Read::id`].
    operations: Vec<Box<Operation>>,
    results: Arc<ReadResults>,
    counts: Arc<FileIoCounts>,
    under_way: usize,
}

struct Operation {
    control: libc::aiocb,
    id: u32,
    /// When the read began; `None` unless the read is timed.
    begun: Option<Instant>,
    /// The read, whose [`Read::advise_next`] is called when it has ended.
    read: Option<Read>,
    counts: Arc<FileIoCounts>,
    results: Arc<ReadResults>,
}

impl Operation {
    fn new(id: u32, results: Arc<ReadResults>, counts: Arc<FileIoCounts>) -> Box<Operation> {
        // SAFETY: an aiocb of zeroes is valid and describes no read.
        let control: libc::aiocb = unsafe { std::mem::zeroed() };
        Box::new(Operation { control, id, begun: None, read: None, counts, results })
    }
}

impl Reader for PosixAio {
    unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
        if self.under_way >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        while self.operations.len() <= read.id as usize {
            let id = self.operations.len() as u32;
            let (results, counts) = (Arc::clone(&self.results), Arc::clone(&self.counts));
            self.operations.push(Operation::new(id, results, counts));
        }
        let operation: *mut Operation = &mut *self.operations[read.id as usize];
        // SAFETY: the operation stays in its box until this value is dropped. It is idle: the earlier
        // read with this number has ended. While the read is under way, only the library and `ended`
        // use the operation, through this pointer. aio_read(3) gets a valid control block.
        let begun = unsafe {
            (*operation).begun = read.timed.then(Instant::now);
            (*operation).read = Some(read);
            let control = &mut (*operation).control;
            control.aio_fildes = read.file;
            control.aio_buf = read.buffer.cast();
            control.aio_nbytes = read.len;
            control.aio_offset = read.offset as libc::off_t;
            control.aio_sigevent.sigev_notify = libc::SIGEV_THREAD;
            control.aio_sigevent.sigev_value = libc::sigval { sival_ptr: operation.cast() };
            set_function(&mut control.aio_sigevent, ended);
            // SAFETY: `control` is filled in, and stays in its box until the read has ended.
            syscall!(aio_read(&raw mut (*operation).control))
        };
        match begun {
            Ok(_) => {
                self.under_way += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        let before = ended.len();
        self.results.take(ended);
        self.under_way -= ended.len() - before;
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.results.wait();
        Ok(())
    }
}

/// Sets the function of a `SIGEV_THREAD` event (`sigev_notify_function`). The crate `libc` has no name
/// for this field, which is in a union with `sigev_notify_thread_id`.
fn set_function(event: &mut libc::sigevent, function: extern "C" fn(libc::sigval)) {
    let offset = offset_of!(libc::sigevent, sigev_notify_thread_id);
    // SAFETY: sigevent(3type) has the function pointer at this offset, in a union of 48 bytes. The next
    // field, the pointer to the thread's attributes, stays null.
    unsafe {
        std::ptr::from_mut(event)
            .cast::<u8>()
            .add(offset)
            .cast::<usize>()
            .write_unaligned(function as usize);
    }
}

/// Reports the end of a read to its worker. glibc calls this function on a thread of its own.
extern "C" fn ended(value: libc::sigval) {
    let operation: *mut Operation = value.sival_ptr.cast();
    // SAFETY: the operation stays in its box until the worker learns of the read's end, from
    // `results.push` at the end of this function.
    let (id, begun, results, result) = unsafe {
        let control = &raw mut (*operation).control;
        let result = match libc::aio_error(control) {
            0 => Ok(libc::aio_return(control) as usize),
            error => Err(Errno::from_raw_os_error(error).into()),
        };
        let Operation { id, begun, results, read, counts, .. } = &*operation;
        if let Some(read) = read {
            read.advise_next(counts);
        }
        (*id, *begun, Arc::clone(results), result)
    };
    let span = begun.map(|begun| Span { begun, ended: Instant::now() });
    results.push(Ended { id, result, span });
}
