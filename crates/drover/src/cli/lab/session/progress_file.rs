//! `progress.json`: how far a session has come that shows its report live.
//!
//! A session that is killed cannot remove `progress.json`. The session therefore holds a lock (flock(2)) on the file;
//! the kernel releases the lock with the process. `drover lab serve` removes a file that nobody locks
//! ([`remove_if_dead`]).

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use drover_lab::journal::try_lock;
use drover_lab::report::PROGRESS;
use serde::{Deserialize, Serialize};

/// What `progress.json` has: the page reads the whole, [`remove_if_dead`] the runs.
#[derive(Debug, Default, Serialize)]
pub(in crate::cli::lab) struct Contents<'a> {
    /// The number of runs that have ended.
    pub(in crate::cli::lab) done: usize,
    /// The number of all runs.
    pub(in crate::cli::lab) of: usize,
    /// How long the remaining runs may take, in words.
    pub(in crate::cli::lab) left: &'a str,
    /// The experiment and cell of the run that is under way.
    pub(in crate::cli::lab) running: &'a str,
    /// Whether the session is over, and its last report written.
    pub(in crate::cli::lab) has_ended: bool,
}

/// The `progress.json` of a session that runs. Dropping the value removes the file, also after a session that failed.
#[derive(Debug)]
pub(in crate::cli::lab) struct ProgressFile {
    path: PathBuf,
    /// The file that was written last, open and locked. Dropping the handle releases the lock.
    locked: RefCell<Option<File>>,
}

impl ProgressFile {
    /// The file in the folder of all sessions. It does not exist before the first [`ProgressFile::write`].
    pub(in crate::cli::lab) fn of(out: &Path) -> ProgressFile {
        ProgressFile { path: out.join(PROGRESS), locked: RefCell::default() }
    }

    /// Replaces `progress.json` by a new file. A reader never sees a part of it, and never an unlocked one: the new
    /// file is written and locked before it gets its name.
    ///
    /// # Errors
    /// What the file system says.
    pub(in crate::cli::lab) fn write(&self, contents: &Contents<'_>) -> io::Result<()> {
        let text = serde_json::to_vec(contents)?;
        let unfinished = self.path.with_extension("new");
        let mut file = File::create(&unfinished)?;
        file.write_all(&text)?;
        // Without locks in the file system, a session that is killed is taken for one that runs.
        let _ = try_lock(&file);
        fs::rename(unfinished, &self.path)?;
        self.locked.replace(Some(file));
        Ok(())
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The number of runs that a session with `--live` had done, and the number of all its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(in crate::cli::lab) struct Dead {
    pub(in crate::cli::lab) done: usize,
    pub(in crate::cli::lab) of: usize,
    /// Whether the session was over when its process was killed, so that no run is missing.
    has_ended: bool,
}

/// Removes the `progress.json` of a folder if the session that wrote it has died, so that the page does not claim that
/// the session runs. `None`: there is no such file, or the session runs, or it was over before it died.
///
/// # Errors
/// What the file system says if the file cannot be removed.
pub(in crate::cli::lab) fn remove_if_dead(folder: &Path) -> io::Result<Option<Dead>> {
    let path = folder.join(PROGRESS);
    let Ok(file) = File::open(&path) else { return Ok(None) };
    // A session locks the file exclusively before the file has its name.
    if !matches!(try_lock(&file), Ok(true)) {
        return Ok(None);
    }
    // A running session may have replaced the file since it was opened here; the old one has no lock any more.
    let is_replaced = fs::metadata(&path).map_or(true, |now| {
        file.metadata().is_ok_and(|opened| (opened.dev(), opened.ino()) != (now.dev(), now.ino()))
    });
    if is_replaced {
        return Ok(None);
    }
    let dead: Dead = serde_json::from_reader(&file).unwrap_or_default();
    fs::remove_file(&path)?;
    Ok((!dead.has_ended).then_some(dead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_file_goes_once_nobody_locks_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(remove_if_dead(folder.path()).unwrap(), None);
        let progress = ProgressFile::of(folder.path());
        for done in 1..3 {
            progress.write(&Contents { done, of: 9, ..Contents::default() }).unwrap();
            assert_eq!(remove_if_dead(folder.path()).unwrap(), None, "the session runs");
        }
        // The kernel closes the files of a process that it kills.
        drop(progress.locked.take());
        assert_eq!(
            remove_if_dead(folder.path()).unwrap(),
            Some(Dead { done: 2, of: 9, has_ended: false })
        );
        assert!(!folder.path().join(PROGRESS).exists());
        progress.write(&Contents { has_ended: true, ..Contents::default() }).unwrap();
        drop(progress.locked.take());
        assert_eq!(remove_if_dead(folder.path()).unwrap(), None, "the session was over");
        assert!(!folder.path().join(PROGRESS).exists());
    }
}
