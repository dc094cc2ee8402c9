//! `drover lab`: flags of the laboratory.

use std::io::Write;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::lab::model::Level;
use anyhow::{Context, bail};
use clap::builder::ValueParser;
use mech::fs::Root;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::stdout::stdout;
use super::{disk, duration, experiment_file, herd, pipes, size, trace};
use crate::error::UsageError;
use crate::lab::compare::{self, Load};
use crate::lab::experiment::Experiment;
use crate::lab::plan::Overrides;
use crate::lab::results::{Results, State};
use crate::lab::session::{self, REPORT, Session};
use crate::report::{json, text};
use crate::server::{Config, Role, Server, Source, StopSignals};

/// Where results go unless told otherwise.
const OUT: &str = "drover-lab";

/// The folder below it that keeps the files to be served.
const POOLS: &str = "pools";

/// Flags of `drover lab`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Without any: run the quick preset of every experiment
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the built-in experiments and their presets
    List,
    /// Run experiments: built-in ones by name, your own by file
    Run(RunArgs),
    /// Compare servers, yours and others, side by side: files in memory, all servers in each round
    Compare(CompareArgs),
    /// Write the report of saved results anew
    Report {
        /// A run's folder, or the folder of all runs, of which the newest is taken
        #[arg(default_value = OUT)]
        folder: PathBuf,
    },
    /// Show a report on a local port, with Drover's own server
    Serve {
        /// A run's folder, or the folder of all runs
        #[arg(default_value = OUT)]
        folder: PathBuf,

        /// Where to listen, HOST:PORT; port 0 takes a free one
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// See a directory through a slow disk, modelled after two disks of 2007. Reports what it did
    /// for each line on stdin, and unmounts at its end or at SIGINT, SIGTERM and SIGHUP
    Disk(disk::Args),
    /// Show where the time of requests went, from what 'drover serve --trace' has written
    Trace(trace::Args),
    /// Gather waiters on one socket, connect to it, and say what a connection cost: a run of a herd
    /// experiment
    #[command(hide = true)]
    Herd(herd::Args),
    /// Pass tokens through pipes, few of which are active, and say what an event cost: a run of an
    /// experiment with pipes
    #[command(hide = true)]
    Pipes(pipes::Args),
}

#[derive(Debug, clap::Args)]
struct CompareArgs {
    /// NAME=COMMAND: a shell command that serves in the foreground, with {port} and {root} where it
    /// takes them; or, if installed, drover, nginx, lighttpd, h2o or apache2 by name
    #[arg(value_name = "SERVER", required = true)]
    servers: Vec<String>,

    /// The sizes of the files
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4K")]
    #[arg(value_parser = size::parse)]
    file_bytes: Vec<usize>,

    /// How many megabytes of files there are of each size
    #[arg(long, value_name = "MB", default_value = "10")]
    pool_mb: NonZeroU32,

    /// The numbers of connections
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_value = "64")]
    connections: Vec<NonZeroU32>,

    /// The length of each measured window
    #[arg(long, value_name = "T", default_value = "1s", value_parser = duration::parse)]
    window: Duration,

    /// How often each server is run
    #[arg(long, value_name = "N", default_value = "5")]
    repeats: NonZeroU32,

    /// Repeat an earlier run: same order, same loads
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The folder that gets a folder for each run, and the newest report
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names of built-in experiments, or TOML files; none: every built-in one
    #[arg(value_name = "ID|FILE")]
    experiments: Vec<String>,

    /// The scale: quick, standard or paper, or one of the file's own
    #[arg(long, default_value = "quick")]
    preset: String,

    /// Repeat an earlier run: same order of points, same loads
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Multiply the published request rates
    #[arg(long, value_name = "X", value_parser = positive())]
    rate_scale: Option<f64>,

    /// How often each point is run; below 3 no claim is judged
    #[arg(long, value_name = "N")]
    repeats: Option<NonZeroU32>,

    /// The length of each measured window, as 2s or 500ms
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    window: Option<Duration>,

    /// Only these mechanisms, or servers of the experiment file
    #[arg(long, value_name = "M,M…", value_delimiter = ',')]
    mechanisms: Option<Vec<String>>,

    /// These numbers of connections, or of waiters
    #[arg(long, visible_alias = "waiters", value_name = "N,N…", value_delimiter = ',')]
    connections: Option<Vec<NonZeroU32>>,

    /// These request rates, before --rate-scale
    #[arg(long, value_name = "R,R…", value_delimiter = ',', value_parser = positive())]
    rates: Option<Vec<f64>>,

    /// Whether a thread of the lowest class spins on each processor, so that none goes idle and is
    /// woken late [default: as the experiment says]
    #[arg(long, value_name = "WHETHER", value_parser = ["on", "off"])]
    keep_awake: Option<String>,

    /// The folder that gets a folder for each run, and the newest report
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,

    /// The folder that holds the files to be served, which are kept for later runs [default: pools,
    /// beside the runs]
    #[arg(long, value_name = "DIR")]
    pools: Option<PathBuf>,
}

/// Runs `drover lab`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    match args.action {
        None => run_session(quick_session()),
        Some(Action::List) => list(),
        Some(Action::Run(args)) => run_experiments(args),
        Some(Action::Compare(args)) => compare(args),
        Some(Action::Report { folder }) => report(&folder),
        Some(Action::Serve { folder, listen }) => serve(&folder, listen),
        Some(Action::Disk(args)) => disk::run(&args),
        Some(Action::Trace(args)) => trace::run(args),
        Some(Action::Herd(args)) => herd::run(args),
        Some(Action::Pipes(args)) => pipes::run(args),
    }
}

fn list() -> anyhow::Result<()> {
    let mut out = stdout();
    for experiment in Experiment::built_in() {
        writeln!(out, "{}: {}\n    {}", experiment.id, experiment.title, experiment.source)?;
        writeln!(out, "    mechanisms: {}", experiment.mechanisms.join(", "))?;
        for (name, preset) in &experiment.presets {
            writeln!(
                out,
                "    --preset {name}: {} {}, {}, {} repeats of {} s",
                experiment.compares.counted(),
                list_of(&preset.connections.0, NonZeroU32::to_string),
                list_of(&preset.asks(&experiment.workload), |ask| ask.in_words()),
                preset.repeats,
                preset.window_s.0
            )?;
        }
    }
    Ok(())
}

fn list_of<T>(levels: &[T], text: impl Fn(&T) -> String) -> String {
    levels.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn quick_session() -> Session {
    Session {
        experiments: Experiment::built_in(),
        preset: "quick".to_string(),
        overrides: Overrides::default(),
        seed: rand::random(),
        out: PathBuf::from(OUT),
        pools: Path::new(OUT).join(POOLS),
        command: command_line(),
    }
}

/// Runs built-in experiments and files of version 1 as one session, or files of version 2 one by one.
fn run_experiments(args: RunArgs) -> anyhow::Result<()> {
    let files = args.experiments.iter().filter(|name| experiment_file::is_version_2(name)).count();
    if files == 0 {
        return run_session(session_of(args)?);
    }
    if files < args.experiments.len() {
        let message = "files of version 2 are run by themselves: name the others in another run";
        return Err(UsageError::new(message).into());
    }
    if args.rates.is_some() || args.rate_scale.is_some() || args.keep_awake.is_some() {
        let message = "--rates, --rate-scale and --keep-awake are not for files of version 2: \
                       give the preset other levels in the file";
        return Err(UsageError::new(message).into());
    }
    let connections = args.connections.map(|levels| {
        let levels = levels.into_iter().map(|level| Level::Number(f64::from(level.get())));
        ("connections".to_owned(), levels.collect())
    });
    let options = experiment_file::RunOptions {
        preset: args.preset,
        overrides: ::lab::plan::Overrides {
            rounds: args.repeats.map(NonZeroU32::get),
            window: args.window,
            subjects: args.mechanisms,
            levels: connections.into_iter().collect(),
            ..::lab::plan::Overrides::default()
        },
        seed: args.seed.unwrap_or_else(rand::random),
        pools: args.pools.unwrap_or_else(|| args.out.join(POOLS)),
        out: args.out,
    };
    args.experiments.iter().try_for_each(|file| experiment_file::run(Path::new(file), &options))
}

fn session_of(args: RunArgs) -> anyhow::Result<Session> {
    let experiments = match args.experiments.as_slice() {
        [] => all_that_fit(&args),
        names => names.iter().map(|name| Experiment::find(name)).collect::<Result<_, _>>()?,
    };
    let overrides = Overrides {
        repeats: args.repeats.map(NonZeroU32::get),
        rate_scale: args.rate_scale,
        mechanisms: args.mechanisms,
        connections: args.connections.map(|list| list.into_iter().map(NonZeroU32::get).collect()),
        rates: args.rates,
        window: args.window,
        awake: args.keep_awake.map(|whether| whether == "on"),
    };
    Ok(Session {
        experiments,
        preset: args.preset,
        overrides,
        seed: args.seed.unwrap_or_else(rand::random),
        pools: args.pools.unwrap_or_else(|| args.out.join(POOLS)),
        out: args.out,
        command: command_line(),
    })
}

/// Compares servers of the user's.
fn compare(args: CompareArgs) -> anyhow::Result<()> {
    let mut file_bytes: Vec<NonZeroU64> =
        args.file_bytes.iter().filter_map(|bytes| NonZeroU64::new(*bytes as u64)).collect();
    if file_bytes.len() < args.file_bytes.len() {
        return Err(UsageError::new("--file-bytes: an empty file is none to compare by").into());
    }
    file_bytes.sort_unstable();
    file_bytes.dedup();
    let mut connections = args.connections;
    connections.sort_unstable();
    connections.dedup();
    let load = Load {
        file_bytes,
        pool_mb: args.pool_mb,
        connections,
        window: args.window,
        repeats: args.repeats,
    };
    run_session(Session {
        experiments: vec![compare::experiment(&args.servers, &load)?],
        preset: compare::PRESET.to_string(),
        overrides: Overrides::default(),
        seed: args.seed.unwrap_or_else(rand::random),
        pools: args.out.join(POOLS),
        out: args.out,
        command: command_line(),
    })
}

/// The built-in experiments that know one of the mechanisms that were asked for, and have rates if
/// some were; every one if that is none, so that what is wrong is told.
fn all_that_fit(args: &RunArgs) -> Vec<Experiment> {
    let fits = |experiment: &Experiment| {
        let knows = |name: &String| experiment.mechanisms.contains(name);
        let has_rates = experiment.preset(&args.preset).is_ok_and(|preset| preset.rates.is_some());
        args.mechanisms.as_ref().is_none_or(|names| names.iter().any(knows))
            && (args.rates.is_none() || has_rates)
    };
    let fitting: Vec<Experiment> = Experiment::built_in().into_iter().filter(fits).collect();
    if fitting.is_empty() { Experiment::built_in() } else { fitting }
}

fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Runs and, at the end or at SIGINT or SIGTERM, says what came out and where the report is.
fn run_session(session: Session) -> anyhow::Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the process at once, and the kernel its children with it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))?;
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let all = session.run(&interrupted)?;
    let mut out = stdout();
    for results in &all {
        write!(out, "{}", text::summary(results)?)?;
        if session.preset == compare::PRESET {
            write!(out, "{}", text::table(results)?)?;
        }
    }
    let report = session.out.join(REPORT);
    writeln!(out, "Report: {}", report.display())?;
    verdict(&all)
}

/// The exit status remembers what the report says in detail.
fn verdict(all: &[Results]) -> anyhow::Result<()> {
    if all.iter().any(|results| results.state == State::Interrupted) {
        bail!("interrupted: the report covers what was measured until then");
    }
    let (failures, runs) = all
        .iter()
        .map(|results| (results.failures(), results.runs.len()))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if failures > 0 {
        bail!("{failures} of {runs} runs failed: the report says why");
    }
    Ok(())
}

fn report(folder: &Path) -> anyhow::Result<()> {
    let folder = newest_run(folder)?;
    let all: Vec<Results> =
        json::find(&folder)?.iter().map(|path| json::load(path)).collect::<Result<_, _>>()?;
    let path = session::write_report(&folder, &all)?;
    writeln!(stdout(), "Report: {}", path.display())?;
    Ok(())
}

/// `folder` itself if it holds results, otherwise the newest of its folders that does.
fn newest_run(folder: &Path) -> anyhow::Result<PathBuf> {
    let is_run = |folder: &Path| json::find(folder).is_ok_and(|files| !files.is_empty());
    if is_run(folder) {
        return Ok(folder.to_path_buf());
    }
    let mut runs: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_run(path))
        .collect();
    // Their names begin with the time.
    runs.sort();
    runs.pop().ok_or_else(|| no_results(folder))
}

fn serve(folder: &Path, listen: SocketAddr) -> anyhow::Result<()> {
    if !folder.join(REPORT).is_file() {
        return Err(no_results(folder));
    }
    let root = Root::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    let mechanism = mech::dispatch::auto(1).context("no mechanism works here")?;
    let signals = StopSignals::catch(Role::Server)?;
    let source = Source::Directory(Arc::new(root));
    let server =
        Server::start(Config { listen: vec![listen.into()], ..Config::new(source, mechanism) })?;
    server.stop_at(&signals);
    let mut out = stdout();
    for address in server.addresses() {
        writeln!(out, "http://{address}/{REPORT}")?;
    }
    out.flush()?;
    server.wait()
}

fn no_results(folder: &Path) -> anyhow::Error {
    let folder = folder.display();
    UsageError::new(format!("there are no results in {folder}: run 'drover lab' first")).into()
}

/// Reads a number above zero.
fn positive() -> ValueParser {
    ValueParser::from(|text: &str| match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("write a number above 0"),
    })
}
