//! What a server has counted, written to a file of JSON (`--counters FILE`) whenever SIGUSR1 asks for it, and
//! when the server has stopped. Its schema is `schemas/drover.counters-1.schema.json`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Writes the counters beside the file and renames them to it: whoever finds the file finds all of it. A
/// device or a pipe is written to directly, as far as that goes without waiting.
fn write(path: &Path, counter_history: &CounterHistory) -> io::Result<()> {
    // Locked before the counters are read, so that the last file has the last counters.
    let _only = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let contents = Contents {
        schema: "drover.counters/1",
        at_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        all: counter_history.sum(),
        workers: counter_history.workers(),
    };
    let mut text = serde_json::to_vec_pretty(&contents)?;
    text.push(b'\n');
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(flags.bits().cast_signed());
        return options.open(path)?.write_all(&text);
    }
    let mut beside = path.to_path_buf();
    beside.as_mut_os_string().push(".new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Writes the counters to the file, if there is one. What goes wrong is logged: no request failed by it.
pub(crate) fn finish(path: Option<&Path>, counter_history: &CounterHistory) {
    if let Some((path, Err(error))) = path.map(|path| (path, write(path, counter_history))) {
        warn!("cannot write --counters {}: {error}", path.display());
    }
}

/// Writes the counters at SIGUSR1.
pub(crate) fn answer(path: Option<&Path>, counter_history: &CounterHistory) {
    match path {
        Some(_) => finish(path, counter_history),
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
                        write(&path, &counter_history).unwrap();
                        let text = fs::read(&path).unwrap();
                        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
