//! `posix-aio`: aio_read(3), the C library's asynchronous reads, then a vectored
//! send.
//!
//! glibc reads with threads of its own, at most 20 at a time, one per file: two
//! reads of one descriptor follow each other. It tells of the end of a read on a
//! thread made for that (`SIGEV_THREAD`), which wakes the worker; its other way,
//! a signal to the whole process, would end one that has not blocked it.

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::fileio::support::reads::{Ended, Read, Reader, Reads};
use crate::fileio::support::results::Results;
use crate::fileio::support::times::Span;
use crate::fileio::{Backend, Counts, Options};
use sys::syscall;
use sys::waker::Waker;

/// The `posix-aio` backend.
pub(crate) static POSIX_AIO: Backend = Backend {
    name: "posix-aio",
    summary: "aio_read(3), which the C library does with threads, then one vectored send",
    past_cache: false,
    reads_apart: true,
    open: |options, waker| Ok(Box::new(open(options, waker))),
};

/// Reads of one worker that may be in the library's queue.
const MOST: usize = 256;

fn open(options: &Options, waker: &Arc<Waker>) -> Reads<PosixAio> {
    let counts = Arc::clone(&options.counts);
    let results = Results::new(Arc::clone(waker));
    let aio = PosixAio { operations: Vec::new(), results, counts, under_way: 0 };
    Reads::new(aio, options, POSIX_AIO.name, waker)
}

#[expect(clippy::vec_box, reason = "the library has the addresses of the boxed operations")]
struct PosixAio {
    /// By the number of their read.
    operations: Vec<Box<Operation>>,
    results: Arc<Results>,
    counts: Arc<Counts>,
    under_way: usize,
}

struct Operation {
    control: libc::aiocb,
    id: u32,
    /// When the read was begun, if it is timed.
    begun: Option<Instant>,
    /// What to do once it has ended.
    read: Option<Read>,
    counts: Arc<Counts>,
    results: Arc<Results>,
}

impl Operation {
    fn new(id: u32, results: Arc<Results>, counts: Arc<Counts>) -> Box<Operation> {
        // SAFETY: a control block of zeroes is a valid one, of no read.
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
        // SAFETY: the operation is in its box until this value is dropped, and idle: the read that
        // had its number before has ended. All that is touched meanwhile is touched by the library
        // and by `ended`, through this pointer.
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

/// Sets what the crate `libc` has no name for: the function of a `SIGEV_THREAD`, which shares its
/// place with the thread's number.
fn set_function(event: &mut libc::sigevent, function: extern "C" fn(libc::sigval)) {
    let place = offset_of!(libc::sigevent, sigev_notify_thread_id);
    // SAFETY: sigevent(3type) has the pointer at this place, in a union of 48 bytes; the pointer to
    // the thread's attributes behind it stays null.
    unsafe {
        std::ptr::from_mut(event)
            .cast::<u8>()
            .add(place)
            .cast::<usize>()
            .write_unaligned(function as usize);
    }
}

/// Runs on a thread of the library's when a read has ended.
extern "C" fn ended(value: libc::sigval) {
    let operation: *mut Operation = value.sival_ptr.cast();
    // SAFETY: the operation is in its box until the worker has heard of the read's end, which it
    // does from the last line.
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
