//! A file of the site, open for reading, with what its siblings take over from it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use drover_mech::files::root::{Cause, Root, Stamp};
use rustix::fs::{
    FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, fgetxattr,
    fgetxattr_query,
};
use rustix::io::Errno;

use crate::folder::Folder;

/// The attribute with a file's access control list: who may do what beside owner, group and others (acl(5)).
const ACCESS_LIST: &str = "system.posix_acl_access";

/// The kernel takes the times of files from a clock that ticks up to once in 10 ms (`CONFIG_HZ`): a second change within
/// a tick leaves the times as they are. A file is read only when its last change is longer ago than this.
const TICK: Duration = Duration::from_millis(20);

/// How often a file that is being written is waited for.
const WAITS: u32 = 3;

/// A regular file, open for reading.
pub(crate) struct OriginalFile {
    file: File,
    /// The file's stamp before any byte was read.
    pub(crate) stamp: Stamp,
    stat: Stat,
    /// The file's [`ACCESS_LIST`]. The group's permissions in `stat` are the most that anybody has in that list.
    access_list: Option<Vec<u8>>,
    /// Whether any change since `stamp` was taken shows in a later stamp.
    is_settled: bool,
}

impl OriginalFile {
    /// Opens the file that `path`, whose folder is `folder`, leads to beneath the root, as a server does. `None`: there is
    /// none, or it is no regular file, or a link leads to it from outside.
    ///
    /// # Errors
    /// `EACCES`, `EMFILE`, `EIO`.
    pub(crate) fn open(
        root: &Root,
        folder: &Folder,
        path: &[u8],
    ) -> io::Result<Option<OriginalFile>> {
        let file = match folder.open_file(root, path) {
            Ok(file) => File::from(file),
            Err(error) if Cause::of(&error) == Cause::Missing => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        for _ in 0..WAITS {
            if !is_young(&Stamp::new(&stat)) {
                break;
            }
            thread::sleep(TICK);
            stat = rustix::fs::fstat(&file)?;
        }
        let stamp = Stamp::new(&stat);
        let is_settled = !is_young(&stamp);
        let access_list = access_list(file.as_fd())?;
        Ok(Some(OriginalFile { file, stamp, stat, access_list, is_settled }))
    }

    /// The user that the file belongs to.
    pub(crate) fn owner(&self) -> u32 {
        self.stat.st_uid
    }

    /// Whether the file certainly is as it was when it was opened.
    pub(crate) fn is_as_it_was(&self) -> bool {
        self.is_settled && Stamp::of(self.file.as_fd()).is_ok_and(|now| now == self.stamp)
    }

    /// The file's bytes from its beginning. Reading fails once `stop` is set, and is counted in `bytes_read`.
    pub(crate) fn read<'f>(
        &'f self,
        stop: &'f AtomicBool,
        bytes_read: &'f AtomicU64,
    ) -> OriginalReader<'f> {
        OriginalReader { file: &self.file, at: 0, stop, bytes_read }
    }

    /// Gives `sibling`, a new file of this user that nobody else may open yet, the file's owner and group as far as this
    /// user may, its permissions and its time. Nobody can read the sibling who cannot read the file, and what runs as its
    /// owner (setuid) stays with the file.
    ///
    /// # Errors
    /// Those of fchown(2), fchmod(2) and futimens(2).
    pub(crate) fn give_attributes(&self, sibling: BorrowedFd<'_>) -> io::Result<()> {
        let mut mode = self.mode();
        if self.give_owner(sibling)? {
            if !self.give_access_list(sibling)? {
                mode &= 0o700;
            }
        } else {
            mode = of_another_group(mode, self.access_list.is_some());
            remove_access_list(sibling)?;
        }
        rustix::fs::fchmod(sibling, Mode::from_raw_mode(mode))?;
        self.give_time(sibling)
    }

    /// Gives a sibling that was there before the file's permissions and time, if that takes rights away at most: it has the
    /// file's owner, group and access list, all the permissions already, and no other name. Otherwise somebody may have put a
    /// file there that is meant for something else; nothing is done, and `false` is returned.
    ///
    /// # Errors
    /// `EPERM`: this user may not.
    pub(crate) fn refresh(&self, sibling: BorrowedFd<'_>) -> io::Result<bool> {
        let (now, mode) = (rustix::fs::fstat(sibling)?, self.mode());
        let is_its_own = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile
            && now.st_nlink == 1
            && (now.st_uid, now.st_gid) == (self.stat.st_uid, self.stat.st_gid)
            && mode & !now.st_mode == 0
            && access_list(sibling)? == self.access_list;
        if is_its_own {
            rustix::fs::fchmod(sibling, Mode::from_raw_mode(mode))?;
            self.give_time(sibling)?;
        }
        Ok(is_its_own)
    }

    /// Who may read and write the file: setuid, setgid and sticky bits are not for siblings.
    fn mode(&self) -> u32 {
        self.stat.st_mode & 0o777
    }

    fn give_time(&self, sibling: BorrowedFd<'_>) -> io::Result<()> {
        let modified =
            Timespec { tv_sec: self.stamp.modified, tv_nsec: self.stamp.modified_nanos.into() };
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: modified,
        };
        Ok(rustix::fs::futimens(sibling, &times)?)
    }

    /// Whether the sibling has the file's group now.
    fn give_owner(&self, sibling: BorrowedFd<'_>) -> io::Result<bool> {
        let now = rustix::fs::fstat(sibling)?;
        let (owner, group) = (Uid::from_raw(self.stat.st_uid), Gid::from_raw(self.stat.st_gid));
        let is_same_group = now.st_gid == self.stat.st_gid;
        if is_same_group && now.st_uid == self.stat.st_uid {
            return Ok(true);
        }
        // Root alone may give a file away; its owner may give it to a group of his.
        for owner in [Some(owner), None] {
            match rustix::fs::fchown(sibling, owner, Some(group)) {
                Ok(()) => return Ok(true),
                Err(Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(is_same_group)
    }

    /// Whether the sibling has the file's access list now, which may be none. A folder may give one to all new files in it.
    fn give_access_list(&self, sibling: BorrowedFd<'_>) -> io::Result<bool> {
        match &self.access_list {
            None => remove_access_list(sibling).map(|()| true),
            Some(list) => {
                let given = rustix::fs::fsetxattr(sibling, ACCESS_LIST, list, XattrFlags::empty());
                Ok(given.is_ok())
            }
        }
    }
}

/// A file's [`ACCESS_LIST`], if it has one.
fn access_list(file: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut list = Vec::new();
    let read = fgetxattr_query(file, ACCESS_LIST).and_then(|len| {
        list.reserve_exact(len);
        fgetxattr(file, ACCESS_LIST, rustix::buffer::spare_capacity(&mut list))
    });
    match read {
        Ok(_) => Ok(Some(list)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn remove_access_list(file: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::fremovexattr(file, ACCESS_LIST) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The permissions of a sibling that has another group than its file: nothing for that group, and for all others no more
/// than the file's group had, whose members are among them now.
fn of_another_group(mode: u32, has_access_list: bool) -> u32 {
    match has_access_list {
        true => mode & 0o700,
        false => mode & 0o700 | mode & (mode >> 3) & 0o007,
    }
}

/// Whether a file has changed so lately that a further change might not show in its stamp.
fn is_young(stamp: &Stamp) -> bool {
    let (seconds, nanos) = stamp.changed;
    let since = Duration::new(u64::try_from(seconds).unwrap_or(0), nanos);
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since);
    // A time in the future, by another machine's clock, says nothing.
    age.is_ok_and(|age| age < TICK)
}

/// Reads a file from its beginning, whoever else reads it by the same descriptor.
pub(crate) struct OriginalReader<'f> {
    file: &'f File,
    at: u64,
    stop: &'f AtomicBool,
    bytes_read: &'f AtomicU64,
}

impl Read for OriginalReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            // Not `Interrupted`, which readers answer by reading again.
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_may_read_a_sibling_of_another_group_who_may_not_read_its_file() {
        let of = |mode| of_another_group(mode, false);
        assert_eq!(
            [0o644, 0o640, 0o604, 0o664, 0o755].map(of),
            [0o604, 0o600, 0o600, 0o604, 0o705]
        );
        assert_eq!(of_another_group(0o664, true), 0o600);
    }

    #[test]
    fn a_file_is_young_for_a_tick_of_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let stamp = Root::open(folder.path()).and_then(|root| root.stamp(b"a")).unwrap();
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let changed = |time: SystemTime| {
            let since = since(time);
            Stamp { changed: (since.as_secs().cast_signed(), since.subsec_nanos()), ..stamp }
        };
        let now = SystemTime::now();
        assert!(!is_young(&changed(now - TICK)));
        assert!(!is_young(&changed(now + Duration::from_secs(60))));
        assert!(!is_young(&Stamp { changed: (-1, 0), ..stamp }));
        let root = Root::open(folder.path()).unwrap();
        let folder = Folder::open(&root, b"").unwrap();
        let opened = OriginalFile::open(&root, &folder, b"a").unwrap().unwrap();
        assert!(!is_young(&opened.stamp), "it was opened while a change would not have shown");
    }
}
