//! `drover lab list`: what there is to be run, and how long it takes.

use std::io::Write;
use std::time::Duration;

use drover_lab::model::Level;
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::report::model::words::counted;
use drover_lab::spec::factor::CASE;
use drover_lab::spec::{Experiment, Preset};

use crate::cli::stdout::stdout;
use drover_usage::duration::in_words;

/// Flags of `drover lab list`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of built-in experiments, or TOML files [default: every built-in experiment]
    #[arg(value_name = "ID|FILE")]
    experiments: Vec<String>,
}

/// Runs `drover lab list`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let limits = MachineLimits::look()?;
    let mut out = stdout();
    for experiment in super::experiments(&args.experiments)? {
        let title = experiment.title.as_ref().unwrap_or(&experiment.id);
        writeln!(out, "{}: {title}", experiment.id)?;
        if let Some(source) = &experiment.source {
            writeln!(out, "    {source}")?;
        }
        for (name, preset) in &experiment.presets {
            write_preset(&mut out, &experiment, name, preset, &limits)?;
        }
    }
    Ok(())
}

fn write_preset(
    out: &mut impl Write,
    experiment: &Experiment,
    name: &str,
    preset: &Preset,
    limits: &MachineLimits,
) -> anyhow::Result<()> {
    let selection = Selection::new(experiment, name, &Overrides::default());
    let selection = selection.map_err(anyhow::Error::msg)?;
    let plan = Plan::new(experiment, &selection, 0, limits)?;
    let budget = preset.budget.as_ref().and_then(|it| it.resolve(&Default::default()).ok());
    let estimate = Duration::from_secs_f64(plan.estimate_s);
    let (cells, here) = (plan.cells.len(), plan.runs() / plan.rounds as usize);
    let rounds = counted(plan.rounds as usize, "round");
    write!(out, "    --preset {name}: {rounds} of {}", counted(cells, "cell"))?;
    if here < cells {
        write!(out, ", {here} of them testable here")?;
    }
    let limited = budget.filter(|budget| *budget < estimate);
    match limited {
        Some(budget) => writeln!(out, ": {}, cut after {}", in_words(estimate), in_words(budget))?,
        None => writeln!(out, ": {}", in_words(estimate))?,
    }
    let subjects = experiment.subjects(preset).into_iter().map(|(name, _)| name);
    writeln!(out, "        subjects: {}", subjects.collect::<Vec<_>>().join(", "))?;
    for (factor, levels) in levels(experiment, preset) {
        let quoted = levels.iter().map(|level| match level.contains(',') {
            true => format!("\"{level}\""),
            false => level.clone(),
        });
        writeln!(out, "        {factor}: {}", quoted.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

/// Each factor with its levels in a preset; cases stand for the factors that they set.
fn levels<'e>(experiment: &'e Experiment, preset: &'e Preset) -> Vec<(&'e str, Vec<String>)> {
    let of_cases = experiment.case_factors();
    let chosen =
        |name: &&str| preset.cases.as_ref().is_none_or(|it| it.iter().any(|it| it == name));
    let cases = experiment.case.iter().map(|case| case.name.as_str()).filter(chosen);
    let cases: Vec<String> = cases.map(str::to_owned).collect();
    let mut all = Vec::new();
    if !cases.is_empty() {
        all.push((CASE, cases));
    }
    for (name, factor) in &experiment.factor {
        if !of_cases.contains(&name.as_str()) {
            let levels = preset.levels.get(name).unwrap_or(&factor.levels);
            all.push((name, levels.iter().map(Level::to_string).collect()));
        }
    }
    all
}
