//! The folders of sessions: their names, the newest one, and the files that a resumed session reads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::journal::{self, JournalError};
use crate::plan::Selection;
use crate::record;

/// The name of the file with the selection of an experiment.
const SELECTION: &str = "selection.json";

/// UTC, in a form that sorts by time in file names: `20010625-090000`.
fn stamp(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.trim_end_matches('Z').replace(['-', ':'], "").replace('T', "-")
}

/// Creates a folder with a new name.
///
/// # Errors
/// What the file system says.
pub(super) fn create(out: &Path, preset: &str) -> Result<PathBuf, JournalError> {
    fs::create_dir_all(out).map_err(|error| JournalError::Io(out.to_owned(), error))?;
    let name = format!("{}-{preset}", stamp(SystemTime::now()));
    let mut path = out.join(&name);
    for number in 2.. {
        match fs::create_dir(&path) {
            Ok(()) => break,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                path = out.join(format!("{name}-{number}"));
            }
            Err(error) => return Err(JournalError::Io(path, error)),
        }
    }
    Ok(path)
}

/// The sessions' folders in a folder, the oldest first.
fn sessions(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(f64, PathBuf)> =
        entries.filter_map(|path| Some((record::read_session(&path).ok()?.began, path))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The folder itself if it is a session's, otherwise the newest session's folder in it.
#[must_use]
pub fn newest(folder: &Path) -> Option<PathBuf> {
    match folder.join(record::SESSION).is_file() {
        true => Some(folder.to_owned()),
        false => sessions(folder).pop(),
    }
}

/// Locks the session's folder against other labs, until the result is dropped or this process ends.
///
/// # Errors
/// [`JournalError::InUse`] if another lab has the lock; otherwise what the file system says.
pub(super) fn lock(folder: &Path) -> Result<File, JournalError> {
    let opened = File::open(folder).map_err(|error| JournalError::Io(folder.to_owned(), error))?;
    journal::lock(&opened, folder)?;
    Ok(opened)
}

pub(super) fn write_selection(folder: &Path, selection: &Selection) -> Result<(), JournalError> {
    record::write_json(&folder.join(SELECTION), selection)
}

pub(super) fn read_selection(folder: &Path) -> Result<Selection, JournalError> {
    record::read_json(&folder.join(SELECTION))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn names_of_folders_sort_by_time_and_are_each_taken_once() {
        assert_eq!(stamp(UNIX_EPOCH + Duration::from_secs(993_459_600)), "20010625-090000");
        let out = tempfile::tempdir().unwrap();
        let folders: Vec<PathBuf> =
            (0..3).map(|_| create(&out.path().join("new"), "quick").unwrap()).collect();
        assert!(folders.iter().all(|folder| folder.is_dir()), "{folders:?}");
        assert!(folders[0] != folders[1] && folders[1] != folders[2], "{folders:?}");
    }
}
