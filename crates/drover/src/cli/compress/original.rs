//! A file of the site, open for reading, with what its siblings take over from it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use drover_mech::files::root::{Cause, FileKind, Root, Stamp};
use rustix::fs::{Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

/// The kernel takes the times of files from a clock that ticks up to once in 10 ms (`CONFIG_HZ`): a second change within
/// a tick leaves the times as they are. A file is read only when its last change is longer ago than this.
const TICK: Duration = Duration::from_millis(20);

/// How often a file that is being written is waited for.
const WAITS: u32 = 3;

/// A regular file, open for reading.
pub(super) struct OriginalFile {
    file: File,
    /// The file's stamp before any byte was read.
    pub(super) stamp: Stamp,
    stat: Stat,
    /// Whether any change since `stamp` was taken shows in a later stamp.
    is_settled: bool,
}

impl OriginalFile {
    /// Opens the file that `path` leads to beneath the root, as a server does. `None`: there is none, or it is no
    /// regular file, or a link leads to it from outside.
    ///
    /// # Errors
    /// `EACCES`, `EMFILE`, `EIO`.
    pub(super) fn open(root: &Root, path: &[u8]) -> io::Result<Option<OriginalFile>> {
        let open = match root.open_file(path) {
            Ok(open) if open.kind == FileKind::Regular => open,
            Ok(_) => return Ok(None),
            Err(error) if Cause::of(&error) == Cause::Missing => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut stamp = open.stamp;
        for _ in 0..WAITS {
            if !is_young(&stamp) {
                break;
            }
            thread::sleep(TICK);
            stamp = Stamp::of(open.fd.as_fd())?;
        }
        let (stat, is_settled) = (rustix::fs::fstat(&open.fd)?, !is_young(&stamp));
        Ok(Some(OriginalFile { file: File::from(open.fd), stamp, stat, is_settled }))
    }

    /// Whether the file certainly is as it was when it was opened.
    pub(super) fn is_as_it_was(&self) -> bool {
        self.is_settled && Stamp::of(self.file.as_fd()).is_ok_and(|now| now == self.stamp)
    }

    /// The file's bytes from its beginning. Reading fails once `stop` is set, and is counted in `bytes_read`.
    pub(super) fn read<'f>(
        &'f self,
        stop: &'f AtomicBool,
        bytes_read: &'f AtomicU64,
    ) -> OriginalReader<'f> {
        OriginalReader { file: &self.file, at: 0, stop, bytes_read }
    }

    /// Gives `sibling` the file's time, its owner and group as far as this user may, and its permissions: nobody can
    /// read the sibling who cannot read the file.
    ///
    /// # Errors
    /// `EPERM` if the sibling belongs to another user.
    pub(super) fn give_attributes(&self, sibling: BorrowedFd<'_>) -> io::Result<()> {
        let mut mode = self.stat.st_mode & 0o777;
        if !self.give_owner(sibling)? {
            // The group's permissions are for the group of the file.
            mode &= !0o070;
        }
        rustix::fs::fchmod(sibling, Mode::from_raw_mode(mode))?;
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
pub(super) struct OriginalReader<'f> {
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
        let opened =
            OriginalFile::open(&Root::open(folder.path()).unwrap(), b"a").unwrap().unwrap();
        assert!(!is_young(&opened.stamp), "it was opened while a change would not have shown");
    }
}
