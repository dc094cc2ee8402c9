//! Announcing the next bytes of a file to the kernel (posix_fadvise(2), `WILLNEED`), so that the disk
//! reads them while the socket takes the bytes before.
//!
//! Readers on other threads do it after each read ([`super::reads::Read::advise_next`]). For backends that read within
//! [`FileIo::send`], the wrapper [`Advised`] announces the bytes before each send.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::Advice;

use crate::fileio::{Backend, FileIo, FileIoCounts, FileIoOptions, Sent, Transfer};
use crate::key::Key;

/// A backend that reads within [`FileIo::send`], with an announcement before each send: the step that is
/// sent now and the next step.
struct Advised<F> {
    inner: F,
    /// The bytes of a step ([`FileIoOptions::read_ahead`]).
    step: u64,
    counts: Arc<FileIoCounts>,
}

/// Wraps the backend in [`Advised`] if [`FileIoOptions::advise_next`]; otherwise returns the backend itself.
pub(crate) fn ahead<F: FileIo + 'static>(options: &FileIoOptions, inner: F) -> Box<dyn FileIo> {
    if !options.advise_next {
        return Box::new(inner);
    }
    let (step, counts) = (options.read_ahead.max(1) as u64, Arc::clone(&options.counts));
    Box::new(Advised { inner, step, counts })
}

impl<F> Advised<F> {
    fn announce(&self, transfer: &Transfer<'_>) {
        let most = transfer.len.min(self.step.saturating_mul(2));
        will_need(transfer.file.as_fd(), transfer.offset, most, &self.counts);
    }
}

impl<F: FileIo> FileIo for Advised<F> {
    fn sender(&self) -> &'static Backend {
        self.inner.sender()
    }

    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        self.announce(&transfer);
        self.inner.send(transfer)
    }

    fn read(&mut self, transfer: Transfer<'_>, into: &mut Vec<u8>) -> io::Result<Sent> {
        self.announce(&transfer);
        self.inner.read(transfer, into)
    }

    fn reader(&self) -> &'static Backend {
        self.inner.reader()
    }

    fn forget(&mut self, key: Key) {
        self.inner.forget(key);
    }
}

/// Announces `len` bytes from `offset` on, and counts the announcement.
pub(crate) fn will_need(file: BorrowedFd<'_>, offset: u64, len: u64, counts: &FileIoCounts) {
    // An error costs only speed: the bytes are read later.
    let taken = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::WillNeed);
    counts.advised.fetch_add(u64::from(taken.is_ok()), Ordering::Relaxed);
}
