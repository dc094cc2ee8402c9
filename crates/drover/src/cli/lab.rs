//! `drover lab`: flags of the laboratory.

use std::io::{self, Write};

use crate::lab::experiment::Experiment;

/// Flags of `drover lab`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the built-in experiments
    List,
}

/// Runs `drover lab`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        Action::List => list(),
    }
}

fn list() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for experiment in Experiment::built_in() {
        writeln!(out, "{:<20} {} ({})", experiment.id, experiment.title, experiment.source)?;
    }
    Ok(())
}
