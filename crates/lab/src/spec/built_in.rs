//! The experiments that come with the lab, and the servers that it knows by name.

use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::experiment::{Experiment, Fragment};
use super::fault::Faults;
use super::read::{self, Files};
use super::subject::Subject;

/// The folder that built-in files are in, as faults name them.
const FOLDER: &str = "built-in";

/// A built-in file: its path, and its text.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../experiments/", $path)))),*]
    };
}

/// The experiments, in the order of their documents.
static EXPERIMENTS: &[(&str, &str)] = files![
    "dispatch-overhead.toml",
    "dispatch-throughput.toml",
    "signal-queue.toml",
    "dead-connections.toml",
    "connection-bursts.toml",
    "pipes.toml",
    "raw-file-io.toml",
    "stat-threads.toml",
    "read-threads.toml",
    "access-times.toml",
    "buffered-file-io.toml",
    "thread-starvation.toml",
    "herd-at-connect.toml",
    "four-options.toml",
    "settle-time.toml",
    "many-acceptors.toml",
    "serialized-accept.toml",
    "table-growth.toml",
    "cold-readers.toml",
    "in-flight.toml",
    "completion-or-readiness.toml",
    "threads-or-processes.toml",
];

/// What they include, the known servers and the dispatch mechanisms first.
static SHARED: &[(&str, &str)] = files![
    "subjects/peers.toml",
    "subjects/dispatch.toml",
    "papers/buffered-cpu.csv",
    "papers/buffered-requests.csv",
    "papers/buffered-throughput.csv",
    "papers/raw-cpu.csv",
    "papers/raw-disk.csv",
    "papers/raw-requests.csv",
    "papers/raw-throughput.csv",
    "papers/settle-time.csv",
];

/// The files that are part of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltIn;

impl Files for BuiltIn {
    fn text(&self, path: &Path) -> io::Result<String> {
        let inner = path.strip_prefix(FOLDER).unwrap_or(path);
        let found = EXPERIMENTS.iter().chain(SHARED).find(|(name, _)| Path::new(name) == inner);
        found.map(|(_, text)| (*text).to_owned()).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// The names of the built-in experiments, in the order of their documents.
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|(path, _)| path.trim_end_matches(".toml")).collect()
}

/// The built-in experiment of that name; `None` if there is none.
///
/// # Errors
/// Its faults; a test finds that there are none.
pub fn experiment(name: &str) -> Option<Result<Experiment, Faults>> {
    let (path, _) =
        EXPERIMENTS.iter().find(|(path, _)| path.strip_suffix(".toml") == Some(name))?;
    Some(read::read_from(&BuiltIn, &PathBuf::from(FOLDER).join(path)))
}

/// The servers that are known by name.
fn known() -> Fragment {
    let (name, text) = SHARED[0];
    read::fragment(name, text).expect("a test reads the known servers")
}

/// Drover's own server under each dispatch mechanism, by its name, and under `auto`.
#[must_use]
pub fn dispatch_mechanisms() -> IndexMap<String, Subject> {
    let (name, text) = SHARED[1];
    read::fragment(name, text).expect("experiments include it, and a test reads those").subject
}

/// The server of that name, as a command.
pub(super) fn peer(name: &str) -> Option<Subject> {
    known().subject.get(name).cloned()
}

/// The names of the servers that are known.
#[must_use]
pub fn peers() -> Vec<String> {
    known().subject.keys().cloned().collect()
}
