//! `drover lab wait-queue`: whom an event wakes in /dev/wakeq, and what that costs, in a process of its own.

use std::io::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use drover_mech::accept::wait_queue::Policy;
use drover_waiters::devices::settle::SettleRun;

use crate::cli::stdout::stdout;

/// Flags of `drover lab wait-queue`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// Whom an event wakes
    #[arg(long, value_name = "POLICY", value_parser = policy())]
    policy: Policy,

    /// How many threads wait to take an event
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,

    /// How many events there are, one at a time
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,
}

/// Runs `drover lab wait-queue`: a line of JSON on stdout.
pub(in crate::cli::lab) fn run(args: &Args) -> anyhow::Result<()> {
    let run = SettleRun { policy: args.policy, threads: args.threads, events: args.events };
    writeln!(stdout(), "{}", serde_json::to_string(&run.measure()?)?)?;
    Ok(())
}

fn policy() -> impl TypedValueParser<Value = Policy> {
    let names = PossibleValuesParser::new(Policy::ALL.map(Policy::name));
    names.map(|name| Policy::by_name(&name).expect("only these are let through"))
}
