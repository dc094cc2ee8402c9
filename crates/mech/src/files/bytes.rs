//! The bytes of open files: read from the page cache or the disk, counted, dropped.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use drover_sys::reserve::try_resize;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// How many pages of the `len` bytes from `offset` on are in the page cache, by cachestat(2) (Linux 6.5).
/// The count includes pages that are still being read.
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EOPNOTSUPP` for a file without page cache.
pub fn cached_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    /// The number of the system call, equal on all architectures.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    // `struct cachestat`: pages cached, dirty, under write-back, evicted, recently evicted.
    let mut pages = [0u64; 5];
    // SAFETY: the arrays have the layouts of `struct cachestat_range` and `struct cachestat`, and outlive
    // the call.
    drover_sys::syscall!(syscall(
        SYS_CACHESTAT,
        file.as_raw_fd(),
        range.as_ptr(),
        pages.as_mut_ptr(),
        0,
    ))?;
    Ok(pages[0])
}

/// The size of a page of the page cache, in bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Opens a file for reads that bypass the page cache (`O_DIRECT`). Buffer addresses, offsets and lengths
/// must be multiples of the disk's block size, which is at most 4096 bytes.
///
/// # Errors
/// `EINVAL`: the file system does not support `O_DIRECT`. Otherwise as open(2).
pub fn open_direct(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// How many bytes an unprivileged user may still write to the file system of `path` (statvfs(3)).
///
/// # Errors
/// The error of statvfs(3).
pub fn free_space(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail * found.f_frsize)
}

/// How many bytes have been written to the disk of `folder` since the kernel found the disk. The function
/// first writes all dirty pages of the file system to the disk (syncfs(2)).
///
/// # Errors
/// `NotFound`: the file system has no block device of its own. Otherwise the error of a system call.
pub fn bytes_written_to_disk(folder: &Path) -> io::Result<u64> {
    /// The kernel counts in sectors of 512 bytes, for every block size of the disk.
    const SECTOR: u64 = 512;
    let folder = std::fs::File::open(folder)?;
    rustix::fs::syncfs(&folder)?;
    let device = rustix::fs::fstat(&folder)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    // Field 7: sectors written (the kernel's Documentation/block/stat.rst).
    let sectors = stat.split_whitespace().nth(6).and_then(|field| field.parse::<u64>().ok());
    Ok(SECTOR * sectors.ok_or(io::ErrorKind::InvalidData)?)
}

/// Drops the file's pages from the page cache (posix_fadvise(2), `DONTNEED`). Dirty pages stay until
/// fsync(2) has written them to the disk; so do pages in use, for example mapped ones.
///
/// # Errors
/// The error of posix_fadvise(2).
pub fn drop_cached_pages(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Appends `len` bytes of `file` from `offset` on to `out`. After an error, `out` is unchanged.
///
/// # Errors
/// `UnexpectedEof`: the file ends before, because it was truncated since its length was asked for. `ENOMEM`.
/// Otherwise the error of pread(2).
pub fn append(file: BorrowedFd<'_>, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let before = out.len();
    try_resize(out, before + len, 0)?;
    let read = read_exact(file, offset, &mut out[before..]);
    if read.is_err() {
        out.truncate(before);
    }
    read
}

/// Like [`append`], but never waits for a disk: preadv2(2) with `RWF_NOWAIT`.
///
/// # Errors
/// As [`append`]. `WouldBlock`: some of the bytes are not in the page cache, or the file system has a disk
/// and does not support `RWF_NOWAIT` (FUSE).
pub fn try_append_cached(
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let before = out.len();
    try_resize(out, before + len, 0)?;
    let mut into = [IoSliceMut::new(&mut out[before..])];
    let read = match rustix::io::preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT) {
        Ok(count) if count == len => return Ok(()),
        Ok(_) => Err(Errno::AGAIN.into()),
        Err(Errno::OPNOTSUPP) if is_in_memory(file) => read_exact(file, offset, &mut out[before..]),
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN.into()),
        Err(error) => Err(error.into()),
    };
    if read.is_err() {
        out.truncate(before);
    }
    read
}

/// Whether a file has no bytes, without waiting for a disk. A file's length does not always tell: files of procfs have the
/// length 0.
///
/// # Errors
/// `WouldBlock`: a disk may be needed, or the file is of a file system without `RWF_NOWAIT`, as procfs is.
pub(crate) fn try_is_empty(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT) {
        Ok(count) => Ok(count == 0),
        Err(Errno::OPNOTSUPP) if is_in_memory(file) => {
            Ok(rustix::io::pread(file, &mut byte, 0)? == 0)
        }
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN.into()),
        Err(error) => Err(error.into()),
    }
}

/// Appends all bytes of `file` to `out`, but not many more than `most`. Returns whether these are all.
///
/// # Errors
/// The error of pread(2).
pub(crate) fn append_to_end(
    file: BorrowedFd<'_>,
    most: usize,
    out: &mut Vec<u8>,
) -> io::Result<bool> {
    /// The kernel fills at most a page per call for many files of procfs and sysfs.
    const STEP: usize = 64 * 1024;
    loop {
        let before = out.len();
        try_resize(out, before + STEP, 0)?;
        let read = rustix::io::pread(file, &mut out[before..], before as u64);
        out.truncate(before + read.unwrap_or(0));
        match read? {
            0 => return Ok(true),
            _ if out.len() > most => return Ok(false),
            _ => {}
        }
    }
}

/// Whether the file's bytes are in memory or swap, without a disk: a file on tmpfs, which does not support
/// `RWF_NOWAIT`.
///
/// fcntl(2) with `F_GET_SEALS` succeeds only for such files, and never waits. statfs(2) would tell the file
/// system's type, but asks the server of FUSE or NFS, which may wait for a disk.
pub(crate) fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok()
}

/// Fills `buffer` with bytes of `file` from `offset` on.
///
/// # Errors
/// As [`append`].
fn read_exact(file: BorrowedFd<'_>, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        let count = rustix::io::pread(file, &mut *buffer, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += count as u64;
        buffer = &mut buffer[count..];
    }
    Ok(())
}

/// The last known path of an open file, from /proc/self/fd, for messages.
#[must_use]
pub fn name_of(file: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(&link).unwrap_or_else(|_| PathBuf::from(link))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::root::Root;

    #[test]
    fn a_file_in_memory_is_told_without_its_file_system_s_name() {
        const TMPFS_MAGIC: libc::__fsword_t = 0x0102_1994;
        let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in [here, "/dev/shm".as_ref(), "/tmp".as_ref()] {
            let made = || {
                let file = tempfile::tempfile_in(folder).ok()?;
                let system = rustix::fs::fstatfs(&file).ok()?;
                Some((file, system.f_type == TMPFS_MAGIC))
            };
            match made() {
                Some((file, in_memory)) => assert_eq!(is_in_memory(file.as_fd()), in_memory),
                None => drover_testing::skip!("no file can be made in {}", folder.display()),
            }
        }
        let of_proc = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(!is_in_memory(of_proc.as_fd()));
    }

    #[test]
    fn appends_a_part_of_a_file_or_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), b"abcdef").unwrap();
        let file = Root::open(directory.path()).unwrap().open_file(b"a").unwrap().fd;
        let mut out = b"-".to_vec();
        append(file.as_fd(), 2, 3, &mut out).unwrap();
        assert_eq!(out, b"-cde");
        let error = append(file.as_fd(), 2, 5, &mut out).unwrap_err();
        assert_eq!((error.kind(), &out[..]), (io::ErrorKind::UnexpectedEof, &b"-cde"[..]));
        assert!(name_of(file.as_fd()).ends_with("a"));
    }
}
