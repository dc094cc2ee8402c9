//! What a server has counted, written to a file of JSON (`--counters FILE`) whenever SIGUSR1 asks for it, and
//! when the server has stopped. Its schema is `schemas/drover.counters-1.schema.json`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tracing::{info, warn};

use super::stats::Board;
use super::{Statistics, WorkerStatistics};

/// The file's contents.
#[derive(Debug, Serialize)]
struct Contents {
    schema: &'static str,
    /// When the counters were read, in seconds since 1970.
    at_s: f64,
    all: Statistics,
    workers: Vec<WorkerStatistics>,
}

/// Writes the counters beside the file and renames them to it: whoever finds the file finds all of it.
fn write(path: &Path, board: &Board) -> io::Result<()> {
    let contents = Contents {
        schema: "drover.counters/1",
        at_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        all: board.sum(),
        workers: board.workers(),
    };
    let mut beside = path.to_path_buf();
    beside.as_mut_os_string().push(".new");
    let mut text = serde_json::to_vec_pretty(&contents)?;
    text.push(b'\n');
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

/// Writes the counters to the file, if there is one. What goes wrong is logged: no request failed by it.
pub(super) fn finish(path: Option<&Path>, board: &Board) {
    if let Some((path, Err(error))) = path.map(|path| (path, write(path, board))) {
        warn!("cannot write --counters {}: {error}", path.display());
    }
}

/// Answers SIGUSR1.
pub(super) fn answer(path: Option<&Path>, board: &Board) {
    match path {
        Some(_) => finish(path, board),
        None => info!("SIGUSR1 is ignored: there are no log files to open again"),
    }
}
