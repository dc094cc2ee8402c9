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

/// Reads what the server has counted: for each request, and overflows of its queue of events.
#[derive(Debug)]
pub struct ServerCounters {
    file: PathBuf,
    before: Counts,
}

/// What the server has counted until now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    requests: u64,
    overflows: u64,
    /// Metrics that are counts for each request, in the order of [`PER_RESPONSE`].
    others: [u64; PER_RESPONSE.len()],
}

/// Metrics that are counts for each request, with the name of the counter.
const PER_RESPONSE: [(&str, &str); 4] = [
    ("events-per-response", "events"),
    ("wait-calls-per-response", "dispatch_waits"),
    ("sleeps-per-response", SLEEPS),
    ("lost-accepts-per-response", "accepts_lost"),
];

/// The counter of voluntary context switches, which each worker has, and all together have not.
const SLEEPS: &str = "waits";

impl Counts {
    /// A file without a number has not counted none: it is of another program or version.
    fn read(counters: &Value) -> Result<Counts, Failure> {
        let lacks =
            |what: &str| Failure::not_measured(format!("the server's counters have no {what}"));
        let number = |name: &str| {
            counters["all"][name].as_u64().ok_or_else(|| lacks(&format!("/all/{name}")))
        };
        // Of each worker alone, since the threads of a worker that has ended are counted otherwise.
        let of_workers = |name: &str| {
            let workers = counters["workers"].as_array();
            let counts = workers.into_iter().flatten().map(|worker| worker[name].as_u64());
            counts.sum::<Option<u64>>().ok_or_else(|| lacks(&format!("/workers/{name}")))
        };
        let mut others = [0; PER_RESPONSE.len()];
        for (count, (_, name)) in others.iter_mut().zip(PER_RESPONSE) {
            *count = if name == SLEEPS { of_workers(name)? } else { number(name)? };
        }
        Ok(Counts { requests: number("requests")?, overflows: number("overflows")?, others })
    }

    /// What was counted since `before`, in so many seconds.
    fn since(&self, before: &Counts, seconds: f64) -> Readings {
        let mut readings = Readings::default();
        let overflows = self.overflows.saturating_sub(before.overflows);
        readings.set("overflows", overflows as f64 / seconds);
        let requests = self.requests.saturating_sub(before.requests);
        if requests > 0 {
            for (at, (metric, _)) in PER_RESPONSE.iter().enumerate() {
                let count = self.others[at].saturating_sub(before.others[at]);
                readings.set(metric, count as f64 / requests as f64);
            }
        }
        readings
    }
}

impl ServerCounters {
    /// The counters of a server that was told to write them to `file`.
    #[must_use]
    pub fn of(file: PathBuf) -> ServerCounters {
        ServerCounters { file, before: Counts::default() }
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

impl Instrument for ServerCounters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn begin(&mut self, subject: &mut Running) -> Result<(), Failure> {
        self.before = Counts::read(&self.read(subject)?)?;
        Ok(())
    }

    fn end(&mut self, subject: &mut Running, seconds: f64) -> Result<Readings, Failure> {
        let counters = self.read(subject)?;
        let mut readings = Counts::read(&counters)?.since(&self.before, seconds);
        readings.notes = counters;
        Ok(readings)
    }
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

    /// The counters of a server after so many requests, with so many events.
    fn counters(requests: u64, events: u64) -> Value {
        json!({ "all": {
            "requests": requests, "overflows": 3, "events": events, "dispatch_waits": requests,
            "accepts_lost": 7,
        }, "workers": [{ "waits": requests }, { "waits": requests }] })
    }

    #[test]
    fn counters_without_a_number_are_not_zero() {
        assert_eq!(Counts::read(&counters(9, 1)).unwrap().overflows, 3);
        let mut text = counters(9, 1);
        text["all"]["overflows"] = json!("3");
        for other in [json!({}), text] {
            assert!(matches!(Counts::read(&other), Err(Failure::NotMeasured(_))), "{other}");
        }
    }

    #[test]
    fn counts_are_those_of_the_window_for_each_request() {
        let [before, after] =
            [counters(100, 50), counters(300, 450)].map(|it| Counts::read(&it).unwrap());
        let readings = after.since(&before, 2.0);
        assert_eq!(readings.values["events-per-response"], 2.0);
        assert_eq!(readings.values["wait-calls-per-response"], 1.0);
        assert_eq!(readings.values["sleeps-per-response"], 2.0);
        assert_eq!(readings.values["lost-accepts-per-response"], 0.0);
        assert_eq!(readings.values["overflows"], 0.0);
        let nothing = before.since(&before, 2.0).values;
        assert_eq!(nothing.keys().collect::<Vec<_>>(), ["overflows"]);
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
