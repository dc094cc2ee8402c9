//! Which differences this machine can find. One server is measured under two names in every round: every difference
//! that seems to be between the two is a false alarm.
//!
//! `drover lab calibrate` runs the experiments and writes [`FILE`] beside the sessions. Reports quote the file in
//! their section on methods.

mod experiment;
mod noise;
pub(crate) mod table;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::journal::{Environment, JournalError, write_whole};
use crate::old_names::read_metric;

pub use experiment::{PRESET, SLOWED, cpu_per_request, equal_servers, slowed_servers};
pub use noise::{noise, slowed};

/// The name of the file, in the folder of the sessions.
pub const FILE: &str = "calibration.json";

/// The version of the file.
pub const SCHEMA: &str = "drover.calibration/1";

/// The two-sided size of the tests: the false-alarm rate that each of them promises.
pub const SIZE: f64 = 0.05;

/// The numbers of rounds for which a calibration has the smallest difference.
pub const ROUNDS: [usize; 4] = [6, 10, 20, 40];

/// Which differences a machine can find.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of Drover.
    pub version: String,
    /// When the measurement began, in seconds since 1970 (UTC).
    pub began: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// The two-sided size of the tests, [`SIZE`].
    pub size: f64,
    /// The share of experiments that find a difference of the smallest size: 0.8.
    pub power: f64,
    /// The machine and the program of the measurement.
    pub environment: Environment,
    /// A row for each metric under each workload.
    pub metrics: Vec<MetricNoise>,
    /// How often servers were found that are slowed by a known share; empty if no slowed server was run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowed: Vec<SlowedServer>,
}

/// How a metric varies under a workload between equal servers, and which differences are found in spite of the
/// variation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricNoise {
    /// The name of the workload: `saturation`.
    pub workload: String,
    /// The name of the metric in experiment files: `cpu-per-response`.
    #[serde(deserialize_with = "read_metric")]
    pub metric: String,
    /// The name of the metric in tables.
    pub title: String,
    /// The unit of the metric.
    pub unit: String,
    /// The median of all values.
    pub median: f64,
    /// The rounds with two usable values. All other numbers are computed from these rounds.
    pub rounds: usize,
    /// The runs whose value the load generator limited, or whose times errors cut off.
    pub limited: usize,
    /// The number of random splits.
    pub splits: usize,
    /// The number of rounds in each split.
    pub split_rounds: usize,
    /// The share of splits in which equal servers seemed to differ. [`Calibration::size`] is the share that the test
    /// promises.
    pub false_alarms: f64,
    /// The standard deviation of the logarithm between runs of one round.
    pub within_rounds: f64,
    /// The standard deviation of the logarithm from round to round.
    pub between_rounds: f64,
    /// The smallest difference that can be found, by the number of rounds.
    pub smallest: Vec<Smallest>,
}

/// The smallest difference that a number of rounds can find.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Smallest {
    /// The number of rounds.
    pub rounds: usize,
    /// The difference, in percent of the lower value.
    pub percent: f64,
}

/// A server that spins for a known time on each request, and how often it was found to be slower.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowedServer {
    /// The name of the workload.
    pub workload: String,
    /// The name of the metric.
    #[serde(deserialize_with = "read_metric")]
    pub metric: String,
    /// By which share of its CPU time per request the server was slowed, in percent.
    pub percent: f64,
    /// How long it spins on each request, in microseconds.
    pub spin_us: f64,
    /// By how much the metric differed over all rounds, in percent.
    pub measured_percent: f64,
    /// The ends of the interval of 95 % of that difference, in percent.
    pub interval_percent: (f64, f64),
    /// How often the server was found to be slower, by the number of rounds.
    pub found: Vec<Found>,
}

/// How often a slowed server was found in a number of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The number of rounds.
    pub rounds: usize,
    /// The number of random subsets with `rounds` rounds.
    pub subsets: usize,
    /// The share of the subsets in which the server was found to be slower.
    pub found: f64,
    /// The share that the noise of the metric predicts for [`SlowedServer::percent`].
    pub predicted: f64,
}

impl Calibration {
    /// Reads the file in the folder of the sessions; `None` if this machine has not been calibrated there.
    ///
    /// # Errors
    /// [`JournalError::Io`]; [`JournalError::Invalid`] for a file of another version.
    pub fn read(folder: &Path) -> Result<Option<Calibration>, JournalError> {
        let path = folder.join(FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| JournalError::Io(path.clone(), error))?,
        };
        let found: Calibration = serde_json::from_slice(&text)
            .map_err(|error| JournalError::Invalid(path.clone(), error.to_string()))?;
        match found.schema == SCHEMA {
            true => Ok(Some(found)),
            false => {
                let what = format!("schema is {}, this lab reads {SCHEMA}", found.schema);
                Err(JournalError::Invalid(path, what))
            }
        }
    }

    /// Writes the file into the folder of the sessions.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn write(&self, folder: &Path) -> Result<(), JournalError> {
        let path = folder.join(FILE);
        let failed = |error| JournalError::Io(path.clone(), error);
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        fs::create_dir_all(folder).map_err(failed)?;
        write_whole(&path, &text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_is_the_same_after_it_was_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Calibration::read(folder.path()).unwrap(), None);
        let calibration = Calibration {
            schema: SCHEMA.to_owned(),
            version: "0.1.0".to_owned(),
            began: 1.5,
            seed: 7,
            size: SIZE,
            power: 0.8,
            environment: Environment::default(),
            metrics: Vec::new(),
            slowed: vec![SlowedServer {
                workload: "saturation".to_owned(),
                metric: "cpu-per-response".to_owned(),
                percent: 5.0,
                spin_us: 0.7,
                measured_percent: 5.5,
                interval_percent: (4.5, 6.5),
                found: vec![Found { rounds: 6, subsets: 400, found: 0.7, predicted: 0.6 }],
            }],
        };
        calibration.write(folder.path()).unwrap();
        assert_eq!(Calibration::read(folder.path()).unwrap(), Some(calibration.clone()));
        Calibration { schema: "other/1".to_owned(), ..calibration }.write(folder.path()).unwrap();
        let error = Calibration::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("other/1"), "{error}");
    }
}
