//! What tests of several crates share: a [`browser`], a [booted system](BootedRoot), cases [side by side](side_by_side()), and a
//! third result.
//!
//! A third result of a test, which libtest does not have: skipped, as a whole or in part, because this
//! machine lacks what the test needs.
//!
//! A test that is skipped calls [`skip!`] with the cause. The causes of one `cargo test` are kept in a
//! file beside its test binaries, and the target `skipped` of this crate, which runs last, prints how
//! many tests were skipped and why.

#[cfg(feature = "acme-ca")]
pub mod acme_ca;
mod booted_root;
pub mod browser;
mod finally;
mod program;
mod side_by_side;
mod waiting;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

pub use booted_root::BootedRoot;
pub use finally::Finally;
pub use program::make_program;
pub use side_by_side::side_by_side;
pub use waiting::wait_until;

/// Notes that the calling test, or a part of it, is skipped, and why. Takes the arguments of `println!`.
#[macro_export]
macro_rules! skip {
    ($($cause:tt)+) => {
        $crate::note(&::std::format!($($cause)+))
    };
}

/// Notes that the running test is skipped for `cause`; the first line of `cause` is kept. Called by
/// [`skip!`].
///
/// A note that cannot be written is printed with the test's output: the test itself has not failed.
pub fn note(cause: &str) {
    let cause = cause.lines().next().unwrap_or_default().replace('\t', " ");
    println!("skipped: {cause}");
    let noted = SkipNotes::of_this_run().and_then(|notes| notes.add(&running_test(), &cause));
    if let Err(error) = noted {
        println!("cannot note that: {error}");
    }
}

/// The name of the test binary, and libtest's name of the test, which is the name of its thread.
fn running_test() -> String {
    let binary = std::env::current_exe().ok();
    let binary = binary.as_deref().and_then(Path::file_stem).unwrap_or_default().to_string_lossy();
    // Without the hash that cargo appends.
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name).to_owned();
    let thread = std::thread::current();
    format!("{binary}: {}", thread.name().unwrap_or("a thread of a test"))
}

/// The notes of the tests of one run, a line each.
#[derive(Debug)]
pub struct SkipNotes(PathBuf);

impl SkipNotes {
    /// The notes of the `cargo test` run that has started this process.
    ///
    /// # Errors
    /// If procfs is not mounted, or no folder can be made beside the test binaries.
    pub fn of_this_run() -> io::Result<SkipNotes> {
        let binary = std::env::current_exe()?;
        let folder = binary.parent().ok_or(io::ErrorKind::NotFound)?.join("skipped");
        SkipNotes::of(&folder, parent_id())
    }

    /// The notes in `folder` of the run with the process number `id`.
    fn of(folder: &Path, id: u32) -> io::Result<SkipNotes> {
        fs::create_dir_all(folder)?;
        Ok(SkipNotes(folder.join(format!("{id}-{}", start_time(id)?))))
    }

    fn add(&self, test: &str, cause: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        // One write, so that lines of processes that write at once do not mix (O_APPEND).
        file.write_all(format!("{test}\t{cause}\n").as_bytes())
    }

    /// Takes the notes of this run. Removes them, and also the notes of runs that have ended.
    ///
    /// # Errors
    /// If the notes are there and cannot be read.
    pub fn take(self) -> io::Result<Skipped> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let folder = self.0.parent().ok_or(io::ErrorKind::NotFound)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path == self.0 || !is_running(&path) {
                // Another process may have removed the file.
                let _ = fs::remove_file(path);
            }
        }
        Ok(Skipped(text.lines().filter_map(|line| line.split_once('\t')).map(own).collect()))
    }
}

fn own((test, cause): (&str, &str)) -> (String, String) {
    (test.to_owned(), cause.to_owned())
}

/// Whether the process that the notes are named for still runs.
fn is_running(notes: &Path) -> bool {
    let name = notes.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((id, started)) = name.split_once('-') else { return false };
    id.parse().is_ok_and(|id| start_time(id).is_ok_and(|time| time == started))
}

/// When a process has started, in ticks since the machine was: with its number it names the process,
/// while the number alone is given anew (proc_pid_stat(5), field 22).
fn start_time(id: u32) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name in brackets may hold spaces and brackets.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let time = after_name.split_whitespace().nth(19).ok_or(io::ErrorKind::InvalidData)?;
    Ok(time.to_owned())
}

/// Tests that were skipped, each with a cause; printed as their number and the tests of each cause.
#[derive(Debug)]
pub struct Skipped(Vec<(String, String)>);

/// The most tests that are named; further ones are only counted.
const NAMED: usize = 3;

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_cause = BTreeMap::<&str, Vec<&str>>::new();
        for (test, cause) in &self.0 {
            by_cause.entry(cause).or_default().push(test);
        }
        let mut causes = String::new();
        for (cause, tests) in &mut by_cause {
            tests.sort_unstable();
            tests.dedup();
            let names = tests[..tests.len().min(NAMED)].join(", ");
            let others = tests.len().saturating_sub(NAMED);
            let others = if others > 0 { format!(" and {others} more") } else { String::new() };
            write!(causes, "\n  {cause}\n      {names}{others}")?;
        }
        let mut tests: Vec<&str> = self.0.iter().map(|(test, _)| &**test).collect();
        tests.sort_unstable();
        tests.dedup();
        match tests.len() {
            0 => f.write_str("No test was skipped."),
            1 => write!(f, "1 test was skipped, as a whole or in part:{causes}"),
            n => write!(f, "{n} tests were skipped, as a whole or in part:{causes}"),
        }
    }
}

/// What a call returns that is not interrupted.
///
/// A read with a time-out fails with `EINTR` where the process is stopped and goes on, as in a container or a machine that
/// is frozen for a moment, although nothing handles a signal (signal(7), "Interruption of system calls and library functions
/// by stop signals").
///
/// # Errors
/// Those of the call, but [`io::ErrorKind::Interrupted`].
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_told_once_and_by_cause() {
        let folder = tempfile::tempdir().unwrap();
        let notes = || SkipNotes::of(folder.path(), std::process::id()).unwrap();
        notes().add("net: b", "uring: no memory").unwrap();
        notes().add("net: a", "uring: no memory").unwrap();
        notes().add("net: a", "rtsig: no signals").unwrap();
        assert_eq!(
            notes().take().unwrap().to_string(),
            "2 tests were skipped, as a whole or in part:\
             \n  rtsig: no signals\n      net: a\
             \n  uring: no memory\n      net: a, net: b"
        );
        assert_eq!(notes().take().unwrap().to_string(), "No test was skipped.");
    }

    #[test]
    fn runs_know_only_their_own_notes_and_those_that_ended_leave_none() {
        let folder = tempfile::tempdir().unwrap();
        let own = SkipNotes::of(folder.path(), std::process::id()).unwrap();
        let other = SkipNotes::of(folder.path(), parent_id()).unwrap();
        other.add("net: a", "no wires").unwrap();
        let ended = folder.path().join(format!("{}-1", std::process::id()));
        fs::write(&ended, "net: a\tno wires\n").unwrap();
        assert_eq!(own.take().unwrap().to_string(), "No test was skipped.");
        assert!(!ended.exists() && other.0.exists());
    }

    #[test]
    fn many_tests_are_counted() {
        let many = (1..=5).map(|n| (format!("t{n}"), "no wires".to_owned())).collect();
        let text = Skipped(many).to_string();
        assert!(text.starts_with("5 tests were skipped"), "{text}");
        assert!(text.ends_with("no wires\n      t1, t2, t3 and 2 more"), "{text}");
    }
}
