//! What tells one state of a file from another.

use std::io;
use std::os::fd::BorrowedFd;

/// Identity, length and times of a file. While two stamps are equal, the file's bytes are unchanged: each
/// change of a file updates the time of its last change (`st_ctime`), and no system call sets this time to
/// a chosen value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The file's length in bytes.
    pub len: u64,
    /// The time of the last change of the file's bytes (`st_mtime`), in whole seconds since 1970; negative
    /// before 1970.
    pub modified: i64,
    /// The nanoseconds of the second `modified`.
    pub modified_nanos: u32,
    /// The inode number. Distinguishes two files with equal lengths and times.
    pub inode: u64,
    /// The device on which the inode number is unique.
    pub device: u64,
    /// The time of the last change of the file's bytes or attributes (`st_ctime`): seconds since 1970, and
    /// nanoseconds.
    pub changed: (i64, u32),
}

impl Stamp {
    /// The stamp of an open file (fstat(2)).
    ///
    /// # Errors
    /// `EIO`, for example on a network file system.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Stamp> {
        Ok(Stamp::new(&rustix::fs::fstat(file)?))
    }

    /// The stamp of a file with these attributes (stat(3type)).
    #[must_use]
    pub fn new(stat: &rustix::fs::Stat) -> Stamp {
        Stamp {
            len: stat.st_size as u64,
            modified: stat.st_mtime,
            modified_nanos: stat.st_mtime_nsec as u32,
            inode: stat.st_ino,
            device: stat.st_dev,
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }

    pub(super) fn of_statx(stat: &rustix::fs::Statx) -> Stamp {
        Stamp {
            len: stat.stx_size,
            modified: stat.stx_mtime.tv_sec,
            modified_nanos: stat.stx_mtime.tv_nsec,
            inode: stat.stx_ino,
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }
}
