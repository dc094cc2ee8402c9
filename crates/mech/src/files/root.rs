//! Opening files beneath a root directory. openat2(2) with `RESOLVE_BENEATH` (Linux 5.6) enforces the root.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_sys::errno::is_exhaustion;
use rustix::fs::{Access, Advice, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::files::served::{Closer, FileSystem, ServedFile, known_stamp};
pub use crate::files::stamp::Stamp;

mod content;
mod expected;
mod listing;
mod siblings;

pub use expected::ExpectedName;
pub use listing::{LISTED_MOST, ListedFile, ListedNames, Listing};
pub use siblings::Sibling;
use siblings::open_siblings;

/// A directory whose files may be opened. Files outside the directory cannot be opened.
#[derive(Debug)]
pub struct Root {
    directory: ServedFile,
    /// The path by which the directory was opened.
    path: PathBuf,
    /// The directory's device and inode numbers.
    identity: (u64, u64),
    symlinks: Symlinks,
    file_system: FileSystem,
    /// See [`Root::is_out_of_reach`].
    out_of_reach: bool,
}

/// Which symbolic links beneath a root are followed. The links in the path of the root itself always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Symlinks {
    /// None.
    Never,
    /// Those that lead to files beneath the root, by a relative path that stays beneath the root.
    #[default]
    Inside,
    /// All but the magic links of /proc. Whoever can make a link beneath the root can have every file opened that this
    /// process may read.
    Any,
}

impl Symlinks {
    /// The rule for the kernel.
    fn resolve_flags(self) -> ResolveFlags {
        match self {
            Symlinks::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Any => ResolveFlags::NO_MAGICLINKS,
        }
    }
}

/// An open file, with its attributes from fstat(2).
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, open for reading.
    pub fd: ServedFile,
    /// What the kernel knows of the file without asking anybody.
    pub file_system: FileSystem,
    /// Whether the file is a regular file, a directory or something else.
    pub kind: FileKind,
    /// The file's identity, length and times when it was opened.
    pub stamp: Stamp,
    /// The file's bytes, if [`OpenOptions::content`] asked for them. The bytes were read after `stamp` was
    /// taken. If a later [`Stamp::of`] equals `stamp`, the bytes belong to one state of the file.
    pub content: Option<Vec<u8>>,
    /// The XXH3 hash of `content` in 128 bits, if [`OpenOptions::digest`] asked for it. Equal bytes have equal digests
    /// on every machine.
    pub digest: Option<u128>,
    /// Whether the file system does not report the file's length, as procfs and sysfs do not: `content` is what one
    /// read to the end of the file returned, and `stamp` tells nothing of a later one.
    pub unmeasured: bool,
    /// Whether [`OpenOptions::noatime`] was set and the kernel refused `O_NOATIME`, so that the file was
    /// opened without it.
    pub noatime_refused: bool,
    /// What stands beside a regular file, one for each of [`OpenOptions::siblings`].
    pub siblings: Vec<Sibling>,
}

/// Options of [`Root::open_as`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Reading does not change the file's access time (`O_NOATIME`). The kernel allows this only for files
    /// of this process' user, or with `CAP_FOWNER`. Other files are opened without `O_NOATIME`.
    pub noatime: bool,
    /// Announces to the kernel that the file will be read from its beginning to its end (posix_fadvise(2),
    /// `SEQUENTIAL`). The kernel then reads ahead twice as far.
    pub sequential: bool,
    /// The bytes of a regular file of at most this length are read when the file is opened. 0: never.
    pub content: u64,
    /// Bytes that are read when the file is opened get a digest.
    pub digest: bool,
    /// Suffixes of names: of a regular file `page.html` with the suffix `.gz`, `page.html.gz` is opened too, if it
    /// exists.
    pub siblings: &'static [&'static str],
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
    /// The file exists, but this process may not read it, or the file cannot be read at all: a socket, a
    /// device without a driver, or a very long file of procfs.
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
            // EFBIG: too long to be read without knowing its length ([`OpenFile::unmeasured`]).
            Some(Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV | Errno::FBIG) => {
                Cause::Forbidden
            }
            Some(Errno::AGAIN) => Cause::Exhausted,
            _ if is_exhaustion(error) => Cause::Exhausted,
            _ => Cause::Broken,
        }
    }
}

impl Root {
    /// Opens a directory as a root. Links are followed as [`Symlinks::Inside`] says.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn open(directory: &Path) -> io::Result<Root> {
        Root::at(directory)
    }

    /// The root that another process has opened by `path`, and whose descriptor it has passed on.
    ///
    /// # Errors
    /// `ENOTDIR`: the descriptor is none of a directory.
    pub fn of(path: PathBuf, directory: OwnedFd) -> io::Result<Root> {
        let stat = rustix::fs::fstat(&directory)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let identity = (stat.st_dev, stat.st_ino);
        let (file_system, symlinks) = (FileSystem::of(directory.as_fd()), Symlinks::default());
        let directory = ServedFile::from(directory);
        Ok(Root { directory, path, identity, symlinks, file_system, out_of_reach: false })
    }

    fn at(path: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::empty();
        let directory = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)?;
        Root::of(path.to_owned(), directory)
    }

    /// Has everything that is opened beneath the root, and in the end the root itself, closed by `closer`.
    pub(crate) fn close_by(&self, closer: Closer) {
        self.directory.close_by(closer);
    }

    /// Sets which links are followed.
    #[must_use]
    pub fn with_symlinks(self, symlinks: Symlinks) -> Root {
        Root { symlinks, ..self }
    }

    /// Which links are followed.
    pub fn symlinks(&self) -> Symlinks {
        self.symlinks
    }

    /// The directory's device and inode numbers.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The path by which the root was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process' user may look names up in the root, and in every directory of its path.
    ///
    /// # Errors
    /// `EACCES`: the user may not.
    pub fn may_be_searched(&self) -> io::Result<()> {
        let inside = self.path.join(".");
        Ok(rustix::fs::accessat(rustix::fs::CWD, inside, Access::EXEC_OK, AtFlags::EACCESS)?)
    }

    /// Whether this process may not read the directory though its permissions allow it: because this process
    /// has restricted itself (landlock(7)) to directories that do not contain this one. Only [`Root::replaced`] finds out.
    pub fn is_out_of_reach(&self) -> bool {
        self.out_of_reach
    }

    fn looks_out_of_reach(&self) -> bool {
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

    /// The open directory, to be passed on to another process ([`Root::of`]).
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
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
        let root = Root::at(&self.path)?.with_symlinks(self.symlinks);
        if root.identity == self.identity {
            return Ok(None);
        }
        if let Some(closer) = self.directory.closer() {
            root.close_by(closer.clone());
        }
        let out_of_reach = root.looks_out_of_reach();
        Ok(Some(Root { out_of_reach, ..root }))
    }

    /// Whether the root's path leads to another directory now, which [`Root::replaced`] returns. Never waits for a disk
    /// (`RESOLVE_CACHED`, Linux 5.12).
    ///
    /// # Errors
    /// As [`Root::replaced`]. `WouldBlock`: a disk may be needed. That is the case also for a new link in the path: following
    /// it for the first time changes its access time.
    pub fn try_is_replaced_cached(&self) -> io::Result<bool> {
        if self.file_system != FileSystem::Local {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = self.path.as_os_str().as_bytes();
        let directory = open_at(rustix::fs::CWD, path, flags, ResolveFlags::CACHED);
        let found = known_stamp(directory.map_err(|error| without_cached(error.into()))?.as_fd())?;
        Ok((found.device, found.inode) != self.identity)
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
    /// absolute path or a symbolic link, even while other processes rename directories. With
    /// [`Symlinks::Any`] the kernel enforces no root, and a path with `..` is refused here.
    /// `RESOLVE_NO_MAGICLINKS` refuses the magic links of /proc. With `O_NONBLOCK`, open(2) of a FIFO
    /// does not wait for a writer.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EMFILE`. `EXDEV`: the path leads out of the
    /// root. `EAGAIN`: other processes kept renaming files.
    pub fn open_as(&self, path: &[u8], options: OpenOptions) -> io::Result<OpenFile> {
        let (fd, noatime_refused) =
            self.open_beneath(path, options.noatime, ResolveFlags::empty())?;
        let mut open = self.opened(fd, noatime_refused, options)?;
        if open.stamp.device != self.identity.0 {
            open.file_system = FileSystem::of(open.fd.as_fd());
        }
        open.read_content(options)?;
        if open.kind == FileKind::Regular {
            open.siblings = open_siblings(path, options, |path, how| self.open_as(path, how))?;
        }
        Ok(open)
    }

    /// Like [`Root::open_as`], but never waits for a disk. Names must be in the kernel's caches
    /// (`RESOLVE_CACHED`), and bytes in the page cache. The file must be on the root's own mount (`RESOLVE_NO_XDEV`), and
    /// that of a file system which opens files without asking anybody ([`FileSystem::Local`]).
    ///
    /// # Errors
    /// As [`Root::open_as`]. `WouldBlock`: a disk may be needed; before Linux 5.12, every call fails so.
    pub fn try_open_cached(&self, path: &[u8], options: OpenOptions) -> io::Result<OpenFile> {
        let opened = self.open_beneath(path, options.noatime, self.cached_only()?);
        let (fd, noatime_refused) = opened.map_err(without_cached)?;
        let mut open = self.opened(fd, noatime_refused, options)?;
        open.try_read_content(options)?;
        if open.kind == FileKind::Regular {
            let open_sibling = |path: &[u8], how| self.try_open_cached(path, how);
            open.siblings = open_siblings(path, options, open_sibling)?;
        }
        Ok(open)
    }

    /// Reads what `directory` holds, which `path` led to beneath the root. May wait for a disk, however much of the directory
    /// is in memory: no flag has getdents64(2) say that it would.
    ///
    /// # Errors
    /// Those of getdents64(2). A name that has gone meanwhile is left out. `ENOTDIR`: it is no directory.
    pub fn list(
        &self,
        directory: &OpenFile,
        path: &[u8],
        names: ListedNames,
    ) -> io::Result<Listing> {
        listing::list(self, directory.fd.as_fd(), path, names)
    }

    /// What has openat2(2) use nothing but the kernel's caches.
    ///
    /// # Errors
    /// `WouldBlock`: the root is on a file system that asks somebody all the same.
    fn cached_only(&self) -> io::Result<ResolveFlags> {
        match self.file_system {
            FileSystem::Local => Ok(ResolveFlags::CACHED | ResolveFlags::NO_XDEV),
            FileSystem::Remote | FileSystem::Other => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// What was opened beneath the root, with its attributes.
    fn opened(
        &self,
        fd: OwnedFd,
        noatime_refused: bool,
        options: OpenOptions,
    ) -> io::Result<OpenFile> {
        let fd = ServedFile::from(fd);
        if let Some(closer) = self.directory.closer() {
            fd.close_by(closer.clone());
        }
        OpenFile::new(fd, self.file_system, noatime_refused, options)
    }

    /// Opens `path` for reading. Also returns whether `noatime` was asked for and refused.
    fn open_beneath(
        &self,
        path: &[u8],
        noatime: bool,
        more: ResolveFlags,
    ) -> io::Result<(OwnedFd, bool)> {
        let path = if path.is_empty() { b"." } else { path };
        if self.symlinks == Symlinks::Any && leads_up(path) {
            return Err(Errno::XDEV.into());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let resolve = self.symlinks.resolve_flags() | more;
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
    /// with the stamp of an open file, to see whether the name still leads to this file. With
    /// [`Symlinks::Never`] a path with a link has no stamp (`ELOOP`): the name may lead to the same file by
    /// a link now.
    ///
    /// # Errors
    /// As [`Root::open_file`], without `EXDEV`.
    pub fn stamp(&self, path: &[u8]) -> io::Result<Stamp> {
        if self.symlinks == Symlinks::Never {
            return self.stamp_by_open(path, self.symlinks.resolve_flags());
        }
        Ok(Stamp::new(&rustix::fs::statat(&self.directory, path, AtFlags::empty())?))
    }

    /// Like [`Root::stamp`], but never waits for a disk (`RESOLVE_CACHED`, Linux 5.12).
    ///
    /// # Errors
    /// As [`Root::stamp`]. `WouldBlock`: a disk may be needed.
    pub fn try_stamp_cached(&self, path: &[u8]) -> io::Result<Stamp> {
        let resolve = match self.symlinks {
            Symlinks::Never => self.symlinks.resolve_flags(),
            Symlinks::Inside | Symlinks::Any => ResolveFlags::empty(),
        };
        self.stamp_by_open(path, self.cached_only()? | resolve).map_err(without_cached)
    }

    /// The stamp of what openat2(2) finds with these flags.
    fn stamp_by_open(&self, path: &[u8], resolve: ResolveFlags) -> io::Result<Stamp> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Stamp::of(open_at(self.directory.as_fd(), path, flags, resolve)?.as_fd())
    }
}

/// Whether a path is absolute, or a name in it is `..`.
fn leads_up(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|name| name == b"..")
}

/// Turns `EINVAL` and `EXDEV` into `EAGAIN`. Before Linux 5.12, openat2(2) fails with `EINVAL` for `RESOLVE_CACHED`;
/// `EXDEV`: the path leads to another mount, or out of the root. Callers then proceed as if a disk were needed.
fn without_cached(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL | Errno::XDEV) => Errno::AGAIN.into(),
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
    fn new(
        fd: ServedFile,
        file_system: FileSystem,
        noatime_refused: bool,
        options: OpenOptions,
    ) -> io::Result<OpenFile> {
        let stat = rustix::fs::fstat(&fd)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        let open = OpenFile {
            fd,
            file_system,
            kind,
            stamp: Stamp::new(&stat),
            content: None,
            digest: None,
            unmeasured: false,
            noatime_refused,
            siblings: Vec::new(),
        };
        if options.sequential && open.kind == FileKind::Regular && !open.is_to_be_read(options) {
            // An error costs only speed.
            let _ = rustix::fs::fadvise(&open.fd, 0, None, Advice::Sequential);
        }
        Ok(open)
    }

    /// Whether the bytes are read when the file is opened ([`OpenOptions::content`]).
    fn is_to_be_read(&self, options: OpenOptions) -> bool {
        self.kind == FileKind::Regular && (1..=options.content).contains(&self.stamp.len)
    }
}

#[cfg(test)]
mod tests;
