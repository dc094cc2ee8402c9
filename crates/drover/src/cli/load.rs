//! `drover load`: flags of the load generator.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use mech::dispatch::Mechanism;

use super::choice::{Choice, mechanism, mechanism_names};
use super::duration;
use super::what::{Chosen, What};
use crate::error::UsageError;
use crate::load::pace::Pace;
use crate::load::plan::Options;
use crate::load::result::LoadResult;
use crate::load::{self, Event, print_summary};

/// More than a machine can have descriptors for, so that a typing error ends before it takes memory.
pub(super) const MOST_CONNECTIONS: i64 = 4_000_000;

/// Flags of `drover load`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    what: What,

    /// Connections that send requests
    #[arg(short, long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_CONNECTIONS))]
    connections: u32,

    /// Requests per second, sent whether or not the server keeps up; without it, each connection
    /// sends its next request when it has its reply
    #[arg(short, long, value_name = "R", value_parser = parse_rate)]
    rate: Option<f64>,

    /// How the requests of --rate follow each other
    #[arg(long, value_name = "HOW", requires = "rate", default_value = "constant")]
    arrivals: Arrivals,

    /// How long to measure [default: 10s, or until --requests are done]
    #[arg(short, long, value_name = "T", value_parser = duration::parse)]
    duration: Option<Duration>,

    /// How many requests to send at most
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,

    /// Close each connection after N requests, and open one when a request needs it; without it,
    /// all are opened before the first request
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    calls_per_connection: Option<u32>,

    /// Rest of a connection between a reply and its next request
    #[arg(long, value_name = "T", value_parser = duration::parse, default_value = "0")]
    think_time: Duration,

    /// How long a reply, or the opening of a connection, may take
    #[arg(long, value_name = "T", value_parser = duration::parse, default_value = "10s")]
    timeout: Duration,

    /// Idle connections to open before the others, and to hold beside them
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=MOST_CONNECTIONS))]
    idle: u32,

    /// Count replies with a body of any other length as errors
    #[arg(long, value_name = "BYTES")]
    expect_size: Option<u64>,

    /// Threads that send, each with its share of the connections
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    #[arg(long, value_name = "M", default_value = "auto", value_parser = mechanism,
          help = format!("How a thread waits: {}", mechanism_names()))]
    dispatch: Choice<Mechanism>,

    /// Seed of what is random: Poisson arrivals, the order of URLs, the first order of connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the result as JSON; '-': to stdout, in place of the summary
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print 'connected' once all connections are open and before the first request, and
    /// 'measured' when the measured time is over and before the connections are closed
    #[arg(long)]
    events: bool,

    /// After each of the --events, wait for a line on stdin, or its end, before going on
    #[arg(long, requires = "events")]
    lockstep: bool,
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Arrivals {
    /// At equal distances
    Constant,
    /// Independently of each other
    Poisson,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(rate),
        _ => Err("a rate is a number of requests per second above 0".to_string()),
    }
}

/// Runs `drover load`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let json = args.json.clone();
    let (events, lockstep) = (args.events, args.lockstep);
    // A file that cannot be written is known before the run, not after it.
    if let Some(file) = json.as_deref().filter(|file| !is_stdout(file)) {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .map_err(|error| UsageError::new(format!("--json {}: {error}", file.display())))?;
    }
    let mut tell = |event| {
        match event {
            Event::Connected { .. } if events => say("connected")?,
            Event::Measured if events => say("measured")?,
            _ => return Ok(()),
        }
        if lockstep {
            io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    };
    let result = load::run(args.options()?, &mut tell)?;
    if let Some(file) = &json {
        write_json(&result, file)?;
    }
    if !json.as_deref().is_some_and(is_stdout) {
        let mut out = io::stdout().lock();
        print_summary(&result, &mut out)?;
        out.flush()?;
    }
    match result.failure() {
        None => Ok(()),
        Some(failure) => anyhow::bail!(failure),
    }
}

impl Args {
    fn options(self) -> anyhow::Result<Options> {
        let pace = match (self.rate, self.arrivals) {
            (None, _) => Pace::Closed,
            (Some(rate), Arrivals::Constant) => Pace::Constant { rate },
            (Some(rate), Arrivals::Poisson) => Pace::Poisson { rate },
        };
        for (flag, value) in [("--timeout", Some(self.timeout)), ("--duration", self.duration)] {
            if value == Some(Duration::ZERO) {
                return Err(UsageError::new(format!("{flag} must be longer than 0")).into());
            }
        }
        let Chosen { asked, order, unix, sources } = self.what.choose()?;
        let default = self.requests.is_none().then_some(Duration::from_secs(10));
        Ok(Options {
            asked,
            order,
            unix,
            sources,
            connections: self.connections,
            idle: self.idle,
            pace,
            duration: self.duration.or(default),
            requests: self.requests,
            calls_per_connection: self.calls_per_connection,
            reopen: true,
            reopen_idle: false,
            think_time: self.think_time,
            timeout: self.timeout,
            expect_size: self.expect_size,
            threads: self.threads,
            mechanism: self.dispatch.usable()?,
            seed: self.seed,
        })
    }
}

/// Prints a line for the program that reads ours; it must not wait in a buffer.
pub(super) fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

fn write_json(result: &LoadResult, file: &Path) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(result)?;
    text.push(b'\n');
    if is_stdout(file) {
        let mut out = io::stdout().lock();
        out.write_all(&text)?;
        return Ok(out.flush()?);
    }
    std::fs::write(file, text).with_context(|| format!("--json {}", file.display()))
}
