//! `drover lab burst`: what becomes of events that come while nobody waits, in a process of its own.

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use drover_mech::mechanisms::{self, Mechanism, MechanismKind};
use drover_waiters::pipes::burst::BurstRun;

use crate::cli::stdout::stdout;

/// Flags of `drover lab burst`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// Who watches the pipes: a dispatch mechanism that reports readiness
    #[arg(long, value_name = "M", value_parser = readiness())]
    mechanism: &'static Mechanism,

    /// How many pipes there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pipes: u32,

    /// How many events come before anybody waits: writes to the pipes in turn
    #[arg(long, value_name = "N")]
    events: u32,

    /// How many signals may be queued (RLIMIT_SIGPENDING) [default: as many as now]
    #[arg(long, value_name = "N")]
    queue: Option<u64>,

    /// Fail where the mechanism is a model, since this kernel lacks its device
    #[arg(long)]
    no_model: bool,
}

/// Runs `drover lab burst`: a line of JSON on stdout.
pub(in crate::cli::lab) fn run(args: &Args) -> anyhow::Result<()> {
    let run = BurstRun {
        mechanism: args.mechanism,
        pipes: args.pipes,
        events: args.events,
        queue: args.queue,
        refuses_models: args.no_model,
    };
    writeln!(stdout(), "{}", serde_json::to_string(&run.measure()?)?)?;
    Ok(())
}

fn readiness() -> impl TypedValueParser<Value = &'static Mechanism> {
    let reports = |it: &&&'static Mechanism| matches!(it.kind, MechanismKind::Readiness { .. });
    let names = mechanisms::ALL.iter().filter(reports).map(|mechanism| mechanism.name);
    let names = PossibleValuesParser::new(names);
    names.map(|name| mechanisms::by_name(&name).expect("only these are let through"))
}
