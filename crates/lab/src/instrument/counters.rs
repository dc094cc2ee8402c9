//! Reads the counters of Drover's own server (`serve --counters FILE`). The server writes them to the file at SIGUSR1, and
//! when it has stopped.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::{Instrument, Readings};
use crate::analysis::summary::variation;
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
        forget(&self.file)?;
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

/// Removes the counters of an earlier reading, so that a file means new counters.
///
/// # Errors
/// [`Failure::Failed`]: the file cannot be removed.
pub fn forget(file: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::failed(format!(
            "the server's counters: cannot remove the last ones: {error}"
        ))),
        _ => Ok(()),
    }
}

/// How unevenly the workers of a server that has stopped have taken connections; `None` if there is one worker only, or if
/// the server has written no counters: another server, or one that was killed.
///
/// # Errors
/// [`Failure::NotMeasured`]: the file cannot be read, or is not one of counters.
pub fn imbalance(file: &Path) -> Result<Option<f64>, Failure> {
    let text = match std::fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| format!("cannot read them: {error}")),
    };
    let counters = text.and_then(|text| {
        serde_json::from_slice(&text).map_err(|error| format!("they are not JSON: {error}"))
    });
    let taken = counters.and_then(|counters| {
        connections(&counters).ok_or_else(|| "they have no connections of workers".to_owned())
    });
    let taken =
        taken.map_err(|why| Failure::not_measured(format!("the server's counters: {why}")))?;
    Ok((taken.len() > 1).then(|| variation(&taken)))
}

/// The connections that each worker has accepted.
fn connections(counters: &Value) -> Option<Vec<f64>> {
    let workers = counters["workers"].as_array()?;
    workers.iter().map(|worker| worker["connections"].as_f64()).collect()
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

    #[test]
    fn imbalance_is_that_of_the_workers_connections() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        assert_eq!(imbalance(&file), Ok(None));
        for (counters, expected) in [
            (json!({ "workers": [{ "connections": 9 }, { "connections": 3 }] }), Some(0.5)),
            (json!({ "workers": [{ "connections": 9 }] }), None),
        ] {
            std::fs::write(&file, counters.to_string()).unwrap();
            assert_eq!(imbalance(&file), Ok(expected), "{counters}");
        }
        for other in ["", "{}", r#"{"workers": [{"connections": 9}, {}]}"#] {
            std::fs::write(&file, other).unwrap();
            assert!(matches!(imbalance(&file), Err(Failure::NotMeasured(_))), "{other}");
        }
        forget(&file).unwrap();
        assert_eq!((forget(&file), imbalance(&file)), (Ok(()), Ok(None)));
    }
}
