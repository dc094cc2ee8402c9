//! Files beneath a root, by the kernel's own rule.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// A directory that nothing is opened outside of.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// An open file and what fstat(2) said of that same open file.
#[derive(Debug)]
pub struct OpenFile {
    /// The descriptor, open for reading.
    pub fd: OwnedFd,
    /// What it is.
    pub kind: FileKind,
    /// Its length in bytes.
    pub len: u64,
    /// Last modification, nanoseconds since 1970 (negative before).
    pub modified_ns: i128,
    /// Inode number; tells two files of one length and time apart.
    pub inode: u64,
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

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn open(directory: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root(rustix::fs::open(directory, flags, Mode::empty())?))
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
    pub fn open_file(&self, path: &[u8]) -> io::Result<OpenFile> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::fs::openat2(self.0.as_fd(), path, flags, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&fd)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        Ok(OpenFile {
            fd,
            kind,
            len: stat.st_size as u64,
            modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
            inode: stat.st_ino,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn opens_files_and_tells_their_kind() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::File::create(directory.path().join("a")).unwrap().write_all(b"abc").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let file = root.open_file(b"a").unwrap();
        assert_eq!((file.kind, file.len), (FileKind::Regular, 3));
        assert!(file.modified_ns > 0);
        assert_eq!(root.open_file(b"").unwrap().kind, FileKind::Directory);
        assert_eq!(root.open_file(b"b").unwrap_err().kind(), io::ErrorKind::NotFound);
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
            assert!(root.open_file(path).is_err(), "{}", path.escape_ascii());
        }
    }
}
