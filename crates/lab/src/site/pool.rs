//! Files of one size in a folder. They have random bytes, are written once and used by every run, and are made cold
//! or warm.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use drover_waiters::pinned_pages::PinnedPages;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rustix::fs::FlockOperation;

use crate::failure::Failure;

/// The share of the free space that stays free.
const LEFT_FREE: f64 = 0.1;

/// The number of files, and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of files.
    pub files: u32,
    /// The size of each file in bytes.
    pub bytes: u64,
}

impl Shape {
    /// Files of `bytes` bytes that together have `total` bytes; at least one file.
    #[must_use]
    pub fn of(bytes: u64, total: u64) -> Shape {
        let files = u32::try_from(total / bytes.max(1)).unwrap_or(u32::MAX).max(1);
        Shape { files, bytes }
    }

    /// The size of all files together, in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        u64::from(self.files) * self.bytes
    }
}

/// Files of one size, in a folder without other files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFiles {
    folder: PathBuf,
    shape: Shape,
}

impl PoolFiles {
    /// Writes the files into a folder. Complete files that exist are kept.
    ///
    /// # Errors
    /// [`Failure::NotTestable`] if there is too little space; [`Failure::Failed`] with what the file system says.
    pub fn make(folder: &Path, shape: Shape) -> Result<PoolFiles, Failure> {
        let failed = |path: &Path, error: io::Error| {
            Failure::failed(format!("cannot write {}: {error}", path.display()))
        };
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let folder = folder.canonicalize().map_err(|error| failed(folder, error))?;
        let files = PoolFiles { folder, shape };
        let locked = File::open(&files.folder).map_err(|error| failed(&files.folder, error))?;
        // Another lab that makes these files has completed them when it releases the lock. On a file system without
        // locks, no second lab is expected.
        let _ = rustix::fs::flock(&locked, FlockOperation::LockExclusive);
        let missing: Vec<u32> = (0..shape.files).filter(|file| !files.has(*file)).collect();
        files.look_for_space(missing.len() as u64 * shape.bytes)?;
        let bytes = usize::try_from(shape.bytes).map_err(Failure::failed)?;
        if missing.is_empty() {
            return Ok(files);
        }
        let mut content = vec![0; bytes];
        for file in missing {
            let path = files.path(file);
            files.write(file, &mut content).map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Failure::not_testable(format!("{}: {error}", path.display()))
                }
                _ => failed(&path, error),
            })?;
        }
        // One call for all files: a pool may have tens of thousands of files.
        rustix::fs::syncfs(&locked).map_err(|error| failed(&files.folder, error.into()))?;
        Ok(files)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The paths of the files on a server, a line each. `prefix` is the folder's path on the server.
    #[must_use]
    pub fn urls(&self, prefix: &str) -> String {
        (0..self.shape.files).map(|file| format!("{prefix}/{}\n", name(file))).collect()
    }

    /// The paths of at most `most` files.
    #[must_use]
    pub fn some_paths(&self, most: usize) -> Vec<PathBuf> {
        (0..self.shape.files).take(most).map(|file| self.path(file)).collect()
    }

    /// Drops every file from the page cache.
    ///
    /// # Errors
    /// A page stays in the cache, or the kernel cannot say whether one does: a run would then not measure the disk.
    pub fn make_cold(&self) -> Result<(), Failure> {
        for file in 0..self.shape.files {
            let path = self.path(file);
            let failed = |error: io::Error| {
                Failure::failed(format!("cannot make {} cold: {error}", path.display()))
            };
            let opened = File::open(&path).map_err(failed)?;
            drover_mech::files::bytes::drop_cached_pages(opened.as_fd()).map_err(failed)?;
            let pages =
                drover_mech::files::bytes::cached_pages(opened.as_fd(), 0, self.shape.bytes)
                    .map_err(failed)?;
            if pages > 0 {
                return Err(Failure::not_testable(format!(
                    "{} keeps {pages} pages in the page cache: it is open elsewhere, or on a file \
                     system that has no disk",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Reads every file that is not completely in the page cache.
    ///
    /// # Errors
    /// A page is still missing afterwards, or the kernel cannot say whether one is: a run would then measure the
    /// disk.
    pub fn make_warm(&self) -> Result<(), Failure> {
        let all = self.shape.bytes.div_ceil(drover_mech::files::bytes::page_size());
        for file in 0..self.shape.files {
            let path = self.path(file);
            let failed = |error: io::Error| {
                Failure::failed(format!(
                    "cannot take {} into the page cache: {error}",
                    path.display()
                ))
            };
            let mut opened = File::open(&path).map_err(failed)?;
            let pages = |file: &File| {
                drover_mech::files::bytes::cached_pages(file.as_fd(), 0, self.shape.bytes)
            };
            if pages(&opened).map_err(failed)? < all {
                io::copy(&mut opened, &mut io::sink()).map_err(failed)?;
            }
            let missing = all.saturating_sub(pages(&opened).map_err(failed)?);
            if missing > 0 {
                return Err(Failure::failed(format!(
                    "{} lacks {missing} pages in the page cache: memory is scarce",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// [`PoolFiles::make_warm`] for files that were warm a moment ago. Checks a thousand files, and the others only if
    /// one of the thousand has lost a page.
    ///
    /// # Errors
    /// The errors of [`PoolFiles::make_warm`].
    pub fn keep_warm(&self) -> Result<(), Failure> {
        let step = (self.shape.files / 1000).max(1) as usize;
        let all = self.shape.bytes.div_ceil(drover_mech::files::bytes::page_size());
        let is_warm = |file: u32| -> io::Result<bool> {
            let opened = File::open(self.path(file))?;
            Ok(drover_mech::files::bytes::cached_pages(opened.as_fd(), 0, self.shape.bytes)? == all)
        };
        let mut looked_at = (0..self.shape.files).step_by(step);
        match looked_at.all(|file| is_warm(file).unwrap_or(false)) {
            true => Ok(()),
            false => self.make_warm(),
        }
    }

    /// Locks the pages of every file in memory, until the result is dropped.
    ///
    /// # Errors
    /// [`Failure::Failed`] with what the kernel says.
    pub fn pin(&self) -> Result<Vec<PinnedPages>, Failure> {
        let pin = |path: PathBuf| {
            let failed = |error: io::Error| {
                Failure::failed(format!("cannot hold {} in memory: {error}", path.display()))
            };
            let file = File::open(&path).map_err(failed)?;
            PinnedPages::of(&file, usize::try_from(self.shape.bytes).map_err(Failure::failed)?)
                .map_err(failed)
        };
        (0..self.shape.files).map(|file| pin(self.path(file))).collect()
    }

    fn path(&self, file: u32) -> PathBuf {
        self.folder.join(name(file))
    }

    /// Whether the file exists, has its full length, and has no holes.
    fn has(&self, file: u32) -> bool {
        let bytes = self.shape.bytes;
        fs::metadata(self.path(file))
            .is_ok_and(|found| found.len() == bytes && found.blocks() * 512 >= bytes)
    }

    /// Writes a file under another name, and renames it when it is complete.
    fn write(&self, file: u32, content: &mut [u8]) -> io::Result<()> {
        // Each file has different bytes, without a pattern that a file system could compress or share.
        Xoshiro256PlusPlus::seed_from_u64(u64::from(file)).fill_bytes(content);
        let unfinished = self.folder.join("unfinished");
        let mut written = File::create(&unfinished)?;
        let done = written.write_all(content);
        done.and_then(|()| fs::rename(&unfinished, self.path(file)))
            .inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }

    fn look_for_space(&self, needed: u64) -> Result<(), Failure> {
        let free = drover_mech::files::bytes::free_space(&self.folder).map_err(Failure::failed)?;
        if needed as f64 <= free as f64 * (1.0 - LEFT_FREE) {
            return Ok(());
        }
        Err(Failure::not_testable(format!(
            "{} files of {} bytes need {} MB in {}, where {} MB are free (--pools names another folder)",
            self.shape.files,
            self.shape.bytes,
            needed / 1_000_000,
            self.folder.display(),
            free / 1_000_000
        )))
    }
}

fn name(file: u32) -> String {
    format!("{file:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_once_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape::of(5000, 15_100);
        assert_eq!((shape.files, shape.total()), (3, 15_000));
        let files = PoolFiles::make(folder.path(), shape).unwrap();
        assert_eq!(files.urls("/small"), "/small/000000\n/small/000001\n/small/000002\n");
        let read = |file| fs::read(files.path(file)).unwrap();
        assert!(read(0) != read(1) && read(2).len() == 5000);
        let before = fs::metadata(files.path(0)).unwrap().ino();
        fs::write(files.path(1), "short").unwrap();
        assert_eq!(PoolFiles::make(folder.path(), shape).unwrap(), files);
        assert_eq!(fs::metadata(files.path(0)).unwrap().ino(), before);
        assert_eq!(read(1).len(), 5000);
    }

    #[test]
    fn files_are_made_cold_and_warm() {
        // Beside the test binary, which is on a disk. The folder for temporary files may be in memory.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let files = PoolFiles::make(folder.path(), Shape { files: 2, bytes: 10_000 }).unwrap();
        let pages = || {
            let file = File::open(files.path(1)).unwrap();
            drover_mech::files::bytes::cached_pages(file.as_fd(), 0, 10_000).unwrap()
        };
        if let Err(error) = files.make_cold() {
            return drover_testing::skip!("{error}");
        }
        assert_eq!(pages(), 0);
        let all = 10_000_u64.div_ceil(drover_mech::files::bytes::page_size());
        files.make_warm().unwrap();
        assert_eq!(pages(), all);
        let pinned = files.pin().unwrap();
        assert_eq!(pinned.len(), 2);
        assert!(files.make_cold().is_err() && pages() == all);
    }

    #[test]
    fn files_that_do_not_fit_are_not_testable_here() {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape { files: 1000, bytes: 1 << 50 };
        let failure = PoolFiles::make(folder.path(), shape).unwrap_err();
        assert!(
            matches!(&failure, Failure::NotTestable(why) if why.contains("--pools")),
            "{failure}"
        );
    }
}
