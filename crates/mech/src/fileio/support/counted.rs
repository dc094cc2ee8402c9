//! A worker's backend with what it sends counted: the bytes of files, by the backend that has sent them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::fileio::{Backend, FileIo, FileIoCounts, FileIoOptions, ReadTimes, Sent, Transfer};
use crate::key::Key;
use drover_sys::waker::Waker;

/// A worker's backend, whose [`FileIo::send`] and [`FileIo::read`] are counted in [`FileIoCounts::sent`].
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
            self.count(self.inner.sender(), count.saturating_sub(head));
        }
        Ok(sent)
    }

    /// As [`FileIo::read`].
    pub(crate) fn read(&mut self, transfer: Transfer<'_>, into: &mut Vec<u8>) -> io::Result<Sent> {
        let read = self.inner.read(transfer, into)?;
        if let Sent::Bytes(count) = read {
            self.count(self.inner.reader(), count);
        }
        Ok(read)
    }

    fn count(&self, backend: &Backend, bytes: usize) {
        let sum = &self.counts.sent[backend.place];
        // The worker's thread alone counts here.
        sum.store(sum.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
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
