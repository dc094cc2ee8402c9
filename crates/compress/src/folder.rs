//! A folder of the site, by its descriptor.
//!
//! Whoever may write to a site can put a link, or another folder, under any name at any time. A descriptor stays with its
//! folder. So everything that is read, written and removed for one file goes through one descriptor of its folder, and a
//! name in that folder is changed only while it is the file that was looked at.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use drover_mech::files::root::Root;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The folder of a path, and the name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// What tells a file from all others while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// # Errors
    /// Those of fstat(2).
    pub(crate) fn of(file: impl AsFd) -> io::Result<FileId> {
        Ok(FileId::new(&rustix::fs::fstat(file)?))
    }

    pub(crate) fn new(stat: &Stat) -> FileId {
        FileId { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// What a name in a folder stood for when it was looked up. A link is the link itself.
///
/// The value keeps the file open (`O_PATH`), so that no other file can get its inode number.
#[derive(Debug)]
pub(crate) struct FolderEntry {
    _open: OwnedFd,
    stat: Stat,
}

impl FolderEntry {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(crate) fn id(&self) -> FileId {
        FileId::new(&self.stat)
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder at `path` beneath the root. No link is followed.
    ///
    /// # Errors
    /// As [`Root::open_directory`].
    pub(crate) fn open(root: &Root, path: &[u8]) -> io::Result<Folder> {
        root.open_directory(path).map(Folder)
    }

    /// The names in the folder with their kinds; a link is a link.
    ///
    /// # Errors
    /// `EACCES`, `EMFILE`, `EIO`.
    pub(crate) fn names(&self) -> io::Result<Vec<(Vec<u8>, FileType)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut found = Vec::new();
        for entry in Dir::new(rustix::fs::openat(&self.0, c".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let kind = match entry.file_type() {
                // Some file systems leave it to stat(2).
                FileType::Unknown => {
                    match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(_) => continue,
                    }
                }
                kind => kind,
            };
            if name != b"." && name != b".." {
                found.push((name.to_owned(), kind));
            }
        }
        Ok(found)
    }

    /// What `name` stands for now; `None`: nothing.
    ///
    /// # Errors
    /// Those of open(2) and fstat(2).
    pub(crate) fn entry(&self, name: &[u8]) -> io::Result<Option<FolderEntry>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&open)?;
        Ok(Some(FolderEntry { _open: open, stat }))
    }

    /// Opens the file at `path` for reading, whose folder this is. A link is followed as the server does, to where it
    /// leads beneath the root.
    ///
    /// # Errors
    /// Those of open(2). `EXDEV`: the link leads out of the root. `ENOENT`: also if `path` leads to another folder now.
    pub(crate) fn open_file(&self, root: &Root, path: &[u8]) -> io::Result<OwnedFd> {
        let name = split(path).1;
        let open = |flags| rustix::fs::openat(&self.0, name, flags, Mode::empty());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        match open(flags | OFlags::NOFOLLOW) {
            Err(Errno::LOOP) => {}
            opened => return Ok(opened?),
        }
        // Only a lookup that starts at the root keeps a link beneath it. The path may lead to another folder by now, so
        // that the result is compared with the name in this folder.
        let target = root.open_file(path)?;
        if FileId::of(&target.fd)? != FileId::of(open(OFlags::PATH | OFlags::CLOEXEC)?)? {
            return Err(Errno::NOENT.into());
        }
        Ok(target.fd.into())
    }

    /// Makes a file for writing that was not there before. Only this user may read it.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn create(&self, name: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.0, name, flags | OFlags::CLOEXEC, mode)?)
    }

    /// Whether the user `owner` could put another file in place of `entry`. In a folder with the sticky bit, such as /tmp,
    /// users cannot replace the files of others: a program that may must not do so for them.
    ///
    /// # Errors
    /// With what helps, if not.
    pub(crate) fn may_replace(&self, entry: &FolderEntry, owner: u32) -> io::Result<()> {
        let folder = rustix::fs::fstat(&self.0)?;
        let user = rustix::process::geteuid().as_raw();
        if replaceable(folder.st_mode, [owner, user], [folder.st_uid, entry.stat.st_uid]) {
            return Ok(());
        }
        let why = "it belongs to another user than its file, in a folder with the sticky bit: remove it, or leave its file \
                   out with --exclude";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Removes `name` if it is the file `id`, which the caller has open. A name that is gone already is no error.
    ///
    /// # Errors
    /// Those of unlink(2). Another file has the name now.
    pub(crate) fn remove(&self, name: &[u8], id: FileId) -> io::Result<()> {
        match self.entry(name)? {
            None => return Ok(()),
            Some(entry) if entry.id() == id => {}
            Some(_) => return Err(replaced(name)),
        }
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the file `id` at `from`, which the caller has open, the name `to`, in place of what has it now.
    ///
    /// # Errors
    /// Those of rename(2). Another file has the name `from` now.
    pub(crate) fn rename(&self, from: &[u8], id: FileId, to: &[u8]) -> io::Result<()> {
        if self.entry(from)?.is_none_or(|entry| entry.id() != id) {
            return Err(replaced(from));
        }
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn replaced(name: &[u8]) -> io::Error {
    let name = drover_usage::printable(&String::from_utf8_lossy(name)).into_owned();
    io::Error::other(format!("somebody has put another file at '{name}' meanwhile; run it again"))
}

/// Whether an entry of a folder may be replaced. In a sticky folder only the owner of the folder or of the entry may: the new
/// file's `owner` must be one of them, or the `user` of this process if that is not root. Being root does not count, since root
/// could replace anything.
fn replaceable(folder_mode: u32, [owner, user]: [u32; 2], [folder, entry]: [u32; 2]) -> bool {
    let is_sticky = Mode::from_raw_mode(folder_mode).contains(Mode::SVTX);
    let may = |user: u32| user == folder || user == entry;
    !is_sticky || may(owner) || user != 0 && may(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sticky_folder_keeps_the_files_of_others() {
        let (root, one, other) = (0, 1000, 1001);
        assert!(
            replaceable(0o777, [one, root], [root, other]),
            "whoever may write there may rename"
        );
        assert!(replaceable(0o1777, [one, root], [root, one]), "the user's own");
        assert!(replaceable(0o1777, [one, root], [one, other]), "in the user's own folder");
        assert!(replaceable(0o1777, [one, other], [root, other]), "by whoever has written it");
        assert!(replaceable(0o1777, [root, root], [root, one]), "root's folder and file");
        assert!(!replaceable(0o1777, [one, root], [root, other]), "for another user");
        assert!(!replaceable(0o1777, [one, root], [root, root]), "of root, for another user");
    }
}
