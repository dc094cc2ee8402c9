//! The file of an access log, and the thread that appends to it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use anyhow::Context;
use tracing::{error, info};

use super::AccessLog;
use crate::line_writer::{LineWriter, Sink};

/// How many batches of lines may wait for the disk.
const WAITING_MOST: usize = 64;

/// Opens the file, which is created if there is none.
///
/// # Errors
/// What the kernel says, with the flag and the file.
pub(crate) fn open(log: &AccessLog) -> anyhow::Result<File> {
    let opened = match &log.path {
        Some(path) => File::options().append(true).create(true).open(path),
        None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
    };
    opened.with_context(|| name(log))
}

/// An access log that is being written.
#[derive(Debug)]
pub(crate) struct AccessLogWriter {
    writer: LineWriter<Vec<u8>>,
    /// Whether the file is to be opened anew before the next lines.
    reopen: Arc<AtomicBool>,
}

impl AccessLogWriter {
    /// Starts the thread, which appends to `file`.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub(crate) fn start(log: &AccessLog, file: File) -> anyhow::Result<AccessLogWriter> {
        let reopen = Arc::new(AtomicBool::new(false));
        let (own, asked) = (log.clone(), Arc::clone(&reopen));
        let append = move |batches: &Receiver<Vec<u8>>| append_all(batches, file, &own, &asked);
        let writer = LineWriter::start("access log", name(log), WAITING_MOST, append);
        Ok(AccessLogWriter { writer: writer.with_context(|| name(log))?, reopen })
    }

    /// A sink for one more worker.
    pub(crate) fn sink(&self) -> Sink<Vec<u8>> {
        self.writer.sink()
    }

    /// Waits until all is written. To be called when every worker has ended.
    pub(crate) fn finish(&self) {
        self.writer.finish();
    }

    /// Has the thread open the file anew by its name, after another program has moved it away. Lines that the thread
    /// has not written yet go to the new file.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
        // No lines: the thread is to look at the flag. If its queue is full, lines make it look.
        self.writer.wake(Vec::new());
    }
}

/// The flag and its value, for messages.
fn name(log: &AccessLog) -> String {
    let path = log.path.as_deref().unwrap_or(Path::new("-"));
    format!("--access-log {}", path.display())
}

/// The life of the thread: appends until the last sink is gone. While the disk is full, lines are lost; the log
/// goes on when there is room again.
fn append_all(batches: &Receiver<Vec<u8>>, mut file: File, log: &AccessLog, reopen: &AtomicBool) {
    let name = name(log);
    let mut is_failing = false;
    for lines in batches {
        if reopen.swap(false, Ordering::Relaxed) {
            match open(log) {
                Ok(opened) => (file, is_failing) = (opened, false),
                Err(error) => error!("cannot open anew: {error:#}; the old file is written on"),
            }
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
