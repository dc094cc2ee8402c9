//! The file of an access log, and the thread that appends to it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use sys::process::start_thread;
use tracing::{error, info, warn};

use super::AccessLog;

/// How many batches of lines may wait for the disk. Further lines are lost, and counted.
const WAITING_MOST: usize = 64;

/// An access log that is being written.
#[derive(Debug)]
pub(crate) struct LogFile {
    name: String,
    /// `None`: the log is finished.
    running: Mutex<Option<(Sink, JoinHandle<()>)>>,
}

/// Where a worker's lines go.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    sender: SyncSender<Vec<u8>>,
    lost: Arc<AtomicU64>,
}

impl LogFile {
    /// Opens the file, which is created if there is none.
    ///
    /// # Errors
    /// What the kernel says, with the flag and the file.
    pub(crate) fn open(log: &AccessLog) -> anyhow::Result<LogFile> {
        let (name, opened) = match &log.path {
            Some(path) => {
                let file = File::options().append(true).create(true).open(path);
                (format!("--access-log {}", path.display()), file)
            }
            None => {
                let own = io::stdout().as_fd().try_clone_to_owned();
                ("--access-log -".to_owned(), own.map(File::from))
            }
        };
        let failed = |error: io::Error| anyhow::Error::from(error).context(name.clone());
        let file = opened.map_err(failed)?;
        let (sender, batches) = sync_channel(WAITING_MOST);
        let own = name.clone();
        let thread = start_thread("access log", move || append_all(&batches, file, &own));
        let thread = thread.map_err(failed)?;
        let sink = Sink { sender, lost: Arc::default() };
        Ok(LogFile { name, running: Mutex::new(Some((sink, thread))) })
    }

    /// A sink for one more worker.
    ///
    /// # Panics
    /// When the log is finished.
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
            lost => {
                warn!("{}: {lost} lines are missing, the disk was too slow for them", self.name)
            }
        }
    }
}

impl Sink {
    /// Takes so many lines for the file; where the disk is too slow for them they are lost and counted.
    pub(super) fn take(&self, lines: Vec<u8>, count: u64) {
        if self.sender.try_send(lines).is_err() {
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// The life of the thread: appends until the last sink is gone. While the disk is full, lines are lost; the log
/// goes on when there is room again.
fn append_all(batches: &Receiver<Vec<u8>>, mut file: File, name: &str) {
    let mut is_failing = false;
    for lines in batches {
        let written = match is_failing {
            // What was cut off ends here.
            true => file.write_all(b"\n").and_then(|()| file.write_all(&lines)),
            false => file.write_all(&lines),
        };
        match (written, is_failing) {
            (Err(reason), false) => {
                error!("cannot write {name}: {reason}; lines are lost, serving goes on");
                is_failing = true;
            }
            (Ok(()), true) => {
                info!("{name} can be written again");
                is_failing = false;
            }
            _ => {}
        }
    }
}
