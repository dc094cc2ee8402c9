//! The journal of a session: the plan, written once, and the measurements, a line per run.
//!
//! `plan.json` has the plan and the environment. `runs.jsonl` is only appended to. Each line is on the disk before
//! the next run begins (fdatasync(2)), so that the cost of a run does not grow with the number of runs, and every
//! finished run survives whatever ends the lab. A reader may read at any time: an incomplete last line is a run that
//! is not written yet.

mod environment;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use environment::Environment;

use crate::model::{Mark, Sample};
use crate::plan::Plan;

/// The name of the file that has the plan.
pub const PLAN: &str = "plan.json";

/// The name of the file that has the runs.
pub const RUNS: &str = "runs.jsonl";

/// How long a process that is being started may hold on to what it was not meant to have.
const STARTING: Duration = Duration::from_secs(1);

/// The version of both files.
pub const SCHEMA: &str = "drover.journal/1";

/// The plan, and the machine that it was made for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// The plan.
    pub plan: Plan,
    /// The machine, its kernel and the program under test.
    pub environment: Environment,
}

/// A finished run: a line of `runs.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number of the cell in the plan, from 0.
    pub cell: usize,
    /// What was measured.
    pub sample: Sample,
    /// What is needed to check the sample: command lines, the load's own result, the instruments' remarks.
    #[serde(default)]
    pub artefacts: Value,
    /// When the run began, in seconds since 1970 (UTC).
    pub began: f64,
    /// How long the run took as a whole, in seconds.
    pub took_s: f64,
}

impl Run {
    /// Whether the run says something about its cell. If the lab itself failed, it does not, and a resumed session
    /// makes the run again.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        !self.sample.validity.contains(&Mark::NotMeasured)
    }
}

/// Why a journal cannot be written or read.
#[derive(Debug)]
pub enum JournalError {
    /// What the file system says of a path.
    Io(PathBuf, io::Error),
    /// A file has a content that the lab did not write. The text names the place.
    Invalid(PathBuf, String),
    /// The journal differs from what is to be resumed. Each text is a difference.
    Differs(Vec<String>),
    /// Another lab has locked the folder.
    InUse(PathBuf),
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JournalError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            JournalError::Invalid(path, what) => write!(f, "{}: {what}", path.display()),
            JournalError::Differs(what) => {
                write!(f, "what was begun cannot be resumed: {} (--force does)", what.join("; "))
            }
            JournalError::InUse(folder) => {
                write!(f, "{}: another lab writes to this journal", folder.display())
            }
        }
    }
}

impl std::error::Error for JournalError {}

/// A journal that is written to.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    runs: File,
    /// Cell and round of every run in the journal.
    complete: BTreeSet<(usize, u32)>,
}

impl Journal {
    /// Begins a journal in a folder, which is created.
    ///
    /// # Errors
    /// [`JournalError::Io`]; [`JournalError::Invalid`] if the folder already has a journal.
    pub fn create(
        folder: &Path,
        plan: &Plan,
        environment: &Environment,
    ) -> Result<Journal, JournalError> {
        fs::create_dir_all(folder).map_err(|error| JournalError::Io(folder.to_owned(), error))?;
        let path = folder.join(PLAN);
        if path.exists() {
            let what = "there is a journal already: resume it, or take another folder";
            return Err(JournalError::Invalid(path, what.to_string()));
        }
        let header = Header {
            schema: SCHEMA.to_string(),
            plan: plan.clone(),
            environment: environment.clone(),
        };
        let runs = open_runs(folder)?;
        write_whole(&path, &pretty(&header)).map_err(|error| JournalError::Io(path, error))?;
        Ok(Journal { folder: folder.to_owned(), runs, complete: BTreeSet::new() })
    }

    /// Opens a journal to add the missing runs, and returns the runs that it has. Cuts off an incomplete last line,
    /// which a killed lab leaves.
    ///
    /// # Errors
    /// [`JournalError::Differs`] if the experiment, the plan, the kernel or the program differs and `forced` is not set;
    /// [`JournalError::Io`], [`JournalError::Invalid`], [`JournalError::InUse`].
    pub fn resume(
        folder: &Path,
        plan: &Plan,
        environment: &Environment,
        forced: bool,
    ) -> Result<(Journal, Vec<Run>), JournalError> {
        let header = read_header(folder)?;
        let mut differences = header.environment.differences(environment);
        differences.extend(header.plan.differences(plan));
        if !differences.is_empty() && !forced {
            return Err(JournalError::Differs(differences));
        }
        let runs = open_runs(folder)?;
        let (found, whole) = read_runs(folder)?;
        let path = folder.join(RUNS);
        runs.set_len(whole).map_err(|error| JournalError::Io(path.clone(), error))?;
        // Cells are found by their content, because a forced resumption may have numbered them anew.
        let number = |run: &Run| plan.cells.iter().position(|cell| cell.cell == run.sample.cell);
        let measured = found.iter().filter(|run| run.is_measured());
        let complete = measured.filter_map(|run| Some((number(run)?, run.sample.round)));
        let complete = complete.collect();
        Ok((Journal { folder: folder.to_owned(), runs, complete }, found))
    }

    /// Whether the journal has the run of a cell in a round.
    #[must_use]
    pub fn has(&self, cell: usize, round: u32) -> bool {
        self.complete.contains(&(cell, round))
    }

    /// Adds a run. The run is on the disk when this returns.
    ///
    /// # Errors
    /// [`JournalError::Io`], for example when the disk is full. Earlier lines stay readable.
    pub fn append(&mut self, run: &Run) -> Result<(), JournalError> {
        let failed = |error| JournalError::Io(self.folder.join(RUNS), error);
        let mut line = serde_json::to_vec(run).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let end = self.runs.seek(SeekFrom::End(0)).map_err(failed)?;
        if let Err(error) = self.runs.write_all(&line).and_then(|()| self.runs.sync_data()) {
            // An incomplete line would make the next line unreadable.
            let _ = self.runs.set_len(end);
            return Err(failed(error));
        }
        if run.is_measured() {
            self.complete.insert((run.cell, run.sample.round));
        }
        Ok(())
    }

    /// How many runs of the plan the journal has, without those that were not measured.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.complete.len()
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Reads a journal, also while a lab writes it.
///
/// # Errors
/// [`JournalError::Io`]; [`JournalError::Invalid`] with the line.
pub fn read(folder: &Path) -> Result<(Header, Vec<Run>), JournalError> {
    Ok((read_header(folder)?, read_runs(folder)?.0))
}

fn read_header(folder: &Path) -> Result<Header, JournalError> {
    let path = folder.join(PLAN);
    let text = fs::read_to_string(&path).map_err(|error| JournalError::Io(path.clone(), error))?;
    let invalid = |what: String| JournalError::Invalid(path.clone(), what);
    let value: Value = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    if value["schema"] != SCHEMA {
        return Err(invalid(format!("schema is {}, this lab reads {SCHEMA}", value["schema"])));
    }
    serde_json::from_value(value).map_err(|error| invalid(error.to_string()))
}

/// The complete lines, and their total length in bytes.
fn read_runs(folder: &Path) -> Result<(Vec<Run>, u64), JournalError> {
    let path = folder.join(RUNS);
    let mut text = Vec::new();
    match File::open(&path).and_then(|mut file| file.read_to_end(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(JournalError::Io(path, error)),
        Ok(_) => {}
    }
    let mut runs = Vec::new();
    let mut whole = 0;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for (number, line) in lines.iter().enumerate() {
        let is_last = number + 1 == lines.len();
        match serde_json::from_slice(line) {
            Ok(run) if line.ends_with(b"\n") => runs.push(run),
            // After a power cut, a line may have its length and no content.
            _ if is_last => break,
            Ok(_) => unreachable!("only the last line can lack its end"),
            Err(error) => {
                return Err(JournalError::Invalid(path, format!("line {}: {error}", number + 1)));
            }
        }
        whole += line.len() as u64;
    }
    Ok((runs, whole))
}

fn open_runs(folder: &Path) -> Result<File, JournalError> {
    let path = folder.join(RUNS);
    let failed = |error| JournalError::Io(path.clone(), error);
    let mut options = OpenOptions::new();
    let runs = options.create(true).truncate(false).read(true).write(true).open(&path);
    let runs = runs.map_err(failed)?;
    lock(&runs, folder)?;
    Ok(runs)
}

/// Locks a folder against other labs: `file` is the folder itself, or a file in it. The lock ends when the file is
/// closed, at the latest with the process.
///
/// # Errors
/// [`JournalError::InUse`] if another lab has the lock.
pub(crate) fn lock(file: &File, folder: &Path) -> Result<(), JournalError> {
    let mut locked = try_lock(file);
    // A process that this one starts has a copy of its descriptors, and with them of a lock that is given up now, until its
    // program runs (execve(2)).
    let begin = Instant::now();
    while matches!(locked, Ok(false)) && begin.elapsed() < STARTING {
        thread::sleep(Duration::from_millis(5));
        locked = try_lock(file);
    }
    match locked {
        Ok(false) => Err(JournalError::InUse(folder.to_owned())),
        // On a file system without locks, no second lab is expected.
        _ => Ok(()),
    }
}

/// Locks a file by flock(2), without waiting. The lock ends when the file is closed, at the latest with the process,
/// however the process ends. Returns whether the lock was free.
///
/// # Errors
/// `ENOLCK` or `EOPNOTSUPP` on a file system without locks.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The time, in seconds since 1970 (UTC).
pub(crate) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn pretty(header: &Header) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(header).expect("plans have string keys only");
    text.push(b'\n');
    text
}

/// Writes a file atomically: a reader sees the whole file or the previous one, also after a power cut. If several
/// processes write the file, the last one to finish wins.
///
/// # Errors
/// What the file system says. The unfinished file is removed.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let (unfinished, mut file) = create_beside(path)?;
    let mut write = || -> io::Result<()> {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        // The name is on the disk once its folder is.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().inspect_err(|_| drop(fs::remove_file(&unfinished)))
}

/// Creates a new file beside another one, with a name that no other process uses: two labs may write one report.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut beside = path.to_owned();
        let end = format!(".{}-{number}.unfinished", std::process::id());
        beside.as_mut_os_string().push(end);
        match File::create_new(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return Ok((beside, created?)),
        }
    }
}

#[cfg(test)]
mod tests;
