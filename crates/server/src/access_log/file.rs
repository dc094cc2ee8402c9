//! The file of an access log, and the thread that appends to it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::Receiver;

use anyhow::Context;
use tracing::{error, info};

use super::AccessLog;
use crate::line_writer::LineWriter;

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

/// Starts the thread, which appends to `file`.
///
/// # Errors
/// `EAGAIN` when the process or the user has too many threads.
pub(crate) fn start(log: &AccessLog, file: File) -> anyhow::Result<LineWriter<Vec<u8>>> {
    let own = name(log);
    let append = move |batches: &Receiver<Vec<u8>>| append_all(batches, file, &own);
    LineWriter::start("access log", name(log), WAITING_MOST, append).with_context(|| name(log))
}

/// The flag and its value, for messages.
fn name(log: &AccessLog) -> String {
    let path = log.path.as_deref().unwrap_or(Path::new("-"));
    format!("--access-log {}", path.display())
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
