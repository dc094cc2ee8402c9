//! A worker's backend with what it sends counted: the bytes of files, by the backend that has sent them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::fileio::{Backend, FileIo, FileIoCounts, FileIoOptions, ReadTimes, Sent, Transfer};
use crate::key::Key;
use drover_sys::waker::Waker;

/// A worker's backend, whose [`FileIo::send`] is counted in [`FileIoCounts::sent`].
pub(crate) struct CountedFileIo {
    inner: Box<dyn FileIo>,
    counts: Arc<FileIoCounts>,
}

impl CountedFileIo {
    /// Opens a backend for one worker.
    ///
    /// # Errors
    /// As [`Backend::open`].
    pub(crate) fn open(
        backend: &Backend,
        options: &FileIoOptions,
        waker: &Arc<Waker>,
    ) -> io::Result<CountedFileIo> {
        let counts = Arc::clone(&options.counts);
        Ok(CountedFileIo { inner: backend.open(options, waker)?, counts })
    }

    /// As [`FileIo::send`].
    pub(crate) fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let head = transfer.head.len();
        let sent = self.inner.send(transfer)?;
        if let Sent::Bytes(count) = sent {
            let of_file = count.saturating_sub(head) as u64;
            let sum = &self.counts.sent[self.inner.sender().place];
            // The worker's thread alone counts here.
            sum.store(sum.load(Ordering::Relaxed) + of_file, Ordering::Relaxed);
        }
        Ok(sent)
    }

    /// As [`FileIo::reap`].
    pub(crate) fn reap(&mut self, ready: &mut Vec<Key>) -> io::Result<()> {
        self.inner.reap(ready)
    }

    /// As [`FileIo::forget`].
    pub(crate) fn forget(&mut self, key: Key) {
        self.inner.forget(key);
    }

    /// As [`FileIo::forget_cached`].
    pub(crate) fn forget_cached(&mut self) {
        self.inner.forget_cached();
    }

    /// As [`FileIo::take_times`].
    pub(crate) fn take_times(&mut self, key: Key) -> ReadTimes {
        self.inner.take_times(key)
    }
}
