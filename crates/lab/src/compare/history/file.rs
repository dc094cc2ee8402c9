//! The file of a history: a line of JSON for each session, in the order in which they were added.
//!
//! A line is written at once and then synchronized with the disk; what a power cut leaves of one is left out
//! by readers, and cut off by the next who adds. flock(2) keeps writers from each other, and readers from lines
//! that are half written.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::FlockOperation;

use super::entry::{HistoryEntry, SCHEMA};
use crate::journal::JournalError;

/// How a line begins.
fn beginning() -> String {
    format!("{{\"schema\":\"{SCHEMA}\",")
}

/// Reads a history.
///
/// # Errors
/// [`JournalError::Io`], and [`JournalError::Invalid`] with the line that is not one of a history's.
pub fn read(path: &Path) -> Result<Vec<HistoryEntry>, JournalError> {
    let failed = |error| JournalError::Io(path.to_owned(), error);
    let mut file = File::open(path).map_err(failed)?;
    lock(&file, FlockOperation::LockShared).map_err(failed)?;
    Ok(read_lines(&mut file, path)?.0)
}

/// Adds those sessions that the history does not have yet, and reads all of it. The file is created if there
/// is none.
///
/// # Errors
/// As of [`read`]. After a failed write the history is what it was before.
pub fn add(path: &Path, sessions: &[HistoryEntry]) -> Result<Vec<HistoryEntry>, JournalError> {
    let failed = |error| JournalError::Io(path.to_owned(), error);
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).open(path);
    let mut file = file.map_err(failed)?;
    lock(&file, FlockOperation::LockExclusive).map_err(failed)?;
    let (mut entries, whole) = read_lines(&mut file, path)?;
    let mut known: BTreeSet<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    let new = sessions.iter().filter(|session| known.insert(session.id.clone()));
    let new: Vec<HistoryEntry> = new.cloned().collect();
    append(&mut file, whole, &new).map_err(failed)?;
    entries.extend(new);
    Ok(entries)
}

/// A file system without locks has to do without.
fn lock(file: &File, operation: FlockOperation) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes lines behind the first `whole` bytes.
fn append(file: &mut File, whole: u64, entries: &[HistoryEntry]) -> io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut text = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut text, entry)?;
        text.push(b'\n');
    }
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    let written = file.write_all(&text).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(file.set_len(whole)))
}

/// The sessions, and how many bytes their lines are.
fn read_lines(file: &mut File, path: &Path) -> Result<(Vec<HistoryEntry>, u64), JournalError> {
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(|error| JournalError::Io(path.to_owned(), error))?;
    let beginning = beginning();
    let mut entries = Vec::new();
    let mut whole = 0;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let common = line.len().min(beginning.len());
        let invalid = |what: String| {
            JournalError::Invalid(path.to_owned(), format!("line {}: {what}", number + 1))
        };
        if line[..common] != beginning.as_bytes()[..common] {
            let what = format!("this is no line of a history, which begins with {beginning}");
            return Err(invalid(what));
        }
        // Only the last line can lack its end: the power was cut while it was written.
        if !line.ends_with(b"\n") {
            break;
        }
        entries.push(serde_json::from_slice(line).map_err(|error| invalid(error.to_string()))?);
        whole += line.len() as u64;
    }
    Ok((entries, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn entry(id: &str) -> HistoryEntry {
        HistoryEntry {
            schema: SCHEMA.to_owned(),
            id: id.to_owned(),
            name: format!("of {id}"),
            began: 1.5,
            preset: "quick".to_owned(),
            version: "1".to_owned(),
            environment: Default::default(),
            experiments: Vec::new(),
        }
    }

    #[test]
    fn a_session_is_added_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        assert!(matches!(read(&path), Err(JournalError::Io(..))));
        let (a, b) = (entry("a"), entry("b"));
        assert_eq!(add(&path, &[a.clone(), a.clone()]).unwrap(), std::slice::from_ref(&a));
        let one = fs::read(&path).unwrap();
        assert_eq!(add(&path, std::slice::from_ref(&a)).unwrap(), std::slice::from_ref(&a));
        assert_eq!(fs::read(&path).unwrap(), one);
        assert_eq!(add(&path, &[a.clone(), b.clone()]).unwrap(), [a.clone(), b.clone()]);
        assert_eq!(read(&path).unwrap(), [a, b]);
    }

    #[test]
    fn half_a_line_is_left_out_and_then_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (a, b) = (entry("a"), entry("b"));
        add(&path, &[a.clone(), b.clone()]).unwrap();
        let all = fs::read(&path).unwrap();
        let first = all.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..all.len() {
            fs::write(&path, &all[..end]).unwrap();
            assert_eq!(read(&path).unwrap(), std::slice::from_ref(&a), "{end}");
            assert_eq!(add(&path, std::slice::from_ref(&b)).unwrap(), [a.clone(), b.clone()]);
            assert_eq!(fs::read(&path).unwrap(), all, "{end}");
        }
    }

    #[test]
    fn other_files_are_refused_and_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        for text in ["x", "{}\n", "{\"schema\":\"drover.history/2\",", "\n", "a\nb\n"] {
            fs::write(&path, text).unwrap();
            for result in [read(&path), add(&path, &[entry("a")])] {
                let told = result.unwrap_err().to_string();
                assert!(told.contains("line 1: this is no line of a history"), "{text}: {told}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        add(&path, &[]).unwrap_err();
        fs::write(&path, format!("{}\n", beginning())).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 1: "));
    }

    /// As many writers as there like to be: every line is whole, and in the file once.
    #[test]
    fn writers_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("history");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                scope.spawn(move || {
                    for number in 0..10 {
                        let own = entry(&format!("{writer} {number}"));
                        assert!(add(path, &[entry("all"), own.clone()]).unwrap().contains(&own));
                    }
                });
            }
        });
        assert_eq!(read(path).unwrap().len(), 41);
    }
}
