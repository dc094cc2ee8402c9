//! `drover lab run FILE`, for experiment files of version 2 (docs/experiments-2.md): runs them, prints the
//! medians of what was measured, and judges their claims.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use lab::analysis::summary::median;
use lab::claims::{self, Judgement};
use lab::journal;
use lab::model::Sample;
use lab::plan::limits::Limits;
use lab::plan::{Overrides, Plan, Selection};
use lab::process::Interrupt;
use lab::run::{End, Event, Options};
use lab::spec::Experiment;

use super::stdout::stdout;
use crate::error::UsageError;
use crate::lab::utc;

/// The schema that files of version 2 name.
const SCHEMA: &str = "drover.experiment/2";

/// What is shown of a cell where no claim and no figure names a metric.
const USUAL_METRICS: [&str; 3] = ["reply-rate", "cpu-per-reply", "latency-p99"];

/// The verdicts of a run's claims, beside its journal.
const CLAIMS: &str = "claims.json";

/// How experiments are run.
pub(super) struct RunOptions {
    pub(super) preset: String,
    pub(super) overrides: Overrides,
    pub(super) seed: u64,
    pub(super) out: PathBuf,
    pub(super) pools: PathBuf,
}

/// Whether that is a file of version 2.
pub(super) fn is_version_2(name: &str) -> bool {
    fs::read_to_string(name).is_ok_and(|text| text.contains(SCHEMA))
}

/// Runs the experiment of a file, prints what came out, and leaves a folder with every sample.
pub(super) fn run(file: &Path, run: &RunOptions) -> anyhow::Result<()> {
    let usage = |message: String| anyhow::Error::from(UsageError::new(message));
    let experiment = lab::spec::read(file).map_err(|faults| {
        // One line each, as a compiler does; the line below is the error.
        let mut err = std::io::stderr();
        faults.0.iter().for_each(|fault| drop(writeln!(err, "{fault}")));
        usage(format!("{}: {} faults, see above", file.display(), faults.0.len()))
    })?;
    let selection = Selection::new(&experiment, &run.preset, &run.overrides).map_err(usage)?;
    let plan = Plan::new(&experiment, &selection, run.seed, &Limits::look()?)?;
    let stamp = utc::compact(SystemTime::now());
    let options = Options {
        drover: std::env::current_exe().context("cannot tell where this program lies")?,
        folder: run.out.join(format!("{}-{stamp}", experiment.id)),
        pools: run.pools.clone(),
        resumes: false,
        is_forced: false,
        interrupt: Interrupt::on_signals()?,
    };
    writeln!(
        stdout(),
        "{}: {} runs in {} rounds, about {:.0} s",
        experiment.id,
        plan.runs(),
        plan.rounds,
        plan.estimate_s
    )?;
    let end = lab::run::run(&experiment, &selection, &plan, &options, &mut |event| {
        // Who has closed stdout still gets the folder.
        let _ = tell(&plan, event);
    })?;
    let (_, runs) = journal::read(&options.folder).map_err(anyhow::Error::msg)?;
    let mut samples: Vec<Sample> = runs.into_iter().map(|run| run.sample).collect();
    samples.extend(plan.unavailable());
    let judgements = judge(&experiment, &samples);
    let path = options.folder.join(CLAIMS);
    fs::write(&path, serde_json::to_vec_pretty(&judgements)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    print(&experiment, &plan, &samples, &judgements)?;
    writeln!(stdout(), "Samples and verdicts: {}", options.folder.display())?;
    match end {
        End::Interrupted => anyhow::bail!("interrupted: what was measured until then is above"),
        End::Complete | End::BudgetSpent { .. } => Ok(()),
    }
}

/// Prints a line for what a reader would miss in the end.
fn tell(plan: &Plan, event: Event<'_>) -> anyhow::Result<()> {
    let mut out = stdout();
    match event {
        Event::Round { round } => writeln!(out, "round {round} of {}", plan.rounds)?,
        Event::NotTestable { cell, why } => {
            writeln!(out, "not testable here: {}: {why}", plan.cells[cell].cell)?;
        }
        Event::Ended { run, .. } => {
            if let Some(why) = &run.sample.failure {
                writeln!(out, "failed: {}: {why}", run.sample.cell)?;
            }
        }
        Event::Note(note) => writeln!(out, "{note}")?,
        Event::Resumed { .. } | Event::Begins { .. } => {}
    }
    Ok(())
}

/// Judges every claim, all of them as one family.
fn judge(experiment: &Experiment, samples: &[Sample]) -> Vec<Judgement> {
    let judged = experiment.claim.iter().filter_map(|claim| {
        let better = experiment.metric(claim.effect.metric())?.better;
        Some(claims::judge(claim, better, samples))
    });
    let mut judgements: Vec<Judgement> = judged.collect();
    claims::family::judge(&mut judgements.iter_mut().collect::<Vec<_>>());
    judgements
}

fn print(
    experiment: &Experiment,
    plan: &Plan,
    samples: &[Sample],
    judgements: &[Judgement],
) -> anyhow::Result<()> {
    let mut out = stdout();
    for metric in metrics(experiment) {
        let Some(info) = experiment.metric(metric) else { continue };
        writeln!(out, "\n{}, {} (median of the rounds, lowest … highest):", info.title, info.unit)?;
        for planned in &plan.cells {
            let of_cell = samples.iter().filter(|sample| sample.cell == planned.cell);
            let mut values: Vec<f64> =
                of_cell.filter_map(|sample| sample.values.get(metric).copied()).collect();
            values.sort_by(f64::total_cmp);
            let text = match (values.first(), values.last(), median(&values)) {
                (Some(low), Some(high), Some(median)) => {
                    format!("{:>12.4} ({low:.4} … {high:.4}), {} rounds", median, values.len())
                }
                _ => "no value".to_owned(),
            };
            writeln!(out, "  {:<44} {text}", planned.cell.to_string())?;
        }
    }
    for (claim, judgement) in experiment.claim.iter().zip(judgements) {
        writeln!(out, "\n{}: {}", claim.id, claim.text)?;
        let interval = judgement.deciding().and_then(|row| row.interval.as_ref());
        let effect = interval.map_or(String::new(), |interval| {
            format!(" ({:.3}, {:.3} … {:.3})", interval.value, interval.low, interval.high)
        });
        writeln!(out, "   {}{effect}", judgement.verdict)?;
    }
    writeln!(out)?;
    Ok(())
}

/// The metrics that claims and figures name, each once.
fn metrics(experiment: &Experiment) -> Vec<&str> {
    let of_claims = experiment.claim.iter().map(|claim| claim.effect.metric());
    let of_figures = experiment.figure.iter().map(|figure| figure.metric.as_str());
    let mut named: Vec<&str> = Vec::new();
    for metric in of_claims.chain(of_figures) {
        if !named.contains(&metric) {
            named.push(metric);
        }
    }
    if named.is_empty() { USUAL_METRICS.to_vec() } else { named }
}
