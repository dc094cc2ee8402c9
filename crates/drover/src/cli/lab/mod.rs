//! `drover lab`: the laboratory's subcommands, a file each in this folder.

mod calibrate;
mod claims;
mod compare;
mod decide;
mod guest;
mod list;
mod report;
mod run;
mod serve;
pub(super) mod session;
mod subject;
mod trace;
mod versus;

use std::path::{Path, PathBuf};

use drover_lab::path_text::escaped;
use drover_lab::spec::{Experiment, Faults, built_in};

use crate::cli::faults::refuse;
use drover_usage::UsageError;

/// The default folder of sessions.
const OUT: &str = "drover-lab";

/// Flags of `drover lab`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Without a subcommand: run the quick preset of every experiment
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List experiments with their presets, subjects, factors, levels, rounds and estimated time
    List(list::Args),
    /// Run experiments as one session: built-in experiments by name, your own ones by file
    Run(Box<run::Args>),
    /// Find in minutes which mechanism suits your number and kind of connections best
    Decide(decide::Args),
    /// Compare your server with other servers: at saturation, at fixed rates and idle
    Versus(versus::Args),
    /// Compare saved sessions of different kernels, machines or program versions, cell by cell
    Compare(compare::Args),
    /// Find how small a difference this machine can detect, with equal and with slowed servers
    Calibrate(calibrate::Args),
    /// Show what is decided of the claims that documents make, without measuring: by a session and by the emulated machine
    Claims(claims::Args),
    /// Write the report of a session again
    Report(report::Args),
    /// Show a report on a local port, with Drover's own server
    Serve(serve::Args),
    /// Mount a directory behind a slow disk, modelled after two disks of 2007
    ///
    /// For each line on stdin, the command reports what the disk has done. The command unmounts the
    /// directory at the end of stdin and at SIGINT, SIGTERM and SIGHUP
    Disk(subject::disk::Args),
    /// Show where the time of requests went, from a file of 'drover serve --trace'
    Trace(trace::Args),
    /// Make waiters on one socket, connect to the socket, and report the cost of a connection
    ///
    /// The lab runs this command for subjects of the kind 'waiters'
    #[command(hide = true)]
    Herd(subject::herd::Args),
    /// Serve by processes that wait in accept(2), one connection each
    ///
    /// The lab runs this command for subjects of the kind 'command'
    #[command(hide = true)]
    Child(subject::child::Args),
    /// Make a certificate for servers that are measured over TLS
    ///
    /// The lab runs this command for experiments with the key 'tls'
    #[command(hide = true)]
    Certificate(subject::certificate::Args),
    /// Pass tokens through pipes, few of which are active, and report the cost of an event
    ///
    /// The lab runs this command for subjects of the kind 'pipes'
    #[command(hide = true)]
    Pipes(subject::pipes::Args),
    /// Wake threads that wait in /dev/wakeq, and report how many an event wakes and what that costs
    ///
    /// The lab runs this command for subjects of the kind 'guest'
    #[command(hide = true)]
    WaitQueue(subject::wait_queue::Args),
    /// Cause events while nobody waits, and report which are queued, merged and lost
    ///
    /// The lab runs this command for subjects of the kind 'guest'
    #[command(hide = true)]
    Burst(subject::burst::Args),
    /// Run one cell of an experiment once, and report its values
    ///
    /// The lab runs this command for subjects of the kind 'guest'
    #[command(hide = true)]
    Cell(subject::cell::Args),
    /// Run a command of drover in the guest of a session
    ///
    /// The lab runs this command for subjects of the kind 'guest', and for pipes with 'guest = true'
    #[command(hide = true)]
    Guest(guest::Args),
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
        Some(Action::Claims(args)) => claims::run(&args),
        Some(Action::Report(args)) => report::run(&args),
        Some(Action::Serve(args)) => serve::run(&args),
        Some(Action::Disk(args)) => subject::disk::run(&args),
        Some(Action::Trace(args)) => trace::run(args),
        Some(Action::Herd(args)) => subject::herd::run(args),
        Some(Action::Child(args)) => subject::child::run(&args),
        Some(Action::Certificate(args)) => subject::certificate::run(&args),
        Some(Action::Pipes(args)) => subject::pipes::run(args),
        Some(Action::WaitQueue(args)) => subject::wait_queue::run(&args),
        Some(Action::Burst(args)) => subject::burst::run(&args),
        Some(Action::Cell(args)) => subject::cell::run(args),
        Some(Action::Guest(args)) => guest::run(&args),
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
    Err(refuse(&faults, "experiment files", "nothing was run").into())
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
    Ok(drover_lab::spec::read(path))
}

/// The command line, for the record.
fn command_line() -> Vec<String> {
    std::env::args_os().map(escaped).collect()
}

/// The folder itself, if it is a session's, or that of the newest session in it.
///
/// # Errors
/// A [`UsageError`]: there is no session.
fn newest_session(folder: &Path) -> anyhow::Result<PathBuf> {
    drover_lab::session::newest(folder).ok_or_else(|| no_session(folder))
}

/// The error for a folder without a session.
fn no_session(folder: &Path) -> anyhow::Error {
    let folder = escaped(folder);
    UsageError::new(format!("there is no session in {folder}: run 'drover lab' first")).into()
}
