//! `drover lab versus`: any servers side by side.

use std::io::Write;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use drover_lab::plan::Overrides;
use drover_lab::spec::Faults;
use drover_lab::spec::load::SpokenProtocols;
use drover_lab::versus::{self, Comparison, Rates};

use super::OUT;
use super::session::own::OwnSession;
use super::session::settings;
use crate::cli::stdout::stdout;
use drover_usage::UsageError;
use drover_usage::{duration, size};

/// The longest window of the first look. The first look only has to find how many requests the servers can answer.
const LOOK: Duration = Duration::from_millis(300);

/// Flags of `drover lab versus`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// NAME=COMMAND, or drover, nginx, lighttpd, h2o, apache2 or caddy by name
    ///
    /// COMMAND is a shell command that serves in the foreground; {port} and {root} in the command stand
    /// for the port and the folder of files. A server that is given by name has to be installed. All
    /// other servers are compared with the first one
    #[arg(value_name = "SERVER", required = true)]
    servers: Vec<String>,

    /// Compare over TLS
    ///
    /// The certificate is made for the run. In COMMAND, {cert} and {key} stand for the files of the certificate and
    /// of its private key
    #[arg(long)]
    tls: bool,

    /// Compare over HTTP/2, which servers and load agree on over TLS
    ///
    /// COMMAND has to start a server that speaks it
    #[arg(long, requires = "tls")]
    http2: bool,

    /// How many requests each connection has under way at once
    #[arg(long, value_name = "N", default_value = "1", requires = "http2")]
    streams: NonZeroU32,

    /// The sizes of the files
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4K")]
    #[arg(value_parser = size::parse)]
    file_bytes: Vec<usize>,

    /// How many megabytes of files to make for each size
    #[arg(long, value_name = "MB", default_value = "10")]
    pool_mb: NonZeroU32,

    /// The numbers of connections to measure with
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_value = "64")]
    connections: Vec<NonZeroU32>,

    /// The fixed rates, in requests per second [default: 10 % and 50 % of the slowest server's best
    /// rate]
    ///
    /// The slowest server's best rate is measured in a first look
    #[arg(long, value_name = "R,R…", value_delimiter = ',')]
    rates: Vec<NonZeroU32>,

    /// How many idle connections to measure memory with; 0: memory is not measured
    #[arg(long, value_name = "N", default_value = "1000")]
    idle: u32,

    /// The length of each measured window
    #[arg(long, value_name = "T", default_value = "1s", value_parser = duration::parse_above_zero)]
    window: Duration,

    /// How often each server is run; an interval needs 6
    #[arg(long, value_name = "N", default_value = "6")]
    repeats: NonZeroU32,

    /// The seed of an earlier run, to repeat its order and its loads
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The folder for the folders of all runs
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

/// Runs `drover lab versus`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let comparison = comparison(args)?;
    let session = OwnSession {
        preset: versus::PRESET,
        overrides: Overrides::default(),
        seed: args.seed.unwrap_or_else(rand::random),
        settings: settings(args.out.clone(), None, false)?,
    };
    let rates = rates(args, &comparison, &session)?;
    let mut experiments = vec![comparison.saturation().map_err(usage)?];
    if !rates.is_empty() {
        experiments.push(comparison.fixed_rates(&rates).map_err(usage)?);
    }
    if comparison.idle > 0 {
        experiments.push(comparison.idle_connections().map_err(usage)?);
    }
    let ended = session.run(experiments)?;
    let record = &ended.record;
    let mut out = stdout();
    write!(out, "{}", versus::table(record, &comparison.names()))?;
    writeln!(out, "\nSamples: {}", record.folder.display())?;
    writeln!(out, "Report: {}", ended.report.display())?;
    ensure!(!ended.is_interrupted, "interrupted: what was measured until then is above");
    let runs = || record.measured.iter().flat_map(|measured| &measured.runs);
    ensure!(
        runs().any(|run| run.sample.failure.is_none()),
        "no server could be measured: what is wrong with each is above"
    );
    Ok(())
}

fn comparison(args: &Args) -> anyhow::Result<Comparison> {
    let mut file_bytes: Vec<u64> = args.file_bytes.iter().map(|bytes| *bytes as u64).collect();
    if file_bytes.iter().any(|bytes| NonZeroU64::new(*bytes).is_none()) {
        bail!(UsageError::new("--file-bytes: an empty file is none to compare by"));
    }
    file_bytes.sort_unstable();
    file_bytes.dedup();
    let mut connections: Vec<u32> = args.connections.iter().map(|it| it.get()).collect();
    connections.sort_unstable();
    connections.dedup();
    let spoken = SpokenProtocols { tls: args.tls, http2: args.http2 };
    let mut comparison = Comparison::new(&args.servers, spoken).map_err(UsageError::new)?;
    comparison.file_bytes = file_bytes;
    comparison.pool_mb = args.pool_mb.get();
    comparison.connections = connections;
    comparison.streams = args.streams.get();
    comparison.idle = args.idle;
    comparison.rounds = args.repeats.get();
    comparison.window_s = args.window.as_secs_f64();
    Ok(comparison)
}

/// The rates that the user gives, or the rates that a first look suggests.
fn rates(args: &Args, comparison: &Comparison, session: &OwnSession) -> anyhow::Result<Rates> {
    if !args.rates.is_empty() {
        let mut rates: Vec<u32> = args.rates.iter().map(|rate| rate.get()).collect();
        rates.sort_unstable();
        rates.dedup();
        let rates: Vec<f64> = rates.into_iter().map(f64::from).collect();
        return Ok(comparison.given_rates(&rates));
    }
    let overrides =
        Overrides { rounds: Some(1), window: Some(args.window.min(LOOK)), ..Overrides::default() };
    let experiment = comparison.saturation().map_err(usage)?;
    Ok(versus::rates(&session.pilot(&experiment, "A first look", &overrides)?))
}

fn usage(faults: Faults) -> anyhow::Error {
    let faults: Vec<&str> = faults.0.iter().map(|fault| fault.message.as_str()).collect();
    UsageError::new(faults.join("; ")).into()
}
