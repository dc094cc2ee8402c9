//! A new file under a hidden name, which gets its own name when it is whole.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::folder::{FileId, Folder};

/// How the names begin and end under which siblings are written. The server does not send them: they begin with a dot.
const PREFIX: &[u8] = b".drover-compress-";
const SUFFIX: &[u8] = b".tmp";

/// Whether a file name is one of a file that is being written, or was when its writer was killed.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// A file that nobody knows of yet. Dropping the value removes the file.
pub(crate) struct TemporaryFile<'d> {
    folder: &'d Folder,
    /// `None`: it has its own name by now.
    name: Option<Vec<u8>>,
    file: File,
    id: FileId,
    len: u64,
    most: u64,
}

impl TemporaryFile<'_> {
    /// A new file in `folder` that may have `most` bytes. Only this user may read it.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn create(folder: &Folder, most: u64) -> io::Result<TemporaryFile<'_>> {
        let number = format!("{:016x}", rand::random::<u64>());
        let name = [PREFIX, number.as_bytes(), SUFFIX].concat();
        let file = File::from(folder.create(&name)?);
        let id = FileId::of(&file)?;
        Ok(TemporaryFile { folder, name: Some(name), file, id, len: 0, most })
    }

    /// The bytes that were written.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether there were more bytes than the file may have.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len > self.most
    }

    /// Gives the file its own name, in place of the file that has it now, if `owner` may replace that. The bytes reach the
    /// disk before the name does: after a power failure, no sibling is shorter than it should be.
    ///
    /// # Errors
    /// Those of fsync(2), [`Folder::may_replace`] and [`Folder::rename`].
    pub(crate) fn publish(mut self, name: &[u8], owner: u32) -> io::Result<()> {
        rustix::fs::fsync(&self.file)?;
        if let Some(entry) = self.folder.entry(name)? {
            self.folder.may_replace(&entry, owner)?;
        }
        if let Some(temporary) = &self.name {
            self.folder.rename(temporary, self.id, name)?;
        }
        self.name = None;
        Ok(())
    }
}

impl AsFd for TemporaryFile<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for TemporaryFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len += bytes.len() as u64;
        if self.is_too_long() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.folder.remove(name, self.id);
        }
    }
}
