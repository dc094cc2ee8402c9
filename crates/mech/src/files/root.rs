//! Files beneath a root, by the kernel's own rule.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// A directory that nothing is opened outside of.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    /// What it was opened as.
    path: PathBuf,
    /// Its device and its inode number.
    identity: (u64, u64),
}

/// An open file and what fstat(2) said of that same open file.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, open for reading.
    pub fd: OwnedFd,
    /// What it is.
    pub kind: FileKind,
    /// By what it is known again.
    pub stamp: Stamp,
    /// Its bytes, if they were to be read at once: they were read after the stamp was taken, and are of
    /// one state if the stamp is still the same.
    pub content: Option<Vec<u8>>,
    /// Whether it was to be opened without a note of the access time, and could not.
    pub noatime_refused: bool,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Reading it leaves its access time as it is (`O_NOATIME`); only for files of this process' user
    /// or with `CAP_FOWNER`, the others are opened without.
    pub noatime: bool,
    /// The kernel is told that it will be read from its beginning to its end (posix_fadvise(2)), and
    /// reads ahead twice as far.
    pub sequential: bool,
    /// A regular file of at most so many bytes is read at once.
    pub content: u64,
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
}

/// By what a file is known to be the same file with the same bytes: whoever
/// changes these moves the last change, which nobody can set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its length in bytes.
    pub len: u64,
    /// Last modification, seconds since 1970 (negative before).
    pub modified: i64,
    /// Nanoseconds after that second.
    pub modified_nanos: u32,
    /// Inode number; tells two files of one length and time apart.
    pub inode: u64,
    /// The device that the inode number belongs to.
    pub device: u64,
    /// Last change of bytes or attributes: seconds and nanoseconds.
    pub changed: (i64, u32),
}

impl Stamp {
    /// The stamp of an open file (fstat(2)).
    ///
    /// # Errors
    /// `EIO`, on a file system that is reached over a network.
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

/// The kinds of file that a server tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Has bytes to serve.
    Regular,
    /// Has an index to serve, perhaps.
    Directory,
    /// A socket, FIFO or device: nothing to serve.
    Other,
}

/// What it means that [`Root::open_file`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no such file beneath the root.
    Missing,
    /// There is, and this process may not read it, or nobody can: a socket, a
    /// device without driver.
    Forbidden,
    /// The process or the system is out of descriptors or memory, or a rename
    /// kept racing: it may work later.
    Exhausted,
    /// Something is wrong with the file system or the root.
    Broken,
}

impl Cause {
    /// The cause behind an error of [`Root::open_file`].
    #[must_use]
    pub fn of(error: &io::Error) -> Cause {
        match Errno::from_io_error(error) {
            // EXDEV is openat2's word for a path that leads out of the root; EINVAL
            // and EILSEQ are what some file systems say of names they cannot have.
            Some(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::NAMETOOLONG
                | Errno::LOOP
                | Errno::XDEV
                | Errno::INVAL
                | Errno::ILSEQ,
            ) => Cause::Missing,
            // ENXIO is what open(2) says of a socket.
            Some(Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV) => Cause::Forbidden,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => Cause::Exhausted,
            _ => Cause::Broken,
        }
    }
}

impl Root {
    /// Opens the directory.
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

    /// The path that it was opened as, for messages.
    pub fn name(&self) -> impl std::fmt::Display + '_ {
        self.path.as_os_str().as_bytes().escape_ascii()
    }

    /// The directory that the root's path leads to now; `None`: the one that is open. A deployment
    /// replaces a root by a rename, or by relinking a symbolic link on its path.
    ///
    /// # Errors
    /// As [`Root::open`]: the path leads nowhere now.
    pub fn replaced(&self) -> io::Result<Option<Root>> {
        self.other_than_this(Root::at(&self.path, ResolveFlags::empty()))
    }

    /// [`Root::replaced`] as far as that waits for no disk.
    ///
    /// # Errors
    /// As [`Root::replaced`]; `WouldBlock`: a disk may be needed.
    pub fn try_replaced_cached(&self) -> io::Result<Option<Root>> {
        self.other_than_this(Root::at(&self.path, ResolveFlags::CACHED).map_err(without_cached))
    }

    fn other_than_this(&self, root: io::Result<Root>) -> io::Result<Option<Root>> {
        let root = root?;
        Ok((root.identity != self.identity).then_some(root))
    }

    /// [`Root::open_as`] without anything special.
    ///
    /// # Errors
    /// As [`Root::open_as`].
    pub fn open_file(&self, path: &[u8]) -> io::Result<OpenFile> {
        self.open_as(path, OpenOptions::default())
    }

    /// Opens `path` (relative, raw bytes) for reading, beneath the root.
    ///
    /// openat2(2) with `RESOLVE_BENEATH` refuses every resolution that would
    /// leave the root at any step, by `..`, an absolute path or a symbolic link,
    /// and cannot be raced; `RESOLVE_NO_MAGICLINKS` refuses those of /proc.
    /// `O_NONBLOCK` keeps a FIFO from blocking the worker in open(2).
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`; `EXDEV` when the
    /// path leads outside; `EMFILE`; `EAGAIN` when a rename kept racing.
    pub fn open_as(&self, path: &[u8], options: OpenOptions) -> io::Result<OpenFile> {
        let (fd, noatime_refused) =
            self.open_beneath(path, options.noatime, ResolveFlags::empty())?;
        let mut open = OpenFile::new(fd, noatime_refused, options)?;
        if open.is_to_be_read(options) {
            let mut bytes = Vec::new();
            let read = append(open.fd.as_fd(), 0, open.stamp.len as usize, &mut bytes);
            open.content = read.is_ok().then_some(bytes);
        }
        Ok(open)
    }

    /// [`Root::open_as`] as far as that waits for no disk: names and attributes that the kernel has
    /// at hand (`RESOLVE_CACHED`), bytes that are in the page cache.
    ///
    /// # Errors
    /// As [`Root::open_as`]; `WouldBlock`: a disk may be needed. That is what a kernel before 5.12
    /// always says.
    pub fn try_open_cached(&self, path: &[u8], options: OpenOptions) -> io::Result<OpenFile> {
        let opened = self.open_beneath(path, options.noatime, ResolveFlags::CACHED);
        let (fd, noatime_refused) = opened.map_err(without_cached)?;
        let mut open = OpenFile::new(fd, noatime_refused, options)?;
        if open.is_to_be_read(options) {
            let mut bytes = Vec::new();
            try_append_cached(open.fd.as_fd(), 0, open.stamp.len as usize, &mut bytes)?;
            open.content = Some(bytes);
        }
        Ok(open)
    }

    /// Opens for reading, and says whether the access time has to be noted although it should not.
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
                // Somebody else's file: open(2).
                Err(Errno::PERM) => return Ok((open(flags)?, true)),
                opened => return Ok((opened?, false)),
            }
        }
        Ok((open(flags)?, false))
    }

    /// Opens a directory beneath the root as a place (`O_PATH`); no symbolic link
    /// is followed.
    ///
    /// # Errors
    /// As [`Root::open_file`]; `ELOOP` for a path with a symbolic link.
    pub fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(open_at(self.directory.as_fd(), path, flags, resolve)?)
    }

    /// Where `path` leads if it is a symbolic link; `None`: it is something else.
    /// As with [`Root::stamp`], the way to it is not held to the root.
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

    /// The stamp of what `path` names now (fstatat(2)).
    ///
    /// The way to it is not held to the root: it tells whether an open file is
    /// still the named one, and nothing else should be asked of it.
    ///
    /// # Errors
    /// As [`Root::open_file`], without `EXDEV`.
    pub fn stamp(&self, path: &[u8]) -> io::Result<Stamp> {
        Ok(Stamp::new(&rustix::fs::statat(&self.directory, path, AtFlags::empty())?))
    }

    /// [`Root::stamp`] as far as that waits for no disk.
    ///
    /// # Errors
    /// As [`Root::stamp`]; `WouldBlock`: a disk may be needed.
    pub fn try_stamp_cached(&self, path: &[u8]) -> io::Result<Stamp> {
        let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::CACHED);
        let fd = rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve)?;
        Stamp::of(fd.as_fd())
    }
}

/// A kernel before 5.12 does not know `RESOLVE_CACHED`: to it, a disk may always be needed.
fn without_cached(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL) => Errno::AGAIN.into(),
        _ => error,
    }
}

/// How often openat2(2) is asked again when something was renamed meanwhile.
const RENAMES_MOST: u32 = 1000;
/// After so many times there is a pause before the next: whoever renames has lost its processor, as in
/// a virtual machine, and is in the middle of it until it has one again.
const RENAMES_AT_ONCE: u32 = 100;
const RENAMES_PAUSE: Duration = Duration::from_millis(1);

/// openat2(2). When anything is renamed while it looks at a `..`, it cannot say whether that led out of
/// the root: `EAGAIN`, and its manual has it asked again. With `RESOLVE_CACHED`, `EAGAIN` is an answer.
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
    /// What fstat(2) says of an open file; the kernel is told how it will be read.
    fn new(fd: OwnedFd, noatime_refused: bool, options: OpenOptions) -> io::Result<OpenFile> {
        let stat = rustix::fs::fstat(&fd)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        let open = OpenFile { fd, kind, stamp: Stamp::new(&stat), content: None, noatime_refused };
        if options.sequential && open.kind == FileKind::Regular && !open.is_to_be_read(options) {
            // Advice: where it is not taken, nothing is lost.
            let _ = rustix::fs::fadvise(&open.fd, 0, None, Advice::Sequential);
        }
        Ok(open)
    }

    fn is_to_be_read(&self, options: OpenOptions) -> bool {
        self.kind == FileKind::Regular && (1..=options.content).contains(&self.stamp.len)
    }
}

/// How many pages of the file's `len` bytes from `offset` on are in the page cache, by cachestat(2)
/// (Linux 6.5). A page whose read is still under way counts too.
///
/// # Errors
/// `ENOSYS` when the kernel is older; `EOPNOTSUPP` for files without page cache.
pub fn cached_pages(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    /// One number on every architecture.
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    // cached, dirty, under write-back, evicted, recently evicted
    let mut pages = [0u64; 5];
    // SAFETY: both arrays have the layout of the call's structures, and outlive it.
    sys::syscall!(
        syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0,)
    )?;
    Ok(pages[0])
}

/// The bytes of a page of the page cache.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// Opens a file for reads past the page cache (`O_DIRECT`): buffers, offsets and lengths have to be
/// multiples of the disk's blocks, 4096 bytes at most.
///
/// # Errors
/// `EINVAL` when the file system cannot do that; otherwise as open(2).
pub fn open_direct(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// The bytes that an ordinary user may still write to the file system of `path`: statvfs(3).
///
/// # Errors
/// What the kernel says.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail * found.f_frsize)
}

/// How many bytes were written to the disk below `folder` since it was there, after everything that
/// its file system holds back has been written (syncfs(2)).
///
/// # Errors
/// What the kernel says; `NotFound` if the file system has no disk of its own.
pub fn bytes_written_to_disk(folder: &Path) -> io::Result<u64> {
    /// Whatever the disk's blocks are.
    const SECTOR: u64 = 512;
    let folder = std::fs::File::open(folder)?;
    rustix::fs::syncfs(&folder)?;
    let device = rustix::fs::fstat(&folder)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    // The seventh: sectors written (Documentation/block/stat.rst).
    let sectors = stat.split_whitespace().nth(6).and_then(|field| field.parse::<u64>().ok());
    Ok(SECTOR * sectors.ok_or(io::ErrorKind::InvalidData)?)
}

/// Drops the file's clean pages from the page cache, as far as nobody is using them:
/// posix_fadvise(2) with `DONTNEED`. Bytes that were not written to the disk yet (fsync(2)) stay.
///
/// # Errors
/// What the kernel says.
pub fn drop_cached_pages(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Appends the `len` bytes of `file` from `offset` on to `out`, which keeps
/// what it has if that fails.
///
/// # Errors
/// `UnexpectedEof` when the file is shorter than that (it was truncated since
/// its length was asked for); otherwise what pread(2) says.
pub fn append(file: BorrowedFd<'_>, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let before = out.len();
    out.resize(before + len, 0);
    let read = read_exact(file, offset, &mut out[before..]);
    if read.is_err() {
        out.truncate(before);
    }
    read
}

/// [`append`] as far as that waits for no disk.
///
/// # Errors
/// As [`append`]; `WouldBlock`: some of the bytes are not in the page cache, or the file system cannot
/// say (FUSE).
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

/// Whether the file has no disk behind it, but memory (or swap): tmpfs, which does not know
/// `RWF_NOWAIT`.
///
/// Only such files can be sealed (fcntl(2), `F_GET_SEALS`), and the kernel knows that by itself. The
/// name of the file system would be asked of its server where it has one (statfs(2) of FUSE or NFS),
/// which may be waiting for a disk.
pub(crate) fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok()
}

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

/// The name that an open file had last, for messages: what /proc says of its
/// descriptor.
#[must_use]
pub fn name_of(file: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(&link).unwrap_or_else(|_| PathBuf::from(link))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

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
                None => testing::skip!("no file can be made in {}", folder.display()),
            }
        }
        let of_proc = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(!is_in_memory(of_proc.as_fd()));
    }

    #[test]
    fn opens_files_and_tells_their_kind() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::File::create(directory.path().join("a")).unwrap().write_all(b"abc").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let file = root.open_file(b"a").unwrap();
        assert_eq!((file.kind, file.stamp.len), (FileKind::Regular, 3));
        assert!(file.stamp.modified > 0 && file.stamp.modified_nanos < 1_000_000_000);
        assert_eq!(root.open_file(b"").unwrap().kind, FileKind::Directory);
        assert_eq!(Cause::of(&root.open_file(b"b").unwrap_err()), Cause::Missing);
        std::os::unix::net::UnixListener::bind(directory.path().join("s")).unwrap();
        assert_eq!(Cause::of(&root.open_file(b"s").unwrap_err()), Cause::Forbidden);
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

    #[test]
    fn small_files_come_with_their_bytes_if_asked_for() {
        // Not in /tmp, whose file system may not know what it has at hand.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(directory.path().join("a"), b"abc").unwrap();
        std::fs::write(directory.path().join("empty"), b"").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let options = OpenOptions { content: 3, noatime: true, sequential: true };
        assert_eq!(root.open_as(b"a", options).unwrap().content.as_deref(), Some(&b"abc"[..]));
        assert_eq!(
            root.open_as(b"a", OpenOptions { content: 2, ..options }).unwrap().content,
            None
        );
        assert_eq!(root.open_as(b"empty", options).unwrap().content, None);
        assert!(!root.open_as(b"a", options).unwrap().noatime_refused, "it is our own file");
        // Written just now and looked up: all of it is at hand.
        match root.try_open_cached(b"a", options) {
            Ok(open) => assert_eq!(open.content.as_deref(), Some(&b"abc"[..])),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                testing::skip!("this file system or kernel cannot say what is at hand");
            }
        }
        assert_eq!(Cause::of(&root.open_as(b"b", options).unwrap_err()), Cause::Missing);
        if let Ok(stamp) = root.try_stamp_cached(b"a") {
            assert_eq!(stamp, root.stamp(b"a").unwrap());
        }
    }

    #[test]
    fn files_of_others_are_opened_though_their_access_time_is_noted() {
        let root = Root::open(Path::new("/")).unwrap();
        let options = OpenOptions { noatime: true, ..OpenOptions::default() };
        let open = root.open_as(b"proc/version", options).unwrap();
        // To root in a user namespace it is a file of others, too.
        let noatime = OFlags::RDONLY | OFlags::NOATIME;
        let refused = rustix::fs::open("/proc/version", noatime, Mode::empty()).is_err();
        assert_eq!((open.kind, open.noatime_refused), (FileKind::Regular, refused));
    }

    /// Any rename on the machine has openat2(2) say `EAGAIN` of a way with `..` in it.
    #[test]
    fn links_upwards_open_while_something_is_renamed() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("file"), b"abc").unwrap();
        // A long way, so that a rename falls into it.
        let up_and_down = "../sub/".repeat(50);
        symlink(format!("{up_and_down}../file"), at("sub/link")).unwrap();
        std::fs::write(at("one"), b"").unwrap();
        let directory_path = format!("sub/{up_and_down}").into_bytes();
        let root = Root::open(directory.path()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::fs::rename(at("one"), at("other")).unwrap();
                    std::fs::rename(at("other"), at("one")).unwrap();
                }
            });
            let mut refused = (0, 0, 0);
            for _ in 0..20_000 {
                refused.0 += u32::from(root.open_file(b"sub/link").is_err());
                refused.1 += u32::from(root.open_directory(&directory_path).is_err());
                // What is not at hand is for a thread; nothing else is wrong.
                let opened = root.try_open_cached(b"sub/link", OpenOptions::default());
                let wrong = opened.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
                refused.2 += u32::from(wrong);
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(refused, (0, 0, 0));
        });
    }

    #[test]
    fn nothing_outside_the_root_opens() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(directory.path().join("secret"), "s").unwrap();
        symlink("../secret", inside.join("relative")).unwrap();
        symlink("/etc/passwd", inside.join("absolute")).unwrap();
        let root = Root::open(&inside).unwrap();
        for path in [&b"../secret"[..], b"relative", b"absolute", b"/etc/passwd", b"x/../../secret"]
        {
            let error = root.open_file(path).unwrap_err();
            assert_eq!(Cause::of(&error), Cause::Missing, "{}", path.escape_ascii());
        }
    }
}
