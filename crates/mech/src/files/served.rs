//! What may be asked of served files on a worker's thread, and how they are closed.
//!
//! A disk that hangs, or the server of a network file system that is gone, must hold up those who ask for its files, and
//! nobody else. So one rule holds for every thread that serves many clients: it makes no call that can wait for a file system,
//! unless a body is read by a backend that waits by its nature (`fileio/`). The rule has two halves, and both are here:
//!
//! - **Looks.** [`FileSystem`] says what the kernel answers from its own memory. Everything else is asked by the threads of
//!   an [`OpenPool`](crate::files::open_pool::OpenPool).
//! - **Closes.** close(2) of a last reference can wait too: FUSE asks its daemon to flush, NFS returns what it was lent, and
//!   every file system frees the blocks of a file that was removed. So a [`ServedFile`] hands its descriptor to those threads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, StatxFlags};

use crate::files::stamp::Stamp;

/// What the kernel knows of the files of a file system without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// A file system of this machine. Names in the kernel's caches can be opened, and attributes of open files are in memory.
    /// A mount of overlayfs counts as one: its layers nearly always are.
    Local,
    /// Another machine or process is asked, but statx(2) with `AT_STATX_DONT_SYNC` returns what the kernel knows of an open
    /// file. Opening asks (FUSE, NFS), also if all names are in the caches.
    Remote,
    /// Any other: nothing is known not to wait.
    Other,
}

impl FileSystem {
    /// The file system of an open file (fstatfs(2)). May wait.
    pub(crate) fn of(file: BorrowedFd<'_>) -> FileSystem {
        // The type of the field differs between architectures; the numbers have 32 bits.
        rustix::fs::fstatfs(file)
            .map_or(FileSystem::Other, |found| FileSystem::of_magic(found.f_type as u32))
    }

    /// The kind of the file system with this number (statfs(2), and the kernel's include/uapi/linux/magic.h).
    fn of_magic(magic: u32) -> FileSystem {
        /// Bcachefs, btrfs, EROFS, exFAT, ext2 to ext4, F2FS, FAT, ISO 9660, JFS, NTFS (ntfs3), overlayfs, procfs, ramfs,
        /// SquashFS, sysfs, tmpfs, UDF, XFS, ZFS.
        const LOCAL: &[u32] = &[
            0xca45_1a4e,
            0x9123_683e,
            0xe0f5_e1e2,
            0x2011_bab0,
            0xef53,
            0xf2f5_2010,
            0x4d44,
            0x9660,
            0x3153_464a,
            0x7366_746e,
            0x794c_7630,
            0x9fa0,
            0x8584_58f6,
            0x7371_7368,
            0x6265_6572,
            0x0102_1994,
            0x1501_3346,
            0x5846_5342,
            0x2fc1_2fc1,
        ];
        /// AFS, Ceph, CIFS and SMB 2, FUSE (virtiofs too), NFS.
        const REMOTE: &[u32] =
            &[0x6b41_4653, 0x00c3_6400, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x6969];
        match magic {
            _ if LOCAL.contains(&magic) => FileSystem::Local,
            _ if REMOTE.contains(&magic) => FileSystem::Remote,
            _ => FileSystem::Other,
        }
    }

    /// The stamp of an open file of this file system, as far as the kernel knows without waiting.
    ///
    /// # Errors
    /// `WouldBlock`: this has to be asked on another thread, by name.
    pub fn stamp(self, file: BorrowedFd<'_>) -> io::Result<Stamp> {
        match self {
            FileSystem::Local => Stamp::of(file),
            FileSystem::Remote => known_stamp(file),
            FileSystem::Other => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// What the kernel knows of an open file, without asking the file system's server (`AT_STATX_DONT_SYNC`).
pub(crate) fn known_stamp(file: BorrowedFd<'_>) -> io::Result<Stamp> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(Stamp::of_statx(&rustix::fs::statx(file, c"", flags, StatxFlags::BASIC_STATS)?))
}

/// Closes descriptors where nobody waits for that.
pub(crate) trait CloseQueue: Send + Sync {
    /// Closes `file` soon.
    fn close(&self, file: OwnedFd);
}

/// A [`CloseQueue`].
#[derive(Clone)]
pub(crate) struct Closer(pub(crate) Arc<dyn CloseQueue>);

impl std::fmt::Debug for Closer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closer")
    }
}

/// An open file or directory that is served. A file that was opened beneath a
/// [`Root`](crate::files::root::Root) which an `OpenPool` looks after is closed by a thread of the pool; any other is
/// closed by whoever drops it, as an [`OwnedFd`] is.
#[derive(Debug)]
pub struct ServedFile {
    /// `None` only while the value is dropped or taken apart.
    fd: Option<OwnedFd>,
    closer: OnceLock<Closer>,
}

impl ServedFile {
    /// Has the file closed by `closer`, if nobody else was asked to before.
    pub(crate) fn close_by(&self, closer: Closer) {
        let _ = self.closer.set(closer);
    }

    /// Who closes the file; `None`: whoever drops it.
    pub(crate) fn closer(&self) -> Option<&Closer> {
        self.closer.get()
    }

    /// The descriptor alone, which its new owner closes.
    ///
    /// # Panics
    /// Never: the descriptor is there as long as the value.
    #[must_use]
    pub fn into_fd(mut self) -> OwnedFd {
        self.fd.take().expect("it is there until the value is dropped")
    }
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        if let (Some(fd), Some(Closer(queue))) = (self.fd.take(), self.closer.get()) {
            queue.close(fd);
        }
    }
}

impl From<OwnedFd> for ServedFile {
    fn from(fd: OwnedFd) -> ServedFile {
        ServedFile { fd: Some(fd), closer: OnceLock::new() }
    }
}

impl From<std::fs::File> for ServedFile {
    fn from(file: std::fs::File) -> ServedFile {
        ServedFile::from(OwnedFd::from(file))
    }
}

impl From<ServedFile> for OwnedFd {
    fn from(file: ServedFile) -> OwnedFd {
        file.into_fd()
    }
}

impl From<ServedFile> for std::fs::File {
    fn from(file: ServedFile) -> std::fs::File {
        file.into_fd().into()
    }
}

impl AsFd for ServedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is there until the value is dropped").as_fd()
    }
}

impl AsRawFd for ServedFile {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Closed(Mutex<Vec<OwnedFd>>);

    impl CloseQueue for Closed {
        fn close(&self, file: OwnedFd) {
            self.0.lock().unwrap().push(file);
        }
    }

    #[test]
    fn a_file_is_closed_by_whoever_looks_after_it() {
        let open = || ServedFile::from(std::fs::File::open("/").unwrap());
        let closed = Arc::new(Closed::default());
        let file = open();
        file.close_by(Closer(closed.clone()));
        let number = file.as_raw_fd();
        drop(file);
        let handed_over = closed.0.lock().unwrap().pop().unwrap();
        assert_eq!(handed_over.as_raw_fd(), number);
        let file = open();
        file.close_by(Closer(closed.clone()));
        drop(OwnedFd::from(file));
        drop(open());
        assert!(closed.0.lock().unwrap().is_empty());
    }

    #[test]
    fn the_kernel_s_own_knowledge_of_a_file_is_that_of_fstat() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(12_345).unwrap();
        let stamp = Stamp::of(file.as_fd()).unwrap();
        assert_eq!(known_stamp(file.as_fd()).unwrap(), stamp);
        assert_eq!(stamp.len, 12_345);
        assert_eq!(FileSystem::Local.stamp(file.as_fd()).unwrap(), stamp);
        assert_eq!(FileSystem::Remote.stamp(file.as_fd()).unwrap(), stamp);
        let unknown = FileSystem::Other.stamp(file.as_fd());
        assert_eq!(unknown.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn file_systems_are_known_by_their_numbers() {
        let of = |path: &str| FileSystem::of(std::fs::File::open(path).unwrap().as_fd());
        assert_eq!(of("/proc/self"), FileSystem::Local);
        assert_eq!(FileSystem::of_magic(0x6573_5546), FileSystem::Remote, "FUSE");
        assert_eq!(FileSystem::of_magic(0x0102_1997), FileSystem::Other, "9p");
    }
}
