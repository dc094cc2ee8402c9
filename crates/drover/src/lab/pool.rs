//! Pools of files to be served: random bytes, written once and used by every run, made cold or warm
//! on demand.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use waiters::pinned_pages::PinnedPages;

use crate::error::UsageError;

/// The share of the free space that stays free.
const LEFT_FREE: f64 = 0.1;

/// Files of one size in a folder of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    folder: PathBuf,
    files: u32,
    bytes: u64,
}

impl Pool {
    /// A pool of `files` files of `bytes` bytes each, in a folder below `parent` that is named after
    /// both. Files that are there already and complete are kept.
    ///
    /// # Errors
    /// A [`UsageError`] if the space is too small; what the file system says.
    pub fn make(parent: &Path, files: u32, bytes: u64) -> anyhow::Result<Pool> {
        let folder = parent.join(format!("{files}x{bytes}"));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let pool = Pool { folder, files, bytes };
        let missing: Vec<u32> = (0..files).filter(|file| !pool.has(*file)).collect();
        pool.look_for_space(missing.len() as u64 * bytes)?;
        let mut content = vec![0; usize::try_from(bytes).context("a file is too big")?];
        for file in missing {
            let path = pool.path(file);
            pool.write(file, &mut content)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(pool)
    }

    /// The folder that holds the files and nothing else.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The paths of the files on a server whose root is the pool's folder, a line each.
    pub fn urls(&self) -> String {
        (0..self.files).map(|file| format!("/{}\n", name(file))).collect()
    }

    /// The paths of so many of the files, or of all.
    pub fn some_paths(&self, most: usize) -> Vec<PathBuf> {
        (0..self.files).take(most).map(|file| self.path(file)).collect()
    }

    /// Drops every file from the page cache.
    ///
    /// # Errors
    /// When a page stays, or the kernel cannot say whether one does: what would be measured then is
    /// not the disk.
    pub fn make_cold(&self) -> anyhow::Result<()> {
        for file in 0..self.files {
            let path = self.path(file);
            let context = || format!("cannot make {} cold", path.display());
            let opened = File::open(&path).with_context(context)?;
            mech::fs::drop_cached_pages(opened.as_fd()).with_context(context)?;
            let pages =
                mech::fs::cached_pages(opened.as_fd(), 0, self.bytes).with_context(context)?;
            if pages > 0 {
                bail!(
                    "{} keeps {pages} pages in the page cache: is it open elsewhere, or on a file \
                     system that has no disk?",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// Reads every file that is not wholly in the page cache, so that it is.
    ///
    /// # Errors
    /// When a page is missing afterwards, or the kernel cannot say whether one is: what would be
    /// measured then is the disk.
    pub fn make_warm(&self) -> anyhow::Result<()> {
        let all = self.bytes.div_ceil(mech::fs::page_size());
        for file in 0..self.files {
            let path = self.path(file);
            let context = || format!("cannot take {} into the page cache", path.display());
            let mut opened = File::open(&path).with_context(context)?;
            let pages = |opened: &File| {
                mech::fs::cached_pages(opened.as_fd(), 0, self.bytes).with_context(context)
            };
            if pages(&opened)? < all {
                io::copy(&mut opened, &mut io::sink()).with_context(context)?;
            }
            let missing = all.saturating_sub(pages(&opened)?);
            if missing > 0 {
                bail!(
                    "{} lacks {missing} pages in the page cache: is memory scarce?",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// Takes every file into the page cache, where they stay for as long as what is returned is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn hold(&self) -> anyhow::Result<Vec<PinnedPages>> {
        let hold = |path: PathBuf| {
            let context = || format!("cannot hold {} in memory", path.display());
            let file = File::open(&path).with_context(context)?;
            let len = usize::try_from(self.bytes).context("a file is too big")?;
            PinnedPages::of(&file, len).with_context(context)
        };
        (0..self.files).map(|file| hold(self.path(file))).collect()
    }

    fn path(&self, file: u32) -> PathBuf {
        self.folder.join(name(file))
    }

    /// Whether the file is there, as long as it should be and without holes.
    fn has(&self, file: u32) -> bool {
        fs::metadata(self.path(file))
            .is_ok_and(|found| found.len() == self.bytes && found.blocks() * 512 >= self.bytes)
    }

    /// Writes one under another name and renames it when it is on the disk.
    fn write(&self, file: u32, content: &mut [u8]) -> io::Result<()> {
        // Other bytes in each, and no pattern that a file system could compress or share.
        Xoshiro256PlusPlus::seed_from_u64(u64::from(file)).fill_bytes(content);
        let unfinished = self.folder.join("unfinished");
        let mut written = File::create(&unfinished)?;
        written.write_all(content)?;
        written.sync_all()?;
        fs::rename(&unfinished, self.path(file))
    }

    fn look_for_space(&self, needed: u64) -> anyhow::Result<()> {
        let free = mech::fs::free_space(&self.folder).context("cannot tell the free space")?;
        if needed as f64 <= free as f64 * (1.0 - LEFT_FREE) {
            return Ok(());
        }
        Err(UsageError::new(format!(
            "{} files of {} bytes need {} MB in {}, where {} MB are free: take a smaller --preset, or \
             another folder by --pools",
            self.files,
            self.bytes,
            needed / 1_000_000,
            self.folder.display(),
            free / 1_000_000
        ))
        .into())
    }
}

fn name(file: u32) -> String {
    format!("{file:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_written_once_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::make(folder.path(), 3, 5000).unwrap();
        assert_eq!(pool.urls(), "/000000\n/000001\n/000002\n");
        let read = |file| fs::read(pool.path(file)).unwrap();
        assert!(read(0) != read(1) && read(2).len() == 5000);
        let before = fs::metadata(pool.path(0)).unwrap().ino();
        fs::write(pool.path(1), "short").unwrap();
        assert_eq!(Pool::make(folder.path(), 3, 5000).unwrap(), pool);
        assert_eq!(fs::metadata(pool.path(0)).unwrap().ino(), before);
        assert_eq!(read(1).len(), 5000);
    }

    #[test]
    fn a_pool_is_made_cold_and_warm() {
        // Beside the program: a disk, where the folder for temporary files may be memory.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let pool = Pool::make(folder.path(), 2, 10_000).unwrap();
        let pages = || {
            let file = File::open(pool.path(1)).unwrap();
            mech::fs::cached_pages(file.as_fd(), 0, 10_000).unwrap()
        };
        if let Err(error) = pool.make_cold() {
            return testing::skip!("{error:#}");
        }
        assert_eq!(pages(), 0);
        let all = 10_000_u64.div_ceil(mech::fs::page_size());
        pool.make_warm().unwrap();
        assert_eq!(pages(), all);
        let held = pool.hold().unwrap();
        assert_eq!(held.len(), 2);
        assert!(pool.make_cold().is_err() && pages() == all);
        drop(held);
    }

    #[test]
    fn a_pool_that_does_not_fit_names_the_flags() {
        let folder = tempfile::tempdir().unwrap();
        let error = Pool::make(folder.path(), 1000, 1 << 50).unwrap_err();
        assert!(error.is::<UsageError>());
        assert!(error.to_string().contains("--preset"), "{error}");
    }
}
