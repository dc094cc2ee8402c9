//! Reads the counters of Drover's own server in the window. The server writes its counters to a file at SIGUSR1
//! (`serve --counters FILE`).

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::{Instrument, Readings};
use crate::failure::Failure;
use crate::subject::Running;

/// How long the server may take to write its counters.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the lab looks whether the server has written the file.
const LOOK: Duration = Duration::from_micros(200);

/// Reads how often the server's queue of events has overflowed.
#[derive(Debug)]
pub struct OverflowCounters {
    file: PathBuf,
    before: u64,
}

impl OverflowCounters {
    /// The counters of a server that was told to write them to `file`.
    #[must_use]
    pub fn of(file: PathBuf) -> OverflowCounters {
        OverflowCounters { file, before: 0 }
    }

    fn read(&self, subject: &mut Running) -> Result<Value, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            Failure::failed(format!("the server's counters: {what}: {error}"))
        };
        // The file of an earlier reading is removed, so that a file means new counters.
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("cannot remove the last ones", &error));
            }
            _ => {}
        }
        if let Some(process) = Pid::from_raw(subject.process.id().cast_signed()) {
            rustix::process::kill_process(process, Signal::USR1)
                .map_err(|error| failed("cannot ask for them", &error))?;
        }
        let begin = Instant::now();
        loop {
            match std::fs::read(&self.file) {
                Ok(text) => {
                    return serde_json::from_slice(&text)
                        .map_err(|error| failed("they are not JSON", &error));
                }
                Err(error) if begin.elapsed() > WRITE_TIMEOUT => {
                    return Err(failed("they are not written", &error));
                }
                Err(_) => {
                    subject.process.expect_running()?;
                    thread::sleep(LOOK);
                }
            }
        }
    }
}

impl Instrument for OverflowCounters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn begin(&mut self, subject: &mut Running) -> Result<(), Failure> {
        self.before = overflows(&self.read(subject)?)?;
        Ok(())
    }

    fn end(&mut self, subject: &mut Running, seconds: f64) -> Result<Readings, Failure> {
        let counters = self.read(subject)?;
        let mut readings = Readings::default();
        let count = overflows(&counters)?.saturating_sub(self.before);
        readings.set("overflows", count as f64 / seconds);
        readings.notes = counters;
        Ok(readings)
    }
}

/// The number of overflows. A file without it has not counted none: it is of another program or version.
fn overflows(counters: &Value) -> Result<u64, Failure> {
    let number = counters.pointer("/all/overflows").and_then(Value::as_u64);
    number.ok_or_else(|| Failure::not_measured("the server's counters have no /all/overflows"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_without_the_number_are_not_zero() {
        assert_eq!(overflows(&json!({ "all": { "overflows": 3 } })), Ok(3));
        for other in [json!({}), json!({ "all": { "overflows": "3" } })] {
            assert!(matches!(overflows(&other), Err(Failure::NotMeasured(_))), "{other}");
        }
    }
}
