//! What a server has counted, written to a file of JSON (`--counters FILE`) whenever SIGUSR1 asks for it, and
//! when the server has stopped. Its schema is `schemas/drover.counters-2.schema.json`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use drover_sys::process::{OrdinaryUser, with_rights_of};
use rustix::fs::OFlags;
use serde::Serialize;
use tracing::{info, warn};

use crate::Statistics;
use crate::WorkerStatistics;
use crate::status::history::CounterHistory;

/// The file's contents.
#[derive(Debug, Serialize)]
struct Contents {
    schema: &'static str,
    /// When the counters were read, in seconds since 1970.
    at_s: f64,
    all: Statistics,
    workers: Vec<WorkerStatistics>,
}

/// One file at a time: SIGUSR1 may come while the server writes its last counters.
static WRITING: Mutex<()> = Mutex::new(());

/// The file that counters are written to, if there is to be one, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct CountersFile {
    pub(crate) path: Option<PathBuf>,
    /// With whose rights it is written; `None`: with those of this process.
    pub(crate) user: Option<OrdinaryUser>,
}

/// Writes the counters beside the file and renames them to it: whoever finds the file finds all of it. A
/// device or a pipe is written to directly, as far as that goes without waiting.
fn write(
    path: &Path,
    user: Option<&OrdinaryUser>,
    counter_history: &CounterHistory,
) -> io::Result<()> {
    // Locked before the counters are read, so that the last file has the last counters.
    let _only = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let contents = Contents {
        schema: "drover.counters/2",
        at_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        all: counter_history.sum(),
        workers: counter_history.workers(),
    };
    let mut text = serde_json::to_vec_pretty(&contents)?;
    text.push(b'\n');
    with_rights_of(user, || write_text(path, &text))
}

fn write_text(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let options = options.write(true).custom_flags(flags.bits().cast_signed());
        return options.open(path)?.write_all(text);
    }
    let mut beside = path.to_path_buf();
    beside.as_mut_os_string().push(".new");
    // One that was left behind, or a link that somebody has put there.
    let _none = fs::remove_file(&beside);
    let written = options.write(true).create_new(true).open(&beside);
    let written = written.and_then(|mut file| file.write_all(text));
    let written = written.and_then(|()| fs::rename(&beside, path));
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Writes the counters to the file, if there is one. What goes wrong is logged: no request failed by it.
pub(crate) fn finish(file: &CountersFile, counter_history: &CounterHistory) {
    let Some(path) = &file.path else { return };
    if let Err(error) = write(path, file.user.as_ref(), counter_history) {
        warn!("cannot write --counters {}: {error}", path.display());
    }
}

/// Writes the counters at SIGUSR1.
pub(crate) fn answer(file: &CountersFile, counter_history: &CounterHistory) {
    match file.path {
        Some(_) => finish(file, counter_history),
        None => info!("SIGUSR1 is ignored: there are no log files to open again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::statistics::CounterTable;

    #[test]
    fn a_signal_during_the_last_writing_spoils_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let counter_history = CounterHistory::new(CounterTable::new(2).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        write(&path, None, &counter_history).unwrap();
                        let text = fs::read(&path).unwrap();
                        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
