//! Telling the kernel what will be read next (posix_fadvise(2), `WILLNEED`), so that the disk reads
//! while the socket takes what came before.
//!
//! Readers on other threads ask themselves, when they have read a step. Backends that read while they
//! send have it asked for here, before they do.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::Advice;

use crate::fileio::support::reads::Read;
use crate::fileio::{Counts, FileIo, Options, Sent, Transfer};
use crate::key::Key;

/// A backend that reads while it sends, and asks for the step after the one it comes to.
struct Advised<F> {
    inner: F,
    step: u64,
    counts: Arc<Counts>,
}

/// The backend as it is, or so that it asks for the next step, whichever the options say.
pub(crate) fn ahead<F: FileIo + 'static>(options: &Options, inner: F) -> Box<dyn FileIo> {
    if !options.advise_next {
        return Box::new(inner);
    }
    let (step, counts) = (options.read_ahead.max(1) as u64, Arc::clone(&options.counts));
    Box::new(Advised { inner, step, counts })
}

impl<F: FileIo> FileIo for Advised<F> {
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let most = transfer.len.min(self.step.saturating_mul(2));
        will_need(transfer.file.as_fd(), transfer.offset, most, &self.counts);
        self.inner.send(transfer)
    }

    fn forget(&mut self, key: Key) {
        self.inner.forget(key);
    }
}

fn will_need(file: BorrowedFd<'_>, offset: u64, len: u64, counts: &Counts) {
    // Advice: where it is not taken, nothing is lost.
    let taken = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed);
    counts.advised.fetch_add(u64::from(taken.is_ok()), Ordering::Relaxed);
}

impl Read {
    /// Asks for the step behind this one, if that is wanted. The descriptor has to be open still: to
    /// be called before the read's end is told.
    pub(crate) fn advise_next(&self, counts: &Counts) {
        if self.next > 0 {
            // SAFETY: the descriptor is open until the read's end is reported (`Reader::begin`).
            let file = unsafe { BorrowedFd::borrow_raw(self.file) };
            will_need(file, self.offset + self.len as u64, self.next as u64, counts);
        }
    }
}
