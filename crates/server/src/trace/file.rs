//! The file of a trace, and the thread that writes to it, so that no worker waits for its disk.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tracing::error;

use super::line::{MOST, TraceLine};
use super::{COLUMNS, FORMAT};
use crate::line_writer::LineWriter;

/// How many batches of lines may wait for the disk.
const WAITING_MOST: usize = 8;

/// Begins a trace in `file`, whose name is `path`, with what `about` tells of the server, and starts the thread.
///
/// # Errors
/// What the kernel says.
pub(crate) fn begin(
    mut file: File,
    path: &Path,
    about: &str,
) -> io::Result<LineWriter<Vec<TraceLine>>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = Instant::now();
    // A worker that takes the place of a dead one goes on where that one ended. A pipe has no position.
    let before = file.stream_position().unwrap_or(0);
    let head = format!("# {FORMAT} started={:.6} {about}\n{COLUMNS}\n", now.as_secs_f64());
    file.write_all(head.as_bytes())?;
    let (own, written) = (path.to_owned(), before + head.len() as u64);
    let write =
        move |batches: &Receiver<Vec<TraceLine>>| write_all(batches, file, &own, written, began);
    LineWriter::start("trace", format!("--trace {}", path.display()), WAITING_MOST, write)
}

/// The life of the thread: writes until the last sink is gone, or the file takes no more. `began` is the
/// zero of all times in the trace.
fn write_all(
    buffers: &Receiver<Vec<TraceLine>>,
    mut file: File,
    path: &Path,
    mut written: u64,
    began: Instant,
) {
    let (mut text, mut scratch) = (Vec::new(), [0; MOST]);
    for lines in buffers {
        text.clear();
        lines.iter().for_each(|line| line.append_to(&mut text, began, &mut scratch));
        if let Err(reason) = file.write_all(&text) {
            error!(
                "cannot write --trace {}: {reason}; the trace ends here, serving goes on",
                path.display()
            );
            // The file is cut after its last whole line, if the file can be cut.
            let _ = file.set_len(written);
            return;
        }
        written += text.len() as u64;
    }
}
