//! `drover lab pipes`: one run of an experiment with pipes, in a process of its own.

use std::io::Write;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use drover_mech::mechanisms::{DevPollModel, MechanismOptions};
use drover_waiters::pipes::{PipeRun, Waiting};

use crate::cli::auto_or::devpoll_model;
use crate::cli::stdout::stdout;
use drover_usage::duration;

/// Flags of `drover lab pipes`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// How the thread waits: a dispatch mechanism, or 'busy', which reads from every pipe in turn
    #[arg(long, value_name = "M", value_parser = waiting())]
    mechanism: Waiting,

    /// How many pipes are registered
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pipes: u32,

    /// How many pipes have tokens at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    active: u32,

    /// How many tokens each active pipe has
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    writes: u32,

    /// How long tokens pass before the measurement
    #[arg(long, value_name = "T", default_value = "10ms", value_parser = duration::parse)]
    warmup: Duration,

    /// How long the measurement takes
    #[arg(long, value_name = "T", default_value = "1s", value_parser = duration::parse)]
    window: Duration,

    /// The processor of the thread
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,

    /// The parts of /dev/poll, for --mechanism devpoll (as for 'drover serve')
    #[arg(long, value_name = "PARTS", default_value = "none", value_parser = devpoll_model)]
    devpoll_model: DevPollModel,

    /// Time each wait
    #[arg(long)]
    time_waits: bool,
}

/// Runs `drover lab pipes`: a line of JSON on stdout.
pub(in crate::cli::lab) fn run(args: Args) -> anyhow::Result<()> {
    let run = PipeRun {
        waiting: args.mechanism,
        pipes: args.pipes,
        active: args.active,
        writes: args.writes,
        warm_up: args.warmup,
        window: args.window,
        cpu: args.cpu,
        options: MechanismOptions { devpoll: args.devpoll_model, ..MechanismOptions::default() },
        times_waits: args.time_waits,
    };
    let record = run.measure()?;
    writeln!(stdout(), "{}", serde_json::to_string(&record)?)?;
    Ok(())
}

fn waiting() -> impl TypedValueParser<Value = Waiting> {
    let names = PossibleValuesParser::new(Waiting::all().map(Waiting::name));
    names.map(|name| Waiting::by_name(&name).expect("only these are let through"))
}
