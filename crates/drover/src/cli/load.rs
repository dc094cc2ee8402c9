//! `drover load`: flags of the load generator.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use drover_mech::mechanisms::{self, Mechanism};

use super::auto_or::{AutoOr, mechanism, mechanism_names};
use super::console_reporter::{ConsoleReporter, OUTPUT, ReportFiles};
use super::count;
use super::request_args::{RequestArgs, RequestSelection};
use super::stdout::stdout;
use super::tls_args::{Http2Args, StreamArgs, TlsArgs};
use drover_load::output::merge;
use drover_load::output::objectives::Objectives;
use drover_load::output::progress::ProgressView;
use drover_load::output::result::LoadResult;
use drover_load::plan::options::LoadOptions;
use drover_load::plan::shape::{Arrivals, Rate, Schedule, SessionOptions, Think, Unit};
use drover_load::plan::status::StatusSet;
use drover_load::print_summary;
use drover_load::processes::Reporter;
use drover_usage::{UsageError, duration};

/// More connections than a machine can have descriptors for. A higher number is a typing error, and is refused before
/// memory is allocated.
pub(super) const MOST_CONNECTIONS: u32 = 4_000_000;

/// Reads a process of arrivals: how starts follow each other.
fn arrivals() -> impl TypedValueParser<Value = Arrivals> {
    let constant = PossibleValue::new("constant").help("At equal distances");
    let poisson = PossibleValue::new("poisson").help("Independently of each other");
    PossibleValuesParser::new([constant, poisson]).map(|name| match name.as_str() {
        "poisson" => Arrivals::Poisson,
        _ => Arrivals::Constant,
    })
}

/// The groups of flags in `drover load --help`; the flags of [`RequestArgs`] are the first one.
const LOAD: &str = "Load";
const RESPONSES: &str = "Responses";
const GENERATOR: &str = "Generator";

/// Flags of `drover load`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    asked: RequestArgs,

    #[command(flatten)]
    tls: TlsArgs,

    #[command(flatten)]
    http2: Http2Args,

    #[command(flatten)]
    streams: StreamArgs,

    /// Connections that send requests [default: 64]
    ///
    /// With --connection-rate: how many connections there are at most at a time [default: 4000]
    #[arg(help_heading = LOAD)]
    #[arg(short, long, value_name = "N")]
    #[arg(value_parser = count::within(1..=MOST_CONNECTIONS))]
    connections: Option<u32>,

    /// Requests per second, sent whether or not the server keeps up
    ///
    /// Without this flag, each connection sends the next request when the response to the last one is
    /// complete. A constant rate: 500. A ramp over the --duration: 100..1000. Steps for equal parts of
    /// the --duration: 100,200,500. A sine, mean~amplitude/period: 500~200/10s
    #[arg(help_heading = LOAD)]
    #[arg(short, long, value_name = "R")]
    rate: Option<Rate>,

    /// Connections per second, written like --rate
    ///
    /// Each connection makes --calls-per-connection requests [default: 1] and is then closed. At most
    /// --connections are open at a time
    #[arg(help_heading = LOAD)]
    #[arg(long, value_name = "R", conflicts_with = "rate")]
    connection_rate: Option<Rate>,

    /// Let each connection send a request every T, which is --rate CONNECTIONS/T
    #[arg(help_heading = LOAD, hide_short_help = true)]
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    #[arg(conflicts_with_all = ["rate", "connection_rate", "calls_per_connection", "think_time"])]
    every: Option<Duration>,

    /// How requests of --rate, or connections of --connection-rate, follow each other [default:
    /// constant]
    #[arg(help_heading = LOAD, hide_short_help = true)]
    #[arg(long, value_name = "HOW")]
    #[arg(value_parser = arrivals())]
    arrivals: Option<Arrivals>,

    /// Requests that each connection makes before the measured time, which are not counted
    ///
    /// The first request of a connection costs a server more than the next ones. A warm-up request that
    /// fails is counted as an error
    #[arg(help_heading = LOAD, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(conflicts_with_all = ["calls_per_connection", "connection_rate"])]
    warm_up: u32,

    /// How long to measure [default: 10s, or until --requests are done]
    #[arg(help_heading = LOAD)]
    #[arg(short, long, value_name = "T", value_parser = duration::parse)]
    duration: Option<Duration>,

    /// Send in N turns of --duration each, and wait between them
    ///
    /// A turn lasts until all responses have come. --events then prints 'turn', how many have come in all turns until now, and how
    /// many seconds these took
    #[arg(help_heading = LOAD, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 1, requires = "lockstep")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(conflicts_with_all = ["requests", "csv", "hdr", "merge"])]
    turns: u32,

    /// How many requests to send at most
    #[arg(help_heading = LOAD)]
    #[arg(short = 'n', long, value_name = "N", value_parser = count::within(1..=u64::MAX))]
    requests: Option<u64>,

    /// Close each connection after N requests
    ///
    /// A connection is opened when a request needs it; without this flag, all are opened before the
    /// first request
    #[arg(help_heading = LOAD)]
    #[arg(long, value_name = "N", value_parser = count::within(1..=u32::MAX))]
    calls_per_connection: Option<u32>,

    /// How long a connection rests between a response and the next request
    ///
    /// A time (5s), or exponentially distributed times with a mean (exp:5s)
    #[arg(help_heading = LOAD)]
    #[arg(long, value_name = "T")]
    think_time: Option<Think>,

    /// Take the rest of --think-time only after every N requests of a connection
    #[arg(help_heading = LOAD, hide_short_help = true)]
    #[arg(long, value_name = "N", requires = "think_time", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,

    /// Requests that a connection sends together (pipelining)
    ///
    /// The connection sends N requests before the first response has come. Not with HTTP/2, which has --streams
    #[arg(help_heading = LOAD, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pipeline: u32,

    /// Limit for a response or a connect
    #[arg(help_heading = RESPONSES)]
    #[arg(long, value_name = "T", value_parser = duration::parse, default_value = "10s")]
    timeout: Duration,

    /// Idle connections to open first and to keep open
    #[arg(help_heading = LOAD)]
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = count::within(0..=MOST_CONNECTIONS))]
    idle: u32,

    /// Count bodies of another length as errors
    #[arg(help_heading = RESPONSES)]
    #[arg(long, value_name = "BYTES")]
    expect_size: Option<u64>,

    /// Expected statuses [default: 2xx,3xx]
    ///
    /// Codes and classes, as in 2xx,404. A response with another status is counted as an error, and makes the exit status 1 unless --slo
    /// judges errors
    #[arg(help_heading = RESPONSES)]
    #[arg(long, value_name = "LIST")]
    expect_status: Option<StatusSet>,

    /// Count bodies that differ as errors
    ///
    /// Without FILE, the body of a 2xx response must be equal to the body of the first response to the same
    /// request. With FILE, the body must be equal to the file
    #[arg(help_heading = RESPONSES)]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    verify: Option<Option<PathBuf>>,

    /// Read responses slowly: at most BYTES per second on each connection
    #[arg(help_heading = RESPONSES, hide_short_help = true)]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    read_rate: Option<u32>,

    /// Threads that send
    ///
    /// Each thread has a share of the connections
    #[arg(help_heading = GENERATOR)]
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Keep each thread on a processor of its own
    #[arg(help_heading = GENERATOR, hide_short_help = true)]
    #[arg(long)]
    pin: bool,

    /// Keep a thread awake for T before each scheduled request
    ///
    /// Requests then start on time even where an idle processor wakes late, as in many virtual
    /// machines. Each thread uses up to a whole processor
    #[arg(help_heading = GENERATOR, hide_short_help = true)]
    #[arg(long, value_name = "T", value_parser = duration::parse, default_value = "0s")]
    spin: Duration,

    /// Processes that send, each with its --threads
    ///
    /// Each process has a share of the connections. For more connections than one process may have
    /// descriptors
    #[arg(help_heading = GENERATOR)]
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,

    /// Which of the --processes this is
    #[arg(long, hide = true, requires = "processes")]
    process: Option<u32>,

    /// Merge results that --json has written; send nothing
    #[arg(help_heading = OUTPUT)]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["urls", "list", "har", "curl", "csv", "hdr", "processes"])]
    merge: Vec<PathBuf>,

    #[arg(help_heading = GENERATOR, hide_short_help = true)]
    #[arg(long, value_name = "M", default_value = "auto", value_parser = mechanism,
          help = "How a thread waits; 'drover mechanisms' lists how it can",
          long_help = format!("How a thread waits: {}", mechanism_names()))]
    dispatch: AutoOr<Mechanism>,

    /// Seed of random choices: Poisson arrivals, the order of URLs, the first order of connections
    #[arg(help_heading = GENERATOR, hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the result as JSON; '-': to stdout
    ///
    /// With '-', the summary is not printed
    #[arg(help_heading = OUTPUT)]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Fail unless the result meets these objectives: 'p99<5ms,errors<0.1%'
    ///
    /// An objective limits p50, p90, p95, p99, p99.9, max, mean, rate or errors (with responses of an
    /// unexpected status)
    #[arg(help_heading = RESPONSES)]
    #[arg(long, value_name = "TERMS")]
    slo: Option<Objectives>,

    #[command(flatten)]
    files: ReportFiles,

    /// Print 'connected' and 'measured' when these moments come
    ///
    /// 'connected': all connections are open, and no request has been sent. 'measured': the measured
    /// time is over, and the connections are still open
    #[arg(help_heading = OUTPUT, hide_short_help = true)]
    #[arg(long)]
    events: bool,

    /// After each event of --events, wait for a line on stdin (or the end of stdin) before going on
    #[arg(help_heading = OUTPUT, hide_short_help = true)]
    #[arg(long, requires = "events")]
    lockstep: bool,
}

/// Runs `drover load`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let json = args.json.clone();
    let (events, lockstep) = (args.events, args.lockstep);
    let objectives = args.slo.clone();
    // The file is created before the run, so that a file that cannot be written is reported before the run.
    if let Some(file) = json.as_deref().filter(|file| !is_stdout(file)) {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .map_err(|error| UsageError::new(format!("--json {}: {error}", file.display())))?;
    }
    let files = args.files.clone();
    if args.process.is_some() {
        let mut reporter = Reporter::new();
        let result = drover_load::run(args.options()?, &mut reporter)?;
        return Ok(reporter.end(&result)?);
    }
    let result = if args.merge.is_empty() {
        let options = args.options()?;
        let mut reporter =
            ConsoleReporter::new(&files, ProgressView::new(options.duration, options.requests))?;
        (reporter.events, reporter.lockstep) = (events, lockstep);
        let result = drover_load::run(options, &mut reporter)?;
        reporter.end(&result)?;
        result
    } else {
        join(&args.merge)?
    };
    if let Some(file) = &json {
        write_json(&result, file)?;
    }
    if !json.as_deref().is_some_and(is_stdout) {
        let mut out = stdout();
        print_summary(&result, &mut out)?;
        out.flush()?;
    }
    if let Some(failure) = result.failure() {
        anyhow::bail!(failure);
    }
    let violations = objectives.as_ref().map(|objectives| objectives.violations(&result));
    if let Some(violations) = violations.filter(|violations| !violations.is_empty()) {
        anyhow::bail!("--slo: violated: {}", violations.join(", "));
    }
    match result.unexpected() {
        Some(unexpected) if !objectives.is_some_and(|objectives| objectives.judge_errors()) => {
            anyhow::bail!(unexpected)
        }
        _ => Ok(()),
    }
}

fn join(files: &[PathBuf]) -> anyhow::Result<LoadResult> {
    let fault = |fault: String| UsageError::new(format!("--merge: {fault}"));
    let read = |file: &PathBuf| {
        let name = file.display().to_string();
        let text = std::fs::read(file).map_err(|error| fault(format!("{name}: {error}")))?;
        let result = merge::parse(&text).map_err(|error| fault(format!("{name}: {error}")))?;
        Ok((name, result))
    };
    let results: Result<_, UsageError> = files.iter().map(read).collect();
    Ok(merge::merge(results?).map_err(fault)?)
}

impl Args {
    fn options(self) -> anyhow::Result<LoadOptions> {
        for (flag, value) in [
            ("--timeout", Some(self.timeout)),
            ("--duration", self.duration),
            ("--every", self.every),
        ] {
            if value == Some(Duration::ZERO) {
                return Err(UsageError::new(format!("{flag} must be longer than 0")).into());
            }
        }
        let default = self.requests.is_none().then_some(Duration::from_secs(10));
        let duration = self.duration.or(default);
        let default = if self.connection_rate.is_some() { 4000 } else { 64 };
        let connections = self.connections.unwrap_or(default);
        let schedule = self.schedule(duration, connections)?;
        let session = self.session();
        let RequestSelection { asked, order, unix, sources, http2, warnings } =
            self.asked.choose()?;
        let urls = asked.iter().map(|request| &request.url);
        let protocol = self.http2.or(http2).protocol(urls, self.streams.streams)?;
        let tls = self.tls.options(asked.iter().any(|request| request.url.is_https()))?;
        let looks = self.verify.is_some() || self.read_rate.is_some();
        // A parent of several processes chooses for all threads first; each process then chooses for its own threads.
        let processes = if self.process.is_some() { 1 } else { self.processes };
        let auto = || match looks {
            true => mechanisms::auto_of_readiness(),
            false => mechanisms::auto(self.threads.saturating_mul(processes) as usize),
        };
        Ok(LoadOptions {
            asked,
            order,
            warnings,
            unix,
            protocol,
            tls,
            sources,
            connections,
            idle: self.idle,
            schedule,
            session,
            warm_up: self.warm_up,
            duration,
            turns: self.turns,
            requests: self.requests,
            reopen: true,
            reopen_idle: false,
            timeout: self.timeout,
            expect_size: self.expect_size,
            expect_status: self.expect_status.unwrap_or_default(),
            verify: self.verify.is_some(),
            expect_body: self.verify.flatten().map(|file| read_body(&file)).transpose()?,
            read_rate: self.read_rate,
            pin: self.pin,
            spin: self.spin,
            threads: self.threads,
            processes: self.processes,
            process: self.process,
            mechanism: self.dispatch.usable(auto)?,
            seed: self.seed,
        })
    }
}

impl Args {
    fn session(&self) -> SessionOptions {
        SessionOptions {
            calls: self.calls_per_connection,
            burst: self.burst,
            think: self.think_time.unwrap_or_default(),
            pipeline: self.pipeline,
        }
    }

    fn schedule(
        &self,
        duration: Option<Duration>,
        connections: u32,
    ) -> Result<Option<Schedule>, UsageError> {
        let arrivals = self.arrivals.unwrap_or(Arrivals::Constant);
        let schedule = match (&self.rate, &self.connection_rate, self.every) {
            (Some(rate), ..) => Schedule { rate: rate.clone(), arrivals, unit: Unit::Request },
            (_, Some(rate), _) => Schedule { rate: rate.clone(), arrivals, unit: Unit::Connection },
            (_, _, Some(every)) => Schedule { arrivals, ..Schedule::every(every, connections) },
            _ if self.arrivals.is_some() => {
                return Err(UsageError::new("--arrivals needs a --rate or a --connection-rate"));
            }
            _ => return Ok(None),
        };
        if duration.is_none() && schedule.rate.needs_duration() {
            return Err(UsageError::new(format!(
                "--rate {}: give the run a --duration, over which the rate changes",
                schedule.rate
            )));
        }
        Ok(Some(schedule))
    }
}

fn read_body(file: &Path) -> Result<Vec<u8>, UsageError> {
    std::fs::read(file)
        .map_err(|error| UsageError::new(format!("--verify {}: {error}", file.display())))
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

fn write_json(result: &LoadResult, file: &Path) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(result)?;
    text.push(b'\n');
    if is_stdout(file) {
        let mut out = stdout();
        out.write_all(&text)?;
        return Ok(out.flush()?);
    }
    std::fs::write(file, text).with_context(|| format!("--json {}", file.display()))
}
