//! The file of an access log, and the thread that appends to it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tracing::{error, info};

use super::AccessLog;
use crate::line_writer::{LineWriter, Sink};

/// How many batches of lines may wait for the disk.
const WAITING_MOST: usize = 64;

/// An access log that is being written.
#[derive(Debug)]
pub(crate) struct AccessLogWriter {
    writer: LineWriter<Vec<u8>>,
    /// The file that the next lines go to, if it is another one.
    next: Arc<Mutex<Option<File>>>,
}

impl AccessLogWriter {
    /// Starts the thread, which appends to `file`.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub(crate) fn start(log: &AccessLog, file: File) -> anyhow::Result<AccessLogWriter> {
        let next = Arc::default();
        let (own, changed) = (name(log), Arc::clone(&next));
        let append = move |batches: &Receiver<Vec<u8>>| append_all(batches, file, &own, &changed);
        let writer = LineWriter::start("access log", name(log), WAITING_MOST, append);
        Ok(AccessLogWriter { writer: writer.with_context(|| name(log))?, next })
    }

    /// A sink for one more worker.
    pub(crate) fn sink(&self) -> Sink<Vec<u8>> {
        self.writer.sink()
    }

    /// Waits until all is written. To be called when every worker has ended.
    pub(crate) fn finish(&self) {
        self.writer.finish();
    }

    /// Has the thread append to another file, after another program has moved the one before away. Lines that the thread
    /// has not written yet go to the other file.
    pub(crate) fn change(&self, file: File) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        // No lines: the thread is to look for the file. If its queue is full, lines make it look.
        self.writer.wake(Vec::new());
    }
}

/// The flag and its value, for messages.
pub(crate) fn name(log: &AccessLog) -> String {
    let path = log.path.as_deref().unwrap_or(Path::new("-"));
    format!("--access-log {}", path.display())
}

/// The life of the thread: appends until the last sink is gone. While the disk is full, lines are lost; the log
/// goes on when there is room again.
fn append_all(batches: &Receiver<Vec<u8>>, mut file: File, name: &str, next: &Mutex<Option<File>>) {
    let mut is_failing = false;
    for lines in batches {
        if let Some(next) = next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            (file, is_failing) = (next, false);
        }
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
