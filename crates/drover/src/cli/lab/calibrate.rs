//! `drover lab calibrate`: which differences this machine can find, and how often it finds differences between equal
//! servers.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use drover_lab::analysis::FEWEST_ROUNDS;
use drover_lab::analysis::decision::power::POWER;
use drover_lab::calibrate::{self, Calibration};
use drover_lab::model::{Level, Mark, Sample};
use drover_lab::plan::Overrides;
use drover_lab::record::{MeasuredExperiment, SessionRecord};
use drover_lab::spec::Experiment;
use drover_lab::spec::factor::CASE;

use super::OUT;
use super::session::own::OwnSession;
use super::session::settings;
use crate::cli::share;
use crate::cli::stdout::stdout;
use drover_usage::duration;

/// The longest window of the first look. The first look only has to find what a request costs.
const LOOK: Duration = Duration::from_millis(500);

/// Flags of `drover lab calibrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of rounds, at least 6; every server runs once in each round [default: 20]
    #[arg(long, value_name = "N", visible_alias = "repeats")]
    #[arg(value_parser = clap::value_parser!(u32).range(FEWEST_ROUNDS as i64..))]
    rounds: Option<u32>,

    /// The length of each measured window [default: 600ms]
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    window: Option<Duration>,

    /// How long the calibration may take [default: 4m, and 4m more with --slowed]
    ///
    /// No round is begun that would end later
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    budget: Option<Duration>,

    /// Also run servers that are slower by these shares of CPU time per request, as 5%,10%,20%
    ///
    /// The result says how often the slower servers are found
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = share::parse)]
    slowed: Vec<f64>,

    /// Run only these workloads: 'low rate', 'saturation', 'files of 64 KB'
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    workloads: Vec<String>,

    /// The seed of an earlier calibration, to repeat its order, its loads and its splits
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The folder for the folders of all runs and for calibration.json
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

/// The cases that are run, by their names. No name: all cases.
fn workloads(names: &[String]) -> BTreeMap<String, Vec<Level>> {
    let cases: Vec<Level> = names.iter().cloned().map(Level::Name).collect();
    let chosen = (!cases.is_empty()).then(|| (CASE.to_owned(), cases));
    chosen.into_iter().collect()
}

pub(super) fn run(mut args: Args) -> anyhow::Result<()> {
    args.slowed.sort_by(f64::total_cmp);
    args.slowed.dedup();
    let session = OwnSession {
        preset: calibrate::PRESET,
        overrides: Overrides {
            rounds: args.rounds,
            window: args.window,
            budget: args.budget,
            levels: workloads(&args.workloads),
            ..Overrides::default()
        },
        seed: args.seed.unwrap_or_else(rand::random),
        settings: settings(args.out.clone(), None, false)?,
    };
    let equal = calibrate::equal_servers();
    let mut experiments = vec![equal];
    if !args.slowed.is_empty() {
        let slowed = slowed_servers(&session, &args, &experiments[0])?;
        experiments.push(slowed);
    }
    let ended = session.run(experiments)?;
    let calibration = calibration(&ended.record, &args.slowed)?;
    let is_empty = calibration.metrics.is_empty();
    let mut out = stdout();
    writeln!(out, "\n{}", calibration.table())?;
    // If nothing was found, an earlier calibration stays.
    if !is_empty {
        calibration.write(&args.out)?;
        writeln!(out, "Calibration: {}", args.out.join(calibrate::FILE).display())?;
    }
    writeln!(out, "Samples: {}", ended.record.folder.display())?;
    ensure!(!ended.is_interrupted, "interrupted: what was measured until then is above");
    ensure!(
        !is_empty,
        "no workload has {FEWEST_ROUNDS} rounds that count: {}",
        what_is_wrong(&ended.record)
    );
    Ok(())
}

/// The slowed servers. A first look finds what a request costs, and so how long each server has to spin.
fn slowed_servers(
    session: &OwnSession,
    args: &Args,
    equal: &Experiment,
) -> anyhow::Result<Experiment> {
    let overrides = Overrides {
        rounds: Some(1),
        window: Some(args.window.map_or(LOOK, |window| window.min(LOOK))),
        levels: workloads(&args.workloads),
        ..Overrides::default()
    };
    let samples = session.pilot(equal, "A first look", &overrides)?;
    let cpu = calibrate::cpu_per_request(&samples);
    if cpu.is_empty() {
        let why = samples.iter().find_map(|sample| sample.failure.as_deref());
        anyhow::bail!("no server could be measured: {}", why.unwrap_or("it has used no CPU time"));
    }
    Ok(calibrate::slowed_servers(&args.slowed, &cpu))
}

/// The calibration that the record of a session gives.
fn calibration(record: &SessionRecord, shares: &[f64]) -> anyhow::Result<Calibration> {
    // Looked up by name: an experiment that could not be run is missing from the record, so that places do not count.
    let measured = |id: &str| record.measured.iter().find(|it| it.experiment.id == id);
    let Some(equal) = measured(&calibrate::equal_servers().id) else {
        let why = record.session.refused.first().map_or("nothing was measured", |(_, why)| why);
        anyhow::bail!("nothing was calibrated: {why}");
    };
    let slowed = measured(calibrate::SLOWED);
    let seed = record.session.seed;
    let samples = |measured: &MeasuredExperiment| -> Vec<Sample> { measured.samples() };
    let metrics = calibrate::noise(&equal.experiment, &samples(equal), seed);
    let slowed = slowed.map_or(Vec::new(), |slowed| {
        calibrate::slowed(&slowed.experiment, &samples(slowed), shares, &metrics, seed)
    });
    Ok(Calibration {
        schema: calibrate::SCHEMA.to_owned(),
        version: record.session.version.clone(),
        began: record.session.began,
        seed,
        size: calibrate::SIZE,
        power: POWER,
        environment: equal.header.environment.clone(),
        metrics,
        slowed,
    })
}

/// Why runs do not count: the first failure, or too few rounds, or how many runs have which mark.
fn what_is_wrong(record: &SessionRecord) -> String {
    let runs: Vec<&Sample> =
        record.measured.iter().flat_map(|it| &it.runs).map(|run| &run.sample).collect();
    if let Some(why) = runs.iter().find_map(|sample| sample.failure.as_deref()) {
        return why.to_owned();
    }
    let rounds = runs.iter().map(|sample| sample.round).max().unwrap_or(0);
    if (rounds as usize) < FEWEST_ROUNDS {
        return format!("there was time for {rounds} rounds, and --budget gives more");
    }
    let count = |mark| runs.iter().filter(|sample| sample.validity.contains(&mark)).count();
    format!(
        "of {} runs {} began before the server was steady, and in {} the machine stood still (something \
         else keeps it busy; --window may be longer)",
        runs.len(),
        count(Mark::Cold),
        count(Mark::Stalled),
    )
}

#[cfg(test)]
mod tests {
    use drover_lab::journal::{Environment, Header};
    use drover_lab::plan::Plan;
    use drover_lab::record::RecordedSession;

    use super::*;

    /// The record of a session whose first experiment could not be run.
    fn slowed_alone() -> SessionRecord {
        let experiment = calibrate::slowed_servers(&[0.05], &BTreeMap::new());
        let plan = Plan {
            experiment: experiment.id.clone(),
            experiment_hash: String::new(),
            preset: calibrate::PRESET.to_owned(),
            seed: 7,
            rounds: 6,
            cells: Vec::new(),
            turn_over: Vec::new(),
            notes: Vec::new(),
            estimate_s: 1.0,
        };
        let environment = Environment::default();
        let header = Header { schema: drover_lab::journal::SCHEMA.to_owned(), plan, environment };
        let session = RecordedSession {
            schema: drover_lab::record::SCHEMA.to_owned(),
            version: "0.1.0".to_owned(),
            command: Vec::new(),
            preset: calibrate::PRESET.to_owned(),
            seed: 7,
            began: 1.5,
            experiments: vec!["calibration".to_owned(), experiment.id.clone()],
            refused: vec![("calibration".to_owned(), "no port was free".to_owned())],
        };
        let measured = vec![MeasuredExperiment::unjudged(experiment, header, Vec::new())];
        SessionRecord { folder: PathBuf::new(), session, measured }
    }

    #[test]
    fn slowed_servers_are_not_taken_for_equal_ones() {
        let error = calibration(&slowed_alone(), &[0.05]).unwrap_err().to_string();
        assert!(error.contains("no port was free"), "{error}");
    }
}
