//! Opening files beneath a root directory. openat2(2) with `RESOLVE_BENEATH` (Linux 5.6) enforces the root.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, Advice, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

mod listing;
mod siblings;

pub use listing::{LISTED_MOST, ListedFile, ListedNames, Listing};
pub use siblings::Sibling;
use siblings::open_siblings;

/// A directory whose files may be opened. Files outside the directory cannot be opened.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    /// The path by which the directory was opened.
    path: PathBuf,
    /// The directory's device and inode numbers.
    identity: (u64, u64),
}

/// An open file, with its attributes from fstat(2).
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, open for reading.
    pub fd: OwnedFd,
    /// Whether the file is a regular file, a directory or something else.
    pub kind: FileKind,
    /// The file's identity, length and times when it was opened.
    pub stamp: Stamp,
    /// The file's bytes, if [`OpenOptions::content`] asked for them. The bytes were read after `stamp` was
    /// taken. If a later [`Stamp::of`] equals `stamp`, the bytes belong to one state of the file.
    pub content: Option<Vec<u8>>,
    /// Whether [`OpenOptions::noatime`] was set and the kernel refused `O_NOATIME`, so that the file was
    /// opened without it.
    pub noatime_refused: bool,
    /// What stands beside a regular file, one for each of [`OpenOptions::siblings`].
    pub siblings: Vec<Sibling>,
    /// What a directory holds, if [`OpenOptions::list`] asked for it.
    pub listing: Option<Listing>,
}

/// Options of [`Root::open_as`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Reading does not change the file's access time (`O_NOATIME`). The kernel allows this only for files
    /// of this process' user, or with `CAP_FOWNER`. Other files are opened without `O_NOATIME`.
    pub noatime: bool,
    /// Announces to the kernel that the file will be read from its beginning to its end (posix_fadvise(2),
    /// `SEQUENTIAL`). The kernel then reads ahead twice as far.
    pub sequential: bool,
    /// The bytes of a regular file of at most this length are read when the file is opened. 0: never.
    pub content: u64,
    /// Suffixes of names: of a regular file `page.html` with the suffix `.gz`, `page.html.gz` is opened too, if it
    /// exists.
    pub siblings: &'static [&'static str],
    /// Which names of a directory are read, if it is opened by a path with a slash at its end.
    pub list: ListedNames,
}

impl OpenOptions {
    /// Sets whether reading the file leaves its access time as it is.
    #[must_use]
    pub const fn with_noatime(self, noatime: bool) -> OpenOptions {
        OpenOptions { noatime, ..self }
    }

    /// Sets whether the kernel is told that the file will be read from its beginning to its end.
    #[must_use]
    pub const fn with_sequential(self, sequential: bool) -> OpenOptions {
        OpenOptions { sequential, ..self }
    }

    /// Sets up to which length a regular file is read at once, in bytes.
    #[must_use]
    pub const fn with_content(self, content: u64) -> OpenOptions {
        OpenOptions { content, ..self }
    }

    /// Sets which files are opened beside a regular file, by what their names have beyond its name.
    #[must_use]
    pub const fn with_siblings(self, siblings: &'static [&'static str]) -> OpenOptions {
        OpenOptions { siblings, ..self }
    }

    /// Sets which names of a directory are read, if it is opened by a path with a slash at its end.
    #[must_use]
    pub const fn with_list(self, list: ListedNames) -> OpenOptions {
        OpenOptions { list, ..self }
    }
}

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

    fn new(stat: &rustix::fs::Stat) -> Stamp {
        Stamp {
            len: stat.st_size as u64,
            modified: stat.st_mtime,
            modified_nanos: stat.st_mtime_nsec as u32,
            inode: stat.st_ino,
            device: stat.st_dev,
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        }
    }
}

/// The kinds of file that a server distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file: a server sends its bytes.
    Regular,
    /// A directory: a server sends its index file, if there is one.
    Directory,
    /// A socket, FIFO or device: a server sends nothing.
    Other,
}

/// The meaning of an error of [`Root::open_file`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no such file beneath the root.
    Missing,
    /// The file exists, but this process may not read it, or the file cannot be read at all: a socket, or
    /// a device without a driver.
    Forbidden,
    /// The process or the system is out of descriptors or memory, or other processes kept renaming files.
    /// Opening may work later.
    Exhausted,
    /// The file system or the root is faulty.
    Broken,
}

impl Cause {
    /// The cause behind an error of [`Root::open_file`].
    #[must_use]
    pub fn of(error: &io::Error) -> Cause {
        match Errno::from_io_error(error) {
            // EXDEV: openat2(2) refuses a path that leads out of the root. EINVAL and EILSEQ: some file
            // systems refuse names that they cannot store.
            Some(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::NAMETOOLONG
                | Errno::LOOP
                | Errno::XDEV
                | Errno::INVAL
                | Errno::ILSEQ,
            ) => Cause::Missing,
            // ENXIO: open(2) refuses a socket.
            Some(Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV) => Cause::Forbidden,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => Cause::Exhausted,
            _ => Cause::Broken,
        }
    }
}

impl Root {
    /// Opens a directory as a root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn open(directory: &Path) -> io::Result<Root> {
        Root::at(directory, ResolveFlags::empty())
    }

    fn at(path: &Path, resolve: ResolveFlags) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&directory)?;
        Ok(Root { directory, path: path.to_owned(), identity: (stat.st_dev, stat.st_ino) })
    }

    /// The path by which the root was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process may not read the directory though its permissions allow it: because this process
    /// has restricted itself (landlock(7)) to directories that do not contain this one.
    pub fn is_out_of_reach(&self) -> bool {
        let opened = open_at(
            self.directory.as_fd(),
            b".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            ResolveFlags::empty(),
        );
        let permitted =
            rustix::fs::accessat(&self.directory, ".", Access::READ_OK, AtFlags::EACCESS);
        opened.is_err_and(|error| error == Errno::ACCESS) && permitted.is_ok()
    }

    /// The path by which the root was opened, for messages.
    pub fn name(&self) -> impl std::fmt::Display + '_ {
        self.path.as_os_str().as_bytes().escape_ascii()
    }

    /// Opens the root's path again. Returns the new root if the path now leads to another directory, and
    /// `None` if the path still leads to this root. A deployment replaces a root by rename(2), or by
    /// changing a symbolic link in its path.
    ///
    /// # Errors
    /// As [`Root::open`]: the path does not lead to a directory now.
    pub fn replaced(&self) -> io::Result<Option<Root>> {
        self.other_than_this(Root::at(&self.path, ResolveFlags::empty()))
    }

    /// Like [`Root::replaced`], but never waits for a disk (`RESOLVE_CACHED`, Linux 5.12).
    ///
    /// # Errors
    /// As [`Root::replaced`]. `WouldBlock`: a disk may be needed.
    pub fn try_replaced_cached(&self) -> io::Result<Option<Root>> {
        self.other_than_this(Root::at(&self.path, ResolveFlags::CACHED).map_err(without_cached))
    }

    fn other_than_this(&self, root: io::Result<Root>) -> io::Result<Option<Root>> {
        let root = root?;
        Ok((root.identity != self.identity).then_some(root))
    }

    /// [`Root::open_as`] with default options.
    ///
    /// # Errors
    /// As [`Root::open_as`].
    pub fn open_file(&self, path: &[u8]) -> io::Result<OpenFile> {
        self.open_as(path, OpenOptions::default())
    }

    /// Opens `path` beneath the root for reading. `path` is relative and consists of raw bytes.
    ///
    /// openat2(2) with `RESOLVE_BENEATH` fails if any step of the path leaves the root, by `..`, an
    /// absolute path or a symbolic link, even while other processes rename directories.
    /// `RESOLVE_NO_MAGICLINKS` refuses the magic links of /proc. With `O_NONBLOCK`, open(2) of a FIFO
    /// does not wait for a writer.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EMFILE`. `EXDEV`: the path leads out of the
    /// root. `EAGAIN`: other processes kept renaming files.
    pub fn open_as(&self, path: &[u8], options: OpenOptions) -> io::Result<OpenFile> {
        let (fd, noatime_refused) =
            self.open_beneath(path, options.noatime, ResolveFlags::empty())?;
        let mut open = OpenFile::new(fd, noatime_refused, options)?;
        if open.is_to_be_read(options) {
            let mut bytes = Vec::new();
            let read = append(open.fd.as_fd(), 0, open.stamp.len as usize, &mut bytes);
            open.content = read.is_ok().then_some(bytes);
        }
        if open.kind == FileKind::Regular {
            open.siblings = open_siblings(path, options, |path, how| self.open_as(path, how))?;
        }
        if open.is_to_be_listed(path, options) {
            open.listing = Some(listing::list(self, open.fd.as_fd(), path, options.list)?);
        }
        Ok(open)
    }

    /// Like [`Root::open_as`], but never waits for a disk. Names must be in the kernel's caches
    /// (`RESOLVE_CACHED`), and bytes in the page cache.
    ///
    /// # Errors
    /// As [`Root::open_as`]. `WouldBlock`: a disk may be needed; before Linux 5.12, every call fails so.
    pub fn try_open_cached(&self, path: &[u8], options: OpenOptions) -> io::Result<OpenFile> {
        let opened = self.open_beneath(path, options.noatime, ResolveFlags::CACHED);
        let (fd, noatime_refused) = opened.map_err(without_cached)?;
        let mut open = OpenFile::new(fd, noatime_refused, options)?;
        if open.is_to_be_read(options) {
            let mut bytes = Vec::new();
            try_append_cached(open.fd.as_fd(), 0, open.stamp.len as usize, &mut bytes)?;
            open.content = Some(bytes);
        }
        if open.kind == FileKind::Regular {
            let open_sibling = |path: &[u8], how| self.try_open_cached(path, how);
            open.siblings = open_siblings(path, options, open_sibling)?;
        }
        if open.is_to_be_listed(path, options) {
            // No flag has getdents64(2) read only what is in memory.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(open)
    }

    /// Opens `path` for reading. Also returns whether `noatime` was asked for and refused.
    fn open_beneath(
        &self,
        path: &[u8],
        noatime: bool,
        more: ResolveFlags,
    ) -> io::Result<(OwnedFd, bool)> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
        let open = |flags| open_at(self.directory.as_fd(), path, flags, resolve);
        if noatime {
            match open(flags | OFlags::NOATIME) {
                // EPERM: the file belongs to another user (open(2), `O_NOATIME`).
                Err(Errno::PERM) => return Ok((open(flags)?, true)),
                opened => return Ok((opened?, false)),
            }
        }
        Ok((open(flags)?, false))
    }

    /// Opens a directory beneath the root with `O_PATH`: the descriptor names the directory, and cannot be
    /// read. No symbolic link is followed.
    ///
    /// # Errors
    /// As [`Root::open_file`]. `ELOOP`: the path contains a symbolic link.
    pub fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(open_at(self.directory.as_fd(), path, flags, resolve)?)
    }

    /// The target of the symbolic link `path`; `None`: `path` is no symbolic link.
    ///
    /// readlinkat(2) does not enforce the root: `path` may lead out of it.
    ///
    /// # Errors
    /// As [`Root::open_file`], without `EXDEV`.
    pub fn read_link(&self, path: &[u8]) -> io::Result<Option<Box<[u8]>>> {
        match rustix::fs::readlinkat(&self.directory, path, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes().into())),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The stamp of the file that `path` names now (fstatat(2)).
    ///
    /// fstatat(2) does not enforce the root: `path` may lead out of it. The stamp may only be compared
    /// with the stamp of an open file, to see whether the name still leads to this file.
    ///
    /// # Errors
    /// As [`Root::open_file`], without `EXDEV`.
    pub fn stamp(&self, path: &[u8]) -> io::Result<Stamp> {
        Ok(Stamp::new(&rustix::fs::statat(&self.directory, path, AtFlags::empty())?))
    }

    /// Like [`Root::stamp`], but never waits for a disk (`RESOLVE_CACHED`, Linux 5.12).
    ///
    /// # Errors
    /// As [`Root::stamp`]. `WouldBlock`: a disk may be needed.
    pub fn try_stamp_cached(&self, path: &[u8]) -> io::Result<Stamp> {
        let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::CACHED);
        let fd = rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve)?;
        Stamp::of(fd.as_fd())
    }
}

/// Turns `EINVAL` into `EAGAIN`. Before Linux 5.12, openat2(2) fails with `EINVAL` for `RESOLVE_CACHED`;
/// callers then proceed as if a disk were needed.
fn without_cached(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => Errno::AGAIN.into(),
        _ => error,
    }
}

/// How often openat2(2) is repeated after `EAGAIN`.
const RENAMES_MOST: u32 = 1000;
/// How many repetitions happen without a pause. After so many, the renaming thread has probably lost its
/// processor in the middle of rename(2), which is common in a virtual machine.
const RENAMES_AT_ONCE: u32 = 100;
/// The pause before each further repetition.
const RENAMES_PAUSE: Duration = Duration::from_millis(1);

/// openat2(2), repeated after `EAGAIN` as its manual page recommends.
///
/// While the path contains `..` and any file on the machine is renamed, the kernel cannot tell whether
/// `..` has left the root, and fails with `EAGAIN`. With `RESOLVE_CACHED`, `EAGAIN` means that a disk may
/// be needed, and is returned.
fn open_at(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let open = || rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    let mut opened = open();
    for asked in 0..RENAMES_MOST {
        if !matches!(opened, Err(Errno::AGAIN)) || resolve.contains(ResolveFlags::CACHED) {
            break;
        }
        if asked >= RENAMES_AT_ONCE {
            std::thread::sleep(RENAMES_PAUSE);
        }
        opened = open();
    }
    opened
}

impl OpenFile {
    /// Asks fstat(2) for the attributes of an open file, and announces sequential reading to the kernel.
    fn new(fd: OwnedFd, noatime_refused: bool, options: OpenOptions) -> io::Result<OpenFile> {
        let stat = rustix::fs::fstat(&fd)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        let open = OpenFile {
            fd,
            kind,
            stamp: Stamp::new(&stat),
            content: None,
            noatime_refused,
            siblings: Vec::new(),
            listing: None,
        };
        if options.sequential && open.kind == FileKind::Regular && !open.is_to_be_read(options) {
            // An error costs only speed.
            let _ = rustix::fs::fadvise(&open.fd, 0, None, Advice::Sequential);
        }
        Ok(open)
    }

    /// Whether the names in the directory are read when it is opened ([`OpenOptions::list`]).
    fn is_to_be_listed(&self, path: &[u8], options: OpenOptions) -> bool {
        self.kind == FileKind::Directory
            && options.list != ListedNames::None
            && path.ends_with(b"/")
    }

    /// Whether the bytes are read when the file is opened ([`OpenOptions::content`]).
    fn is_to_be_read(&self, options: OpenOptions) -> bool {
        self.kind == FileKind::Regular && (1..=options.content).contains(&self.stamp.len)
    }
}

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
    sys::syscall!(
        syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0,)
    )?;
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
/// `UnexpectedEof`: the file ends before, because it was truncated since its length was asked for.
/// Otherwise the error of pread(2).
pub fn append(file: BorrowedFd<'_>, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let before = out.len();
    out.resize(before + len, 0);
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
    out.resize(before + len, 0);
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
mod tests;
