//! What a report says, as data: the one source of the page, the terminal's summary and the tables.

pub mod answer;
pub mod claim;
pub mod estimate;
pub mod experiment;
pub mod figure;
pub mod samples;
pub mod words;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::calibrate::Calibration;
use crate::record::{self, Record};
use crate::spec::claim::By;
use crate::spec::{built_in, is_id};
use answer::Answer;
use claim::ClaimReport;
use experiment::{ExperimentReport, State};

/// The version of the data.
pub const SCHEMA: &str = "drover.report/1";

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was asked for, and how far it came.
    pub session: SessionReport,
    /// Where it ran; `None` while no experiment has begun.
    pub machine: Option<Machine>,
    /// What `drover lab calibrate` has found on this machine, if it was run.
    pub calibration: Option<Calibration>,
    /// What differs between where the calibration was made and where the session ran.
    pub calibration_differences: Vec<String>,
    /// Why the file of a calibration cannot be read, if there is such a file.
    pub calibration_fault: Option<String>,
    /// The questions that users bring, in order, with what the samples answer.
    pub answers: Vec<Answer>,
    /// How many claims of documents have each verdict.
    pub document: Tally,
    /// How many claims of this project's own have each verdict.
    pub ours: Tally,
    /// The experiments, in the session's order; then those that could not be planned.
    pub experiments: Vec<ExperimentReport>,
}

/// What a session was asked for, and how far it came.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// The version of Drover.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The preset's name.
    pub preset: String,
    /// What all random choices derive from.
    pub seed: u64,
    /// When the session began (UTC, RFC 3339).
    pub began: String,
    /// How long it was from the first run's beginning to the last one's end, in seconds.
    pub took_s: f64,
    /// The runs that have ended.
    pub runs: usize,
    /// The runs that were planned.
    pub planned: usize,
    /// Whether every planned run has ended, or what is missing was cut by a budget.
    pub is_complete: bool,
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor, count, memory and kernel in a line.
    pub line: String,
    /// The kernel, as uname(2) tells it.
    pub kernel: String,
    /// The hash of Drover's binary.
    pub program: String,
    /// Everything else, by name.
    pub facts: BTreeMap<String, String>,
    /// What differs in the environments of later experiments.
    pub differences: Vec<String>,
}

/// How many claims have each verdict, by the verdict's word.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// All claims.
    pub claims: usize,
    /// Claims by the word of their verdict, the most frequent word first.
    pub verdicts: Vec<(String, usize)>,
}

impl Report {
    /// The report of a session, as far as it has come.
    #[must_use]
    pub fn of(record: &Record) -> Report {
        let session = &record.session;
        let mut experiments = Vec::new();
        for id in &session.experiments {
            match record.measured.iter().find(|one| one.experiment.id == *id) {
                Some(measured) => experiments.push(ExperimentReport::of(measured, session.began)),
                None if is_refused(record, id) => {}
                None => experiments.push(absent(record, id, &State::NotBegun)),
            }
        }
        for (id, reason) in &session.refused {
            // One that failed in the middle has runs all the same.
            match experiments.iter_mut().find(|one: &&mut ExperimentReport| one.id == *id) {
                Some(begun) => begun.notes.push(format!("It ended before its time: {reason}.")),
                None => {
                    experiments.push(absent(record, id, &State::Refused { reason: reason.clone() }))
                }
            }
        }
        let claims = || experiments.iter().flat_map(|one| &one.claims);
        let (calibration, calibration_fault) = match calibration(record) {
            Ok(calibration) => (calibration, None),
            Err(fault) => (None, Some(fault)),
        };
        let here = record.measured.first().map(|one| &one.header.environment);
        let differences = calibration.as_ref().zip(here);
        Report {
            schema: SCHEMA,
            session: session_report(record),
            machine: machine(record),
            calibration_differences: differences.map_or(Vec::new(), |(calibration, here)| {
                calibration.environment.differences(here)
            }),
            calibration,
            calibration_fault,
            answers: answer::answers(record),
            document: tally(claims().filter(|claim| claim.by == By::Document)),
            ours: tally(claims().filter(|claim| claim.by == By::Ours)),
            experiments,
        }
    }
}

impl Report {
    /// Whether any question is answered, as far as the samples tell.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        let mut findings = self.answers.iter().flat_map(|answer| &answer.findings);
        findings.any(|it| it.outcome != answer::Outcome::NotMeasured)
    }
}

fn is_refused(record: &Record, id: &str) -> bool {
    record.session.refused.iter().any(|(refused, _)| refused == id)
}

/// An experiment of which nothing was measured. What the session's folder does not have is taken from the
/// built-in experiments: their claims stay in the table.
fn absent(record: &Record, id: &str, state: &State) -> ExperimentReport {
    let own = is_id(id).then(|| record::read_experiment(&record.folder.join(id)).ok()).flatten();
    match own.map(Ok).or_else(|| built_in::experiment(id)) {
        Some(Ok(experiment)) => ExperimentReport::without_runs(&experiment, state),
        _ => ExperimentReport::unknown(id, state),
    }
}

fn session_report(record: &Record) -> SessionReport {
    let session = &record.session;
    let runs = || record.measured.iter().flat_map(|one| &one.runs);
    let first = runs().map(|run| run.began).fold(f64::INFINITY, f64::min);
    let last = runs().map(|run| run.began + run.took_s).fold(f64::NEG_INFINITY, f64::max);
    let has_begun = |id: &String| record.measured.iter().any(|one| one.experiment.id == *id);
    let is_begun = session.experiments.iter().filter(|id| !is_refused(record, id)).all(has_begun);
    SessionReport {
        version: session.version.clone(),
        command: session.command.clone(),
        preset: session.preset.clone(),
        seed: session.seed,
        began: words::utc(session.began),
        took_s: if first <= last { last - first } else { 0.0 },
        runs: runs().count(),
        // A session that went on with more rounds has more runs than its first plan.
        planned: record.measured.iter().map(|one| one.header.plan.runs().max(one.runs.len())).sum(),
        is_complete: is_begun && record.measured.iter().all(crate::record::Measured::is_complete),
    }
}

fn machine(record: &Record) -> Option<Machine> {
    let first = &record.measured.first()?.header.environment;
    let fact = |name: &str| first.machine.get(name).map(String::as_str);
    let release = first.kernel.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let is_virtual = (fact("virtual machine") == Some("true")).then_some("a virtual machine");
    let processors = fact("processors").map(|count| match count {
        "1" => "1 processor".to_owned(),
        count => format!("{count} processors"),
    });
    let memory = fact("memory").map(words::memory);
    let parts = [
        fact("processor").map(str::to_owned),
        processors,
        memory,
        Some(release),
        is_virtual.map(str::to_owned),
    ];
    let differences: std::collections::BTreeSet<String> =
        record.measured.iter().flat_map(|one| first.differences(&one.header.environment)).collect();
    Some(Machine {
        line: parts.into_iter().flatten().collect::<Vec<_>>().join(" · "),
        kernel: first.kernel.clone(),
        program: first.program.clone(),
        facts: first.machine.clone(),
        differences: differences.into_iter().collect(),
    })
}

/// The calibration in the session's folder, or else in the folder of all sessions above it.
fn calibration(record: &Record) -> Result<Option<Calibration>, String> {
    let above = record.folder.parent();
    for folder in [Some(record.folder.as_path()), above].into_iter().flatten() {
        if let Some(calibration) = Calibration::read(folder).map_err(|why| why.to_string())? {
            return Ok(Some(calibration));
        }
    }
    Ok(None)
}

fn tally<'c>(claims: impl Iterator<Item = &'c ClaimReport>) -> Tally {
    let mut tally = Tally::default();
    for claim in claims {
        tally.claims += 1;
        match tally.verdicts.iter_mut().find(|(word, _)| *word == claim.verdict.word) {
            Some((_, count)) => *count += 1,
            None => tally.verdicts.push((claim.verdict.word.clone(), 1)),
        }
    }
    tally.verdicts.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), word.clone()));
    tally
}

#[cfg(test)]
mod tests;
