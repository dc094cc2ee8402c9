//! The file of a trace, and the thread that writes to it, so that no worker waits for its disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tracing::error;

use super::line::{MOST, TraceLine};
use super::{COLUMNS, FORMAT};
use crate::line_writer::LineWriter;

/// How many batches of lines may wait for the disk.
const WAITING_MOST: usize = 8;

/// Creates the file, or empties it, begins it with what `about` tells of the server, and starts the thread.
///
/// # Errors
/// What the kernel says.
pub(crate) fn create(path: &Path, about: &str) -> io::Result<LineWriter<Vec<TraceLine>>> {
    let mut file = File::create(path)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = Instant::now();
    let head = format!("# {FORMAT} started={:.6} {about}\n{COLUMNS}\n", now.as_secs_f64());
    file.write_all(head.as_bytes())?;
    let (own, written) = (path.to_owned(), head.len() as u64);
    let write =
        move |batches: &Receiver<Vec<TraceLine>>| write_all(batches, file, &own, written, began);
    LineWriter::start("trace", format!("--trace {}", path.display()), WAITING_MOST, write)
}

/// Finds out whether a file can be created, or written to if it exists, and leaves it as it is.
///
/// # Errors
/// What the kernel says.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    match options.write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        // Opening what is no file, a FIFO for one, may wait.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let kind = fs::metadata(path)?.file_type();
            if kind.is_file() || kind.is_dir() {
                File::options().write(true).open(path)?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
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
