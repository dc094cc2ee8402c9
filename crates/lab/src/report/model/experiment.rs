//! One experiment of a report: its question, its measurements, and the verdicts on its claims.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::claim::{self, ClaimReport};
use super::estimate::{Estimate, estimate, marks};
use super::figure::FigureReport;
use super::samples::Samples;
use super::words;
use crate::claims::{LevelByFactor, Verdict};
use crate::model::{Cell, Mark, Sample};
use crate::old_names::read_metric;
use crate::record::MeasuredExperiment;
use crate::spec::experiment::Experiment;
use crate::spec::metric::Better;
use crate::spec::subject::{SubjectKind, SubjectSpec};

/// How far an experiment has come.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentState {
    /// Every planned run has ended.
    Complete,
    /// Runs are missing: the session still runs, or was ended early, or the budget was spent.
    Partial,
    /// No run has begun.
    NotBegun,
    /// It could not be planned here.
    Refused {
        /// Why.
        reason: String,
    },
}

/// An experiment.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentReport {
    /// Its name on the command line, and in links.
    pub id: String,
    /// Its name for people.
    pub title: String,
    /// The document and section that published it.
    pub source: Option<String>,
    /// The question of the experiment, in a sentence.
    pub question: Option<String>,
    /// The method, in a paragraph.
    pub method: Option<String>,
    /// What differs from the published set-up.
    pub differences: Vec<String>,
    /// How far it has come.
    pub state: ExperimentState,
    /// The runs that have ended.
    pub runs: usize,
    /// The runs that were planned.
    pub planned: usize,
    /// The rounds that were planned.
    pub rounds: u32,
    /// Remarks: what was cut, and which flag helps.
    pub notes: Vec<String>,
    /// What is measured, in the order of the legend.
    pub subjects: Vec<SubjectReport>,
    /// The axes.
    pub factors: Vec<FactorReport>,
    /// The metrics of claims and figures, in their order.
    pub metrics: Vec<MetricReport>,
    /// The planned cells.
    pub cells: Vec<CellReport>,
    /// The claims.
    pub claims: Vec<ClaimReport>,
    /// The figures.
    pub figures: Vec<FigureReport>,
    /// The raw samples.
    pub samples: Samples,
}

/// A subject.
#[derive(Clone, Debug, Serialize)]
pub struct SubjectReport {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub title: Option<String>,
    /// Whether it is a model of something that this kernel does not have.
    pub model: bool,
    /// The command line of a server, its environment and its files, with placeholders; empty for other subjects. The
    /// page shows it as text; the page's data lack it.
    #[serde(skip)]
    pub setup: String,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct FactorReport {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// The unit of its levels; empty if it has none.
    pub unit: String,
}

/// A metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricReport {
    /// Its name.
    #[serde(deserialize_with = "read_metric")]
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Its unit; empty if it has none.
    pub unit: String,
    /// Which values are the better ones.
    pub better: Better,
}

/// A cell: a subject at a level of every factor.
#[derive(Clone, Debug, Serialize)]
pub struct CellReport {
    /// The subject.
    pub subject: String,
    /// The levels.
    pub levels: LevelByFactor,
    /// The levels in words.
    pub place: String,
    /// The runs that have ended.
    pub runs: usize,
    /// How many of them have each mark.
    pub marks: BTreeMap<Mark, usize>,
    /// How many failed, and the different reasons.
    pub failed: usize,
    /// See `failed`.
    pub failures: BTreeSet<String>,
    /// Why the lab could not measure some runs, which are not among `runs`.
    pub unmeasured: BTreeSet<String>,
    /// Why this machine cannot measure it.
    pub not_testable: Option<String>,
    /// The medians by metric.
    pub estimates: BTreeMap<String, Estimate>,
}

impl ExperimentReport {
    /// The report of the measurements. `session` is when the session began, in seconds since 1970.
    #[must_use]
    pub fn of(measured: &MeasuredExperiment, session: f64) -> ExperimentReport {
        let experiment = &measured.experiment;
        let plan = &measured.header.plan;
        let cells: Vec<Cell> = plan.cells.iter().map(|planned| planned.cell.clone()).collect();
        let metrics = metrics(experiment);
        let state = if measured.is_complete() {
            ExperimentState::Complete
        } else {
            ExperimentState::Partial
        };
        let used: BTreeSet<&str> = cells.iter().map(|cell| cell.subject.as_str()).collect();
        let claims = experiment.claim.iter().map(|claim| {
            let judgement = measured.judgements.iter().find(|one| one.claim == claim.id);
            claim::claim(experiment, &cells, claim, judgement)
        });
        ExperimentReport {
            state,
            runs: measured.runs.len(),
            planned: plan.runs(),
            rounds: measured.rounds(),
            notes: plan.notes.clone(),
            subjects: subjects(experiment, |name| used.contains(name)),
            cells: plan
                .cells
                .iter()
                .map(|planned| {
                    let runs = measured.runs.iter().map(|run| &run.sample);
                    let own: Vec<&Sample> = runs.filter(|run| run.cell == planned.cell).collect();
                    let unmeasured = measured.unmeasured.iter().map(|run| &run.sample);
                    let unmeasured = unmeasured.filter(|run| run.cell == planned.cell);
                    CellReport {
                        unmeasured: unmeasured.filter_map(|run| run.failure.clone()).collect(),
                        ..cell(
                            experiment,
                            &metrics,
                            &planned.cell,
                            planned.not_testable.clone(),
                            &own,
                        )
                    }
                })
                .collect(),
            metrics,
            claims: claims.collect(),
            figures: experiment
                .figure
                .iter()
                .map(|figure| FigureReport::of(experiment, figure, &cells))
                .collect(),
            samples: Samples::of(measured, session),
            ..ExperimentReport::unknown(&experiment.id, &ExperimentState::NotBegun)
                .described(experiment)
        }
    }

    /// The report of an experiment without a run. Its claims are not measured, or cannot be measured.
    #[must_use]
    pub fn without_runs(experiment: &Experiment, state: &ExperimentState) -> ExperimentReport {
        let claims = experiment.claim.iter().map(|one| {
            let mut report = claim::claim(experiment, &[], one, None);
            if let ExperimentState::Refused { reason } = state {
                let reason = crate::claims::Reason::Unavailable(reason.clone());
                report.verdict = claim::VerdictReport::of(&Verdict::NotTestable(reason), one);
            }
            report
        });
        let claims = claims.collect();
        ExperimentReport {
            claims,
            ..ExperimentReport::unknown(&experiment.id, state).described(experiment)
        }
    }

    /// The report of an experiment with a known name and nothing else.
    #[must_use]
    pub fn unknown(id: &str, state: &ExperimentState) -> ExperimentReport {
        ExperimentReport {
            id: id.to_owned(),
            title: id.to_owned(),
            source: None,
            question: None,
            method: None,
            differences: Vec::new(),
            state: state.clone(),
            runs: 0,
            planned: 0,
            rounds: 0,
            notes: Vec::new(),
            subjects: Vec::new(),
            factors: Vec::new(),
            metrics: Vec::new(),
            cells: Vec::new(),
            claims: Vec::new(),
            figures: Vec::new(),
            samples: Samples::default(),
        }
    }

    fn described(mut self, experiment: &Experiment) -> ExperimentReport {
        self.title = experiment.title.clone().unwrap_or(self.title);
        self.source.clone_from(&experiment.source);
        self.question.clone_from(&experiment.question);
        self.method.clone_from(&experiment.method);
        self.differences.clone_from(&experiment.differences);
        self.factors = factors(experiment);
        self
    }

    /// Whether a run was planned, so that the experiment's folder exists.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        matches!(self.state, ExperimentState::Complete | ExperimentState::Partial)
    }

    /// The metric of that name, if a claim or a figure names it.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&MetricReport> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

fn subjects(experiment: &Experiment, is_used: impl Fn(&str) -> bool) -> Vec<SubjectReport> {
    let used = experiment.subject.iter().filter(|(name, _)| is_used(name));
    let subject = used.map(|(name, subject)| SubjectReport {
        name: name.clone(),
        title: subject.title.clone(),
        model: subject.model,
        setup: setup(experiment, subject),
    });
    subject.collect()
}

/// How a server is started.
fn setup(experiment: &Experiment, subject: &SubjectSpec) -> String {
    // A word with a NUL byte cannot be joined; no command line has one.
    let join =
        |words: &[String]| shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default();
    let command = match subject.kind() {
        Some(SubjectKind::Serve(flags)) => {
            let own = ["drover", "serve"].map(str::to_owned);
            join(&[&own[..], &experiment.serve, flags].concat())
        }
        Some(SubjectKind::Command(words)) => join(words),
        _ => return String::new(),
    };
    let environment = subject.env.iter().map(|(name, value)| format!("{name}={value} "));
    let files = subject.files.iter().map(|(name, text)| format!("\n\n# {name}\n{}", text.trim()));
    environment.chain([command]).chain(files).collect()
}

fn factors(experiment: &Experiment) -> Vec<FactorReport> {
    let factor = experiment.factor.iter().map(|(name, factor)| FactorReport {
        name: name.clone(),
        title: factor.title.clone().unwrap_or_else(|| name.replace('_', " ")),
        unit: factor.unit.clone().unwrap_or_default(),
    });
    factor.collect()
}

/// The metrics of figures and claims.
pub(crate) fn metrics(experiment: &Experiment) -> Vec<MetricReport> {
    let figures = experiment.figure.iter().map(|figure| figure.metric.as_str());
    let claims = experiment.claim.iter().map(|claim| claim.effect.metric());
    let mut metrics: Vec<MetricReport> = Vec::new();
    for name in figures.chain(claims) {
        let Some(metric) = experiment.metric(name) else { continue };
        if metrics.iter().all(|other| other.name != name) {
            metrics.push(MetricReport {
                name: name.to_owned(),
                title: metric.title.to_owned(),
                unit: metric.unit.to_owned(),
                better: metric.better,
            });
        }
    }
    metrics
}

fn cell(
    experiment: &Experiment,
    metrics: &[MetricReport],
    cell: &Cell,
    not_testable: Option<String>,
    runs: &[&Sample],
) -> CellReport {
    let is_unavailable = |run: &&&Sample| run.validity.contains(&Mark::Unavailable);
    let found = runs.iter().find(is_unavailable).and_then(|run| run.failure.clone());
    let failed: Vec<&&Sample> =
        runs.iter().filter(|run| run.failure.is_some() && !is_unavailable(run)).collect();
    let estimates = metrics.iter().filter_map(|metric| {
        Some((metric.name.clone(), estimate(runs, &metric.name, metric.better)?))
    });
    CellReport {
        subject: cell.subject.clone(),
        levels: cell.levels.clone(),
        place: words::place(&cell.levels, experiment),
        runs: runs.len(),
        marks: marks(runs),
        failed: failed.len(),
        failures: failed.iter().filter_map(|run| run.failure.clone()).collect(),
        unmeasured: BTreeSet::new(),
        not_testable: not_testable.or(found),
        estimates: estimates.collect(),
    }
}
