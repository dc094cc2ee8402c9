//! The file of a trace, and the thread that writes to it, so that no worker waits for its disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sys::process::start_thread;
use tracing::{error, warn};

use super::line::{Line, MOST};
use super::{COLUMNS, FORMAT, FULL};

/// How many batches of `FULL` lines may wait for the disk. Further lines are lost, and counted.
const WAITING_MOST: usize = 8;

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    /// `None`: the trace is finished.
    running: Mutex<Option<(Sink, JoinHandle<()>)>>,
}

/// Where a worker's lines go.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    sender: SyncSender<Vec<Line>>,
    lost: Arc<AtomicU64>,
}

impl Trace {
    /// Creates the file, or empties it, and begins it with what `about` tells of the server.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn create(path: &Path, about: &str) -> io::Result<Trace> {
        let mut file = File::create(path)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Instant::now();
        let head = format!("# {FORMAT} started={:.6} {about}\n{COLUMNS}\n", now.as_secs_f64());
        file.write_all(head.as_bytes())?;
        let (sender, buffers) = sync_channel(WAITING_MOST);
        let (name, written) = (path.to_owned(), head.len() as u64);
        let writer = move || write_all(&buffers, file, &name, written, began);
        let thread = start_thread("trace", writer)?;
        let sink = Sink { sender, lost: Arc::default() };
        Ok(Trace { path: path.to_owned(), running: Mutex::new(Some((sink, thread))) })
    }

    /// Finds out whether [`Trace::create`] could create the file, and leaves one that exists as it is.
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

    /// A sink for one more worker.
    ///
    /// # Panics
    /// When the trace is finished.
    pub(crate) fn sink(&self) -> Sink {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().expect("no worker begins after the last has ended").0.clone()
    }

    /// Waits until all is written. To be called when every worker has ended.
    pub(crate) fn finish(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((sink, thread)) = running else { return };
        let lost = Arc::clone(&sink.lost);
        drop(sink);
        // A thread that panicked has said so.
        let _ = thread.join();
        match lost.load(Ordering::Relaxed) {
            0 => {}
            lost => warn!(
                "--trace {}: {lost} lines are missing, the disk was too slow for them",
                self.path.display()
            ),
        }
    }
}

impl Sink {
    /// Takes the lines for the file; `false`: nobody writes them any more.
    pub(crate) fn take(&self, lines: &mut Vec<Line>) -> bool {
        if lines.is_empty() {
            return true;
        }
        match self.sender.try_send(std::mem::replace(lines, Vec::with_capacity(FULL))) {
            Ok(()) => true,
            Err(TrySendError::Full(lines)) => {
                self.lost.fetch_add(lines.len() as u64, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The life of the thread: writes until the last sink is gone, or the file takes no more. `began` is the
/// zero of all times in the trace.
fn write_all(
    buffers: &Receiver<Vec<Line>>,
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
