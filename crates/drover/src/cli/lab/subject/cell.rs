//! `drover lab cell`: one run of one cell of an experiment, whose values are printed and not kept.

use std::env;
use std::fs;
use std::io::Write;
use std::process;
use std::slice;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use drover_lab::model::{Level, Sample};
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::process::Interrupt;
use drover_lab::run::Unkept;
use drover_lab::spec::Experiment;
use drover_lab::spec::experiment::QUICK;
use drover_lab::spec::metric::InstrumentName;
use drover_mech::mechanisms;
use drover_usage::{UsageError, duration};
use serde_json::json;

use crate::cli::lab::experiments;
use crate::cli::lab::run::levels;
use crate::cli::stdout::stdout;

/// Flags of `drover lab cell`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// The name of a built-in experiment, or a TOML file
    #[arg(value_name = "ID|FILE")]
    experiment: String,

    /// The subject
    subject: String,

    /// The level of each factor; the factor 'case' has the cases as levels
    #[arg(value_name = "FACTOR=LEVEL", value_parser = levels)]
    levels: Vec<(String, Vec<Level>)>,

    /// The length of the measured window
    #[arg(long, value_name = "T", value_parser = duration::parse_above_zero)]
    window: Duration,

    /// Fail where the dispatch mechanism is a model, since this kernel lacks its device
    #[arg(long)]
    no_model: bool,

    /// Have the kernel be preempted also within system calls, as if by interrupts, until the run has ended (debugfs)
    #[arg(long)]
    preemptible: bool,

    /// Switch an instrument on, such as 'counters'
    #[arg(long, value_name = "NAME", value_parser = instrument)]
    instrument: Vec<InstrumentName>,

    /// More flags of 'drover serve' for the subject
    #[arg(last = true, value_name = "FLAG")]
    serve: Vec<String>,
}

fn instrument(name: &str) -> Result<InstrumentName, serde_json::Error> {
    serde_json::from_value(json!(name))
}

/// Runs `drover lab cell`: a line of JSON on stdout.
pub(in crate::cli::lab) fn run(args: Args) -> anyhow::Result<()> {
    let mut experiment = experiments(slice::from_ref(&args.experiment))?.remove(0);
    experiment.serve.extend(args.serve.iter().cloned());
    if args.no_model {
        refuse_models(&experiment, &args.subject)?;
    }
    let preemption = args.preemptible.then(Preemption::full).transpose()?;
    let sample = measure(experiment, args)?;
    drop(preemption);
    if let Some(why) = sample.failure {
        bail!("{}: {why}", sample.cell);
    }
    writeln!(stdout(), "{}", json!({ "values": sample.values, "marks": sample.validity }))?;
    Ok(())
}

/// Runs the cell once.
fn measure(mut experiment: Experiment, args: Args) -> anyhow::Result<Sample> {
    // The calling lab judges and draws. The instruments of claims and figures would disturb the run.
    experiment.instruments = args.instrument;
    // Where instructions are counted, a server need not be slow to be what limits the load.
    experiment.slow = None;
    experiment.claim.clear();
    experiment.figure.clear();
    let overrides = Overrides {
        rounds: Some(1),
        window: Some(args.window),
        subjects: Some(vec![args.subject]),
        levels: args.levels.into_iter().collect(),
        ..Overrides::default()
    };
    let selection = Selection::new(&experiment, QUICK, &overrides).map_err(UsageError::new)?;
    let plan = Plan::new(&experiment, &selection, rand::random(), &MachineLimits::look()?)?;
    ensure!(
        plan.cells.len() == 1,
        "these are {} cells: name a level of each factor",
        plan.cells.len()
    );
    let folder = env::temp_dir().join(format!("drover-cell-{}", process::id()));
    let unkept = Unkept {
        drover: &env::current_exe().context("cannot tell where this program lies")?,
        pools: &folder.join("pools"),
        folder,
        interrupt: &Interrupt::on_signals()?,
    };
    let (mut samples, _) = unkept.samples(&experiment, &selection, &plan, &mut |_| {})?;
    samples.pop().context("interrupted: nothing was measured")
}

/// While this value lives, the kernel of the whole machine can be preempted within system calls.
///
/// A kernel that is preempted only as system calls end counts CPU time wrongly on a shared processor: the rest of a system call
/// counts for the thread that waits for its end (`rq_clock_skip_update()`).
struct Preemption {
    before: String,
}

impl Preemption {
    /// Lists all modes, the active one in brackets (`CONFIG_PREEMPT_DYNAMIC`).
    const PATH: &str = "/sys/kernel/debug/sched/preempt";

    fn full() -> anyhow::Result<Preemption> {
        let ways = fs::read_to_string(Preemption::PATH).context(Preemption::PATH)?;
        let before = ways.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        let (before, _) = before.with_context(|| format!("{}: {ways:?}", Preemption::PATH))?;
        fs::write(Preemption::PATH, "full").context(Preemption::PATH)?;
        Ok(Preemption { before: before.to_owned() })
    }
}

impl Drop for Preemption {
    fn drop(&mut self) {
        let _ = fs::write(Preemption::PATH, &self.before);
    }
}

/// Fails if the subject's dispatch mechanism is a model.
fn refuse_models(experiment: &Experiment, subject: &str) -> anyhow::Result<()> {
    let own = experiment.subject.get(subject).and_then(|it| it.serve.as_ref());
    let words: Vec<&String> = experiment.serve.iter().chain(own.into_iter().flatten()).collect();
    let mut pairs = words.windows(2);
    let dispatch = pairs.rfind(|pair| pair[0] == "--dispatch").map(|pair| pair[1].as_str());
    match dispatch.and_then(mechanisms::by_name) {
        Some(mechanism) if mechanisms::is_model(mechanism) => bail!(
            "{} is a model here, since this kernel lacks its device; docs/kernel.md tells how to get it",
            mechanism.name
        ),
        _ => Ok(()),
    }
}
