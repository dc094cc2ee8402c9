//! A session's folder: the request, and a folder with the journal of each experiment.
//!
//! ```text
//! SESSION/session.json                what the session was asked for
//! SESSION/ID/experiment.json          the experiment, with everything that its file includes
//! SESSION/ID/selection.json           what of it is run
//! SESSION/ID/plan.json, runs.jsonl    its journal
//! ```
//!
//! Reports are made from this folder alone, also while the session runs and after the session was killed.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::claims::{self, Judgement};
use crate::journal::{self, Header, JournalError, Run, write_whole};
use crate::model::{Cell, Mark, Sample};
use crate::spec::{self, Experiment};

/// The name of the file that has the session.
pub const SESSION: &str = "session.json";

/// The name of the file that has an experiment.
pub const EXPERIMENT: &str = "experiment.json";

/// The version of the folder.
pub const SCHEMA: &str = "drover.session/1";

/// The request of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedSession {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of Drover.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The preset's name.
    pub preset: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// When the session began, in seconds since 1970 (UTC).
    pub began: f64,
    /// The experiments' ids, in their order.
    pub experiments: Vec<String>,
    /// Experiments that could not be planned on this machine, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(String, String)>,
}

/// An experiment, as far as it has run.
#[derive(Clone, Debug)]
pub struct MeasuredExperiment {
    /// The experiment, with everything that its file includes.
    pub experiment: Experiment,
    /// The experiment's plan, and the machine that it ran on.
    pub header: Header,
    /// The finished runs, in the order in which they ran.
    pub runs: Vec<Run>,
    /// The runs in which the lab itself failed and that were not made again. They say nothing about their cells.
    pub unmeasured: Vec<Run>,
    /// The verdicts of the experiment's claims, in their order. They are one family.
    pub judgements: Vec<Judgement>,
}

impl MeasuredExperiment {
    /// An experiment with the runs of its journal, without verdicts.
    #[must_use]
    pub fn unjudged(experiment: Experiment, header: Header, runs: Vec<Run>) -> MeasuredExperiment {
        let (runs, mut unmeasured): (Vec<Run>, Vec<Run>) =
            runs.into_iter().partition(Run::is_measured);
        let is_of = |run: &Run, other: &Run| {
            run.sample.cell == other.sample.cell && run.sample.round == other.sample.round
        };
        unmeasured.retain(|run| !runs.iter().any(|made| is_of(made, run)));
        MeasuredExperiment { experiment, header, runs, unmeasured, judgements: Vec::new() }
    }

    /// The samples of the runs, and a sample without values for every cell that this machine cannot measure.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let measured = self.runs.iter().map(|run| run.sample.clone());
        measured.chain(self.header.plan.unavailable()).collect()
    }

    /// The number of planned rounds; after a resumption with more rounds, the number of rounds that have run.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        let run = self.runs.iter().map(|run| run.sample.round).max();
        run.unwrap_or_default().max(self.header.plan.rounds)
    }

    /// Whether every planned run has ended. A cell that turned out to be impossible on this machine is not run again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let rounds = self.rounds() as usize;
        let is_run = |cell: &Cell| {
            let own: Vec<&Sample> =
                self.runs.iter().map(|run| &run.sample).filter(|it| it.cell == *cell).collect();
            own.len() >= rounds || own.iter().any(|it| it.validity.contains(&Mark::Unavailable))
        };
        let planned = self.header.plan.cells.iter().filter(|it| it.not_testable.is_none());
        planned.map(|planned| &planned.cell).all(is_run)
    }
}

/// The content of a session's folder.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// The folder.
    pub folder: PathBuf,
    /// The request.
    pub session: RecordedSession,
    /// The experiments that have begun, in the session's order.
    pub measured: Vec<MeasuredExperiment>,
}

impl SessionRecord {
    /// Reads a session's folder and judges every claim; those of an experiment are one family. Leaves out an experiment
    /// that has not begun.
    ///
    /// # Errors
    /// [`JournalError::Io`] and [`JournalError::Invalid`], with the file.
    pub fn read(folder: &Path) -> Result<SessionRecord, JournalError> {
        let mut record = SessionRecord::unjudged(folder)?;
        for one in &mut record.measured {
            one.judgements = claims::judge_all(&one.experiment, &one.samples());
        }
        Ok(record)
    }

    /// Reads a session's folder without judging claims, for callers that need only the samples.
    ///
    /// # Errors
    /// The errors of [`SessionRecord::read`].
    pub fn unjudged(folder: &Path) -> Result<SessionRecord, JournalError> {
        let session = read_session(folder)?;
        let mut measured = Vec::new();
        for id in &session.experiments {
            let folder = folder.join(id);
            if !folder.join(journal::PLAN).exists() {
                continue;
            }
            let experiment = read_experiment(&folder)?;
            let (header, runs) = journal::read(&folder)?;
            measured.push(MeasuredExperiment::unjudged(experiment, header, runs));
        }
        Ok(SessionRecord { folder: folder.to_owned(), session, measured })
    }
}

/// Writes the request of a session.
///
/// # Errors
/// [`JournalError::Io`].
pub fn write_session(folder: &Path, session: &RecordedSession) -> Result<(), JournalError> {
    write_json(&folder.join(SESSION), session)
}

/// Reads the request of a session from its folder.
///
/// # Errors
/// [`JournalError::Io`] and [`JournalError::Invalid`], with the file.
pub fn read_session(folder: &Path) -> Result<RecordedSession, JournalError> {
    let session: RecordedSession = read_json(&folder.join(SESSION))?;
    if session.schema != SCHEMA {
        let what = format!("schema is {}, this lab reads {SCHEMA}", session.schema);
        return Err(JournalError::Invalid(folder.join(SESSION), what));
    }
    if let Some(id) = session.experiments.iter().find(|id| !spec::is_id(id)) {
        // The id is joined to the folder: an id with '..' would lead out of the folder.
        return Err(JournalError::Invalid(
            folder.join(SESSION),
            format!("{id:?} is no experiment's id"),
        ));
    }
    Ok(session)
}

/// Reads an experiment from its own folder.
///
/// # Errors
/// [`JournalError::Io`] and [`JournalError::Invalid`], with the file.
pub fn read_experiment(folder: &Path) -> Result<Experiment, JournalError> {
    read_json(&folder.join(EXPERIMENT))
}

/// Writes an experiment into its own folder, which is created.
///
/// # Errors
/// [`JournalError::Io`].
pub fn write_experiment(folder: &Path, experiment: &Experiment) -> Result<(), JournalError> {
    fs::create_dir_all(folder).map_err(|error| JournalError::Io(folder.to_owned(), error))?;
    write_json(&folder.join(EXPERIMENT), experiment)
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), JournalError> {
    let failed = |error| JournalError::Io(path.to_owned(), error);
    let text = serde_json::to_vec_pretty(value).map_err(|error| failed(error.into()))?;
    write_whole(path, &text).map_err(failed)
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, JournalError> {
    let text = fs::read(path).map_err(|error| JournalError::Io(path.to_owned(), error))?;
    let invalid =
        |error: serde_json::Error| JournalError::Invalid(path.to_owned(), error.to_string());
    serde_json::from_slice(&text).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::built_in;

    #[test]
    fn a_session_that_names_another_folder_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let session = |id: &str| RecordedSession {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            preset: String::new(),
            seed: 0,
            began: 0.0,
            experiments: vec![id.to_owned()],
            refused: Vec::new(),
        };
        for (id, is_fine) in [("long-1", true), ("../x", false), ("/etc", false), ("", false)] {
            write_session(folder.path(), &session(id)).unwrap();
            let read = read_session(folder.path());
            assert_eq!(read.is_ok(), is_fine, "{id}");
            assert!(read.is_ok() || matches!(read, Err(JournalError::Invalid(..))));
        }
    }

    #[test]
    fn every_built_in_experiment_is_the_same_after_it_was_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in built_in::names() {
            let experiment = built_in::experiment(name).unwrap().unwrap();
            let own = folder.path().join(&experiment.id);
            write_experiment(&own, &experiment).unwrap();
            assert_eq!(read_json::<Experiment>(&own.join(EXPERIMENT)).unwrap(), experiment);
        }
    }
}
