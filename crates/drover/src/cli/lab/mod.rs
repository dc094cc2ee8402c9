//! `drover lab`: the laboratory's subcommands, a file each in this folder.

mod calibrate;
mod compare;
mod decide;
mod list;
mod report;
mod run;
mod serve;
pub(super) mod session;
mod subject;
mod trace;
mod versus;

use std::path::Path;

use lab::spec::{Experiment, Faults, built_in};

use crate::cli::faults::refuse;
use usage::UsageError;

/// The default folder of sessions.
const OUT: &str = "drover-lab";

/// Flags of `drover lab`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Without any: run the quick preset of every experiment
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List experiments and their presets: subjects, factors with their levels, rounds, and the estimate
    List(list::Args),
    /// Run experiments as one session: built-in ones by name, your own by file
    Run(Box<run::Args>),
    /// Ask which mechanism to use for so many connections that live so long, and get an answer in minutes
    Decide(decide::Args),
    /// Compare servers, yours and others, side by side: at saturation, at fixed rates and idle
    Versus(versus::Args),
    /// Compare saved sessions, cell by cell: of two kernels, machines or versions of a program
    Compare(compare::Args),
    /// Tell which differences this machine can find: a server against itself, and against slowed ones
    Calibrate(calibrate::Args),
    /// Write the report of a session anew
    Report(report::Args),
    /// Show a report on a local port, with Drover's own server
    Serve(serve::Args),
    /// See a directory through a slow disk, modelled after two disks of 2007. Reports what it did
    /// for each line on stdin, and unmounts at its end or at SIGINT, SIGTERM and SIGHUP
    Disk(subject::disk::Args),
    /// Show where the time of requests went, from what 'drover serve --trace' has written
    Trace(trace::Args),
    /// Gather waiters on one socket, connect to it, and say what a connection cost: a run of an
    /// experiment with waiters
    #[command(hide = true)]
    Herd(subject::herd::Args),
    /// Pass tokens through pipes, few of which are active, and say what an event cost: a run of an
    /// experiment with pipes
    #[command(hide = true)]
    Pipes(subject::pipes::Args),
}

/// Runs `drover lab`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        None => run::quick(),
        Some(Action::List(args)) => list::run(&args),
        Some(Action::Run(args)) => run::run(*args),
        Some(Action::Decide(args)) => decide::run(&args),
        Some(Action::Versus(args)) => versus::run(&args),
        Some(Action::Compare(args)) => compare::run(&args),
        Some(Action::Calibrate(args)) => calibrate::run(args),
        Some(Action::Report(args)) => report::run(&args),
        Some(Action::Serve(args)) => serve::run(&args),
        Some(Action::Disk(args)) => subject::disk::run(&args),
        Some(Action::Trace(args)) => trace::run(args),
        Some(Action::Herd(args)) => subject::herd::run(args),
        Some(Action::Pipes(args)) => subject::pipes::run(args),
    }
}

/// The built-in experiments and the experiment files of these names. Without a name: every built-in experiment.
///
/// Prints the faults of all files on stderr, a line each, in the form in which compilers print them.
///
/// # Errors
/// A [`UsageError`]: a name that neither an experiment nor a file has, or faults in a file.
fn experiments(names: &[String]) -> anyhow::Result<Vec<Experiment>> {
    let built_in: Vec<String> = built_in::names().into_iter().map(str::to_owned).collect();
    let names = if names.is_empty() { &built_in } else { names };
    let mut found = Vec::new();
    let mut faults = Vec::new();
    for name in names {
        match experiment(name)? {
            Ok(experiment) => found.push(experiment),
            Err(of_file) => faults.extend(of_file.0),
        }
    }
    if faults.is_empty() {
        return Ok(found);
    }
    Err(refuse(&Faults(faults), "experiment files", "nothing was run").into())
}

/// The experiment of that name.
fn experiment(name: &str) -> Result<Result<Experiment, Faults>, UsageError> {
    if let Some(experiment) = built_in::experiment(name) {
        return Ok(experiment);
    }
    let path = Path::new(name);
    if !path.is_file() {
        let names = built_in::names().join(", ");
        let message =
            format!("'{name}' is neither a file nor a built-in experiment; those are {names}");
        return Err(UsageError::new(message));
    }
    Ok(lab::spec::read(path))
}

/// The command line, for the record.
fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The error for a folder without a session.
fn no_session(folder: &Path) -> anyhow::Error {
    let folder = folder.display();
    UsageError::new(format!("there is no session in {folder}: run 'drover lab' first")).into()
}
