//! What a worker's dispatch mechanism has reported, turn by turn, written to a file (`--record-events FILE`).
//!
//! The first line says what the file is and when it begins, in seconds since 1970. Each turn with events
//! is a line: microseconds since the beginning of the file, and the connection number of each event, in order.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use drover_mech::readiness::Event;
use tracing::warn;

/// The name and version of the format.
const FORMAT: &str = "drover.events/1";

/// The file of a worker's events. It is complete when this is dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The file; `None`: a write has failed.
    file: Option<BufWriter<File>>,
    began: Instant,
}

impl Recorder {
    /// Begins a record in `file`.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn begin(file: File, dispatch: &str) -> io::Result<Recorder> {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(file, "# {FORMAT} started={:.6} dispatch={dispatch}", now.as_secs_f64())?;
        Ok(Recorder { file: Some(file), began: Instant::now() })
    }

    /// Writes down the events of a turn. After the first failure nothing is written any more.
    pub(crate) fn turn(&mut self, events: &[Event]) {
        let Some(file) = self.file.as_mut().filter(|_| !events.is_empty()) else { return };
        let mut write = || {
            write!(file, "{}", self.began.elapsed().as_micros())?;
            for event in events {
                write!(file, " {}", event.key.slot)?;
            }
            writeln!(file)
        };
        if let Err(error) = write() {
            warn!("--record-events: {error}; no more events are recorded");
            self.file = None;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.file.as_mut().map(BufWriter::flush) {
            warn!("--record-events: {error}; the last events are missing");
        }
    }
}
