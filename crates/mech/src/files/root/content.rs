//! The bytes that are read when a file is opened, and their digest.
//!
//! The thread that reads the bytes makes the digest: a thread of the pool, or the worker if the bytes were in the page
//! cache. XXH3 hashes as fast as memory is copied, so the digest of [`OpenOptions::content`] bytes costs about as much
//! as reading them did. It is no cryptographic hash: it tells versions of a file apart, and proves nothing.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use twox_hash::XxHash3_128;

use super::{FileKind, OpenFile, OpenOptions, Stamp};
use crate::files::bytes::{append, append_to_end, try_append_cached, try_is_empty};

/// How many bytes are read at most of a file whose length its file system does not report.
const UNMEASURED_MOST: usize = 4 << 20;

impl OpenFile {
    /// Reads what `options` ask for, and all of a file whose length is reported wrongly. May wait for a disk.
    ///
    /// # Errors
    /// `EFBIG`: a file of unknown length is longer than 4 MiB. Otherwise the error of pread(2) for such a file. Other
    /// files that cannot be read have no content.
    pub(super) fn read_content(&mut self, options: OpenOptions) -> io::Result<()> {
        if self.kind != FileKind::Regular {
            return Ok(());
        }
        let mut bytes = Vec::new();
        if self.is_to_be_read(options) {
            match append(self.fd.as_fd(), 0, self.stamp.len as usize, &mut bytes) {
                Ok(()) => self.set_content(bytes, options),
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof && self.is_as_it_was() =>
                {
                    self.read_unmeasured()?;
                }
                Err(_) => {}
            }
        } else if self.stamp.len == 0 {
            self.read_unmeasured()?;
            if !self.unmeasured {
                self.set_content(bytes, options);
            }
        }
        Ok(())
    }

    /// Like [`OpenFile::read_content`], but never waits for a disk.
    ///
    /// # Errors
    /// `WouldBlock`: a disk may be needed.
    pub(super) fn try_read_content(&mut self, options: OpenOptions) -> io::Result<()> {
        let mut bytes = Vec::new();
        if self.is_to_be_read(options) {
            try_append_cached(self.fd.as_fd(), 0, self.stamp.len as usize, &mut bytes)?;
            self.set_content(bytes, options);
        } else if self.kind == FileKind::Regular && self.stamp.len == 0 {
            if !try_is_empty(self.fd.as_fd())? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.set_content(bytes, options);
        }
        Ok(())
    }

    fn set_content(&mut self, bytes: Vec<u8>, options: OpenOptions) {
        if options.content > 0 {
            self.digest = options.digest.then(|| XxHash3_128::oneshot(&bytes));
            self.content = Some(bytes);
        }
    }

    /// Whether nobody has changed the file since it was opened.
    fn is_as_it_was(&self) -> bool {
        Stamp::of(self.fd.as_fd()).is_ok_and(|stamp| stamp == self.stamp)
    }

    /// Reads a file to its end, if there are bytes where its length says that there are none, or fewer than it says.
    fn read_unmeasured(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let is_whole = append_to_end(self.fd.as_fd(), UNMEASURED_MOST, &mut bytes)?;
        // Bytes that somebody has just written belong to a later state of an ordinary file.
        if (self.stamp.len == 0 && bytes.is_empty()) || !self.is_as_it_was() {
            return Ok(());
        }
        if !is_whole {
            return Err(Errno::FBIG.into());
        }
        (self.unmeasured, self.content) = (true, Some(bytes));
        Ok(())
    }
}
