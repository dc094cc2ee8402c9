//! `drover lab herd`: one run of a herd experiment, in a process of its own.

use std::io::Write;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use mech::herd::{self, Kind};

use super::duration;
use super::stdout::stdout;
use crate::lab::herd::Herd;

/// Flags of `drover lab herd`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How they wait
    #[arg(long, value_name = "KIND", value_parser = kind())]
    waiter: &'static Kind,

    /// How many wait
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    waiters: u32,

    /// How many descriptors of the socket each watches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    descriptors: u32,

    /// Processes instead of threads
    #[arg(long)]
    processes: bool,

    /// How many connections at most
    #[arg(long, value_name = "N", default_value_t = 200)]
    connects: u32,

    /// Begin no further connection after this time
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    window: Duration,

    /// Count switches even where the scheduler can be traced
    #[arg(long)]
    counters: bool,

    /// The processors of the waiters
    #[arg(long, value_name = "CPU,CPU…", value_delimiter = ',')]
    waiter_cpus: Vec<usize>,

    /// The processor that connects
    #[arg(long, value_name = "CPU")]
    client_cpu: Option<usize>,
}

/// Runs `drover lab herd`: a line of JSON on stdout.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let herd = Herd {
        kind: args.waiter,
        waiters: args.waiters,
        descriptors: args.descriptors,
        processes: args.processes,
        connects: args.connects,
        window: args.window,
        counters: args.counters,
        cpus: (args.waiter_cpus, args.client_cpu),
    };
    let record = herd.measure()?;
    writeln!(stdout(), "{}", serde_json::to_string(&record)?)?;
    Ok(())
}

fn kind() -> impl TypedValueParser<Value = &'static Kind> {
    let names = PossibleValuesParser::new(herd::ALL.iter().map(|kind| kind.name));
    names.map(|name| herd::by_name(&name).expect("only these are let through"))
}
