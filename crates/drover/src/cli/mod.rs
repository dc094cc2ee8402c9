//! The command line: the table of subcommands, how errors are printed, and the exit status.
//!
//! Exit status: 0 done, 1 failed while running, 2 used wrongly.

mod auto_or;
mod compress;
mod console_reporter;
pub mod count;
mod faults;
mod idle;
mod lab;
mod listen;
mod load;
mod mechanisms;
mod mistake;
mod request_args;
mod serve;
mod share;
mod stdout;
mod tls_args;
mod tune;

#[cfg(fuzzing)]
pub use serve::fuzzing;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use drover_server::log;
use drover_usage::{UsageError, printable};

/// Serve files, load servers, and measure which way of waiting for I/O wins on this machine.
#[derive(Debug, Parser)]
#[command(name = "drover", version, arg_required_else_help = true)]
struct Cli {
    /// Write more messages to stderr; -vv: even more (RUST_LOG wins)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

/// The subcommands: a file each in this folder, and a line each here and in [`Command::run`].
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve files over HTTP
    Serve(Box<serve::Args>),
    /// Re-run the classic experiments on this machine and judge their claims
    Lab(lab::Args),
    /// Measure which flags serve a directory best on this machine, and write them to a file
    Tune(tune::Args),
    /// Write compressed siblings of a site's files, for servers that send them
    Compress(compress::Args),
    /// Keep idle connections to a server open
    Idle(idle::Args),
    /// Send load to an HTTP server and measure rates, latencies and errors
    Load(Box<load::Args>),
    /// List every mechanism, strategy and backend: + usable here, − not, with the reason
    Mechanisms(mechanisms::Args),
}

impl Command {
    /// Runs the command. `matches` are the parsed words of the command line behind the command's name.
    fn run(self, matches: &ArgMatches) -> anyhow::Result<()> {
        match self {
            Command::Serve(args) => serve::run(*args, matches),
            Command::Lab(args) => lab::run(args),
            Command::Tune(args) => tune::run(&args),
            Command::Compress(args) => compress::run(&args),
            Command::Idle(args) => idle::run(args),
            Command::Load(args) => load::run(*args),
            Command::Mechanisms(args) => mechanisms::run(args),
        }
    }

    /// How much the command logs by default. A server logs what it has picked, and when it stops.
    fn verbosity(&self) -> u8 {
        u8::from(matches!(self, Command::Serve(_)))
    }
}

/// Runs the process's command line and returns its exit status.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = Cli::command().try_get_matches_from(&args);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return report_parse_error(&error, &args),
    };
    let (_, of_command) = matches.subcommand().expect("there is no command without a subcommand");
    set_up_logging(cli.verbose.saturating_add(cli.command.verbosity()));
    let status = match cli.command.run(of_command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_failure(&error),
    };
    log::finish();
    status
}

/// Prints help and version as answers, and every other parse error as a mistake in one line.
fn report_parse_error(error: &clap::Error, args: &[OsString]) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            complain(&mistake::in_one_line(error, Cli::command(), args));
            ExitCode::from(2)
        }
    }
}

fn report_failure(error: &anyhow::Error) -> ExitCode {
    complain(&format!("{error:#}"));
    if error.chain().any(|cause| cause.is::<UsageError>()) {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// Prints an error in one line. It may quote anything that was read, and so nothing in it is left for the terminal to
/// obey.
fn complain(message: &str) {
    let message = message.replace('\n', " ");
    log::write_line(format!("drover: {}\n", printable(&message)).as_bytes());
}

/// Sends the log to stderr: stdout belongs to results.
fn set_up_logging(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let colour =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    // A second call in one process, as in tests, keeps the first set-up.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_writer(|| log::LogWriter)
        .with_target(false)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_commands_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Commands with many flags show each flag in a group.
    #[test]
    fn every_flag_is_in_a_group() {
        let mut cli = Cli::command();
        cli.build();
        for command in ["serve", "load"].map(|name| cli.find_subcommand(name).unwrap()) {
            let shown =
                command.get_arguments().filter(|it| !it.is_positional() && !it.is_hide_set());
            let alone = shown.filter(|flag| flag.get_help_heading().is_none());
            let alone: Vec<_> = alone.map(|flag| flag.get_id().as_str()).collect();
            assert_eq!(alone, ["verbose", "help"], "{}", command.get_name());
        }
    }

    /// Values written in the forms that other servers and generators use.
    #[test]
    fn usual_ways_of_writing_are_accepted() {
        for command in [
            "drover serve -p 8080",
            "drover serve --port :8080 --workers auto",
            "drover serve --listen 8080 --listen :8081 --listen localhost:8082",
            "drover serve --cache 64m --idle-timeout 65 --read-ahead 64KiB",
            "drover serve --cache 64MB --grace 1m30 --response-size 4K",
            "drover serve --reply-size 4K",
            "drover load http://127.0.0.1/ -d 10 -c 1k -n 10k --rate 1.5k",
            "drover load http://127.0.0.1/ -d '2h 30m' --rate 1k..10k --idle 10K",
            "drover idle http://127.0.0.1/ -c 15k --hold 10",
        ] {
            if let Err(error) = Cli::try_parse_from(shlex::split(command).unwrap()) {
                panic!("{command}: {error}");
            }
        }
    }

    /// The commands that the page about `drover load` shows can be typed.
    #[test]
    fn documented_commands_are_accepted() {
        let page = include_str!("../../../../docs/load.md");
        let commands: Vec<&str> =
            page.lines().filter(|line| line.starts_with("drover load ")).collect();
        assert!(commands.len() > 10, "{commands:?}");
        for command in commands {
            let words = shlex::split(command).unwrap();
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{command}: {error}");
            }
        }
    }
}
