//! `drover lab herd`: one run of an experiment with waiters, in a process of its own.

use std::io::Write;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use drover_waiters::connects::ConnectRun;
use drover_waiters::kind::{self, WaiterKind};

use crate::cli::stdout::stdout;
use drover_usage::duration;

/// Flags of `drover lab herd`, which the lab calls.
#[derive(Debug, clap::Args)]
pub(in crate::cli::lab) struct Args {
    /// How the waiters wait
    #[arg(long, value_name = "KIND", value_parser = waiter_kind())]
    waiter: &'static WaiterKind,

    /// How many waiters there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    waiters: u32,

    /// How many descriptors of the socket each waiter waits on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    descriptors: u32,

    /// Keep every waiter busy with something else, and not waiting, while connections come
    #[arg(long)]
    busy: bool,

    /// Make the waiters processes instead of threads
    #[arg(long)]
    processes: bool,

    /// How many connections to open at most
    #[arg(long, value_name = "N", default_value_t = 200)]
    connects: u32,

    /// Open no new connection after this time
    #[arg(long, value_name = "T", default_value = "10s", value_parser = duration::parse)]
    window: Duration,

    /// Count context switches, even if the scheduler can be traced
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
pub(in crate::cli::lab) fn run(args: Args) -> anyhow::Result<()> {
    let run = ConnectRun {
        kind: args.waiter,
        waiters: args.waiters,
        descriptors: args.descriptors,
        busy: args.busy,
        processes: args.processes,
        connects: args.connects,
        window: args.window,
        counters: args.counters,
        cpus: (args.waiter_cpus, args.client_cpu),
    };
    let record = run.measure()?;
    writeln!(stdout(), "{}", serde_json::to_string(&record)?)?;
    Ok(())
}

fn waiter_kind() -> impl TypedValueParser<Value = &'static WaiterKind> {
    let names = PossibleValuesParser::new(kind::ALL.iter().map(|kind| kind.name));
    names.map(|name| kind::by_name(&name).expect("only these are let through"))
}
