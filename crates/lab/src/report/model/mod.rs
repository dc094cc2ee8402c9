//! The content of a report as data. The page, the terminal's summary and the tables are all made from it.

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
use crate::record::{self, SessionRecord};
use crate::spec::claim::By;
use crate::spec::{built_in, is_id};
use answer::QuestionAnswer;
use claim::ClaimReport;
use experiment::{ExperimentReport, ExperimentState};

/// The version of the data.
pub const SCHEMA: &str = "drover.report/1";

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The request of the session, and how far the session has come.
    pub session: SessionReport,
    /// The machine; `None` while no experiment has begun.
    pub machine: Option<MachineSummary>,
    /// The result of `drover lab calibrate` on this machine, if there is one.
    pub calibration: Option<Calibration>,
    /// The differences between the machine of the calibration and the machine of the session.
    pub calibration_differences: Vec<String>,
    /// Why the file of a calibration cannot be read, if it cannot.
    pub calibration_fault: Option<String>,
    /// The questions of users, in order, with the answers of the samples.
    pub answers: Vec<QuestionAnswer>,
    /// The verdicts on the claims of documents, counted.
    pub document: VerdictCounts,
    /// The verdicts on this project's own claims, counted.
    pub ours: VerdictCounts,
    /// The experiments, in the session's order; after them the experiments that could not be planned.
    pub experiments: Vec<ExperimentReport>,
}

/// The request of a session, and how far the session has come.
#[derive(Clone, Debug, Serialize)]
pub struct SessionReport {
    /// The version of Drover.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The preset's name.
    pub preset: String,
    /// The seed of all random choices.
    pub seed: u64,
    /// When the session began (UTC, RFC 3339).
    pub began: String,
    /// The time from the beginning of the first run to the end of the last run, in seconds.
    pub took_s: f64,
    /// The runs that have ended.
    pub runs: usize,
    /// The runs that were planned.
    pub planned: usize,
    /// Whether every planned run has ended, or the missing runs were cut by a budget.
    pub is_complete: bool,
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub struct MachineSummary {
    /// Processor, count, memory and kernel in a line.
    pub line: String,
    /// The kernel, as uname(2) returns it.
    pub kernel: String,
    /// The hash of Drover's binary.
    pub program: String,
    /// Everything else, by name.
    pub facts: BTreeMap<String, String>,
    /// The differences in the environments of later experiments.
    pub differences: Vec<String>,
}

/// How many claims have each verdict, by the verdict's word.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VerdictCounts {
    /// The number of all claims.
    pub claims: usize,
    /// The number of claims by the word of their verdict; the most frequent word comes first.
    pub verdicts: Vec<(String, usize)>,
}

impl Report {
    /// The report of a session, as far as the session has come.
    #[must_use]
    pub fn of(record: &SessionRecord) -> Report {
        let session = &record.session;
        let mut experiments = Vec::new();
        for id in &session.experiments {
            match record.measured.iter().find(|one| one.experiment.id == *id) {
                Some(measured) => experiments.push(ExperimentReport::of(measured, session.began)),
                None if is_refused(record, id) => {}
                None => experiments.push(absent(record, id, &ExperimentState::NotBegun)),
            }
        }
        for (id, reason) in &session.refused {
            // An experiment that failed in the middle is refused and still has runs.
            match experiments.iter_mut().find(|one: &&mut ExperimentReport| one.id == *id) {
                Some(begun) => begun.notes.push(format!("It ended before its time: {reason}.")),
                None => experiments.push(absent(
                    record,
                    id,
                    &ExperimentState::Refused { reason: reason.clone() },
                )),
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
    /// Whether the samples answer any question.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        let mut findings = self.answers.iter().flat_map(|answer| &answer.findings);
        findings.any(|it| it.outcome != answer::AnswerKind::NotMeasured)
    }
}

fn is_refused(record: &SessionRecord, id: &str) -> bool {
    record.session.refused.iter().any(|(refused, _)| refused == id)
}

/// The report of an experiment without measurements. If the session's folder lacks the experiment, it is taken from
/// the built-in experiments, so that its claims stay in the table.
fn absent(record: &SessionRecord, id: &str, state: &ExperimentState) -> ExperimentReport {
    let own = is_id(id).then(|| record::read_experiment(&record.folder.join(id)).ok()).flatten();
    match own.map(Ok).or_else(|| built_in::experiment(id)) {
        Some(Ok(experiment)) => ExperimentReport::without_runs(&experiment, state),
        _ => ExperimentReport::unknown(id, state),
    }
}

fn session_report(record: &SessionRecord) -> SessionReport {
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
        // A session that was resumed with more rounds has more runs than its first plan.
        planned: record.measured.iter().map(|one| one.header.plan.runs().max(one.runs.len())).sum(),
        is_complete: is_begun
            && record.measured.iter().all(crate::record::MeasuredExperiment::is_complete),
    }
}

fn machine(record: &SessionRecord) -> Option<MachineSummary> {
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
    Some(MachineSummary {
        line: parts.into_iter().flatten().collect::<Vec<_>>().join(" · "),
        kernel: first.kernel.clone(),
        program: first.program.clone(),
        facts: first.machine.clone(),
        differences: differences.into_iter().collect(),
    })
}

/// The calibration in the session's folder, or otherwise in the folder of all sessions above it.
fn calibration(record: &SessionRecord) -> Result<Option<Calibration>, String> {
    let above = record.folder.parent();
    for folder in [Some(record.folder.as_path()), above].into_iter().flatten() {
        if let Some(calibration) = Calibration::read(folder).map_err(|why| why.to_string())? {
            return Ok(Some(calibration));
        }
    }
    Ok(None)
}

fn tally<'c>(claims: impl Iterator<Item = &'c ClaimReport>) -> VerdictCounts {
    let mut tally = VerdictCounts::default();
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
