//! The file of a trace, and the thread that writes to it, so that no worker waits for its disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tracing::{error, warn};

use super::{COLUMNS, FORMAT};

/// Buffers that may wait for the disk; what comes then is lost, and counted.
const WAITING_MOST: usize = 16;

/// A trace that is being written.
#[derive(Debug)]
pub(in crate::server) struct Trace {
    path: PathBuf,
    /// `None`: finished.
    running: Mutex<Option<(Sink, JoinHandle<()>)>>,
}

/// Where a worker's lines go.
#[derive(Clone, Debug)]
pub(in crate::server) struct Sink {
    sender: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
    /// The zero of all times in the trace.
    pub(super) began: Instant,
}

impl Trace {
    /// Creates the file, or empties it, and begins it with what `about` tells of the server.
    ///
    /// # Errors
    /// What the kernel says.
    pub(in crate::server) fn create(path: &Path, about: &str) -> io::Result<Trace> {
        let mut file = File::create(path)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Instant::now();
        let head = format!("# {FORMAT} started={:.6} {about}\n{COLUMNS}\n", now.as_secs_f64());
        file.write_all(head.as_bytes())?;
        let (sender, buffers) = sync_channel(WAITING_MOST);
        let (name, written) = (path.to_owned(), head.len() as u64);
        let writer = move || write_all(&buffers, file, &name, written);
        let thread = thread::Builder::new().name("trace".to_owned()).spawn(writer)?;
        let sink = Sink { sender, lost: Arc::default(), began };
        Ok(Trace { path: path.to_owned(), running: Mutex::new(Some((sink, thread))) })
    }

    /// For one more worker.
    ///
    /// # Panics
    /// When the trace is finished.
    pub(in crate::server) fn sink(&self) -> Sink {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().expect("no worker begins after the last has ended").0.clone()
    }

    /// Waits until all is written. To be called when every worker has ended.
    pub(in crate::server) fn finish(&self) {
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
    pub(super) fn take(&self, lines: &mut Vec<u8>) -> bool {
        if lines.is_empty() {
            return true;
        }
        let capacity = lines.capacity();
        match self.sender.try_send(std::mem::replace(lines, Vec::with_capacity(capacity))) {
            Ok(()) => true,
            Err(TrySendError::Full(lines)) => {
                let count = lines.iter().filter(|&&byte| byte == b'\n').count();
                self.lost.fetch_add(count as u64, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The life of the thread: writes until the last sink is gone, or the file takes no more.
fn write_all(buffers: &Receiver<Vec<u8>>, mut file: File, path: &Path, mut written: u64) {
    for lines in buffers {
        if let Err(reason) = file.write_all(&lines) {
            error!(
                "cannot write --trace {}: {reason}; the trace ends here, serving goes on",
                path.display()
            );
            // What is there ends with a whole line, where the file can be cut.
            let _ = file.set_len(written);
            return;
        }
        written += lines.len() as u64;
    }
}
