//! `drover idle`: flags for keeping idle connections to a server.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use drover_mech::mechanisms::{self, Mechanism};

use super::auto_or::{AutoOr, mechanism, mechanism_names};
use super::console_reporter::say;
use super::count;
use super::load::MOST_CONNECTIONS;
use super::stdout::stdout;
use super::tls_args::{Http2Args, TlsArgs};
use drover_load::plan::options::LoadOptions;
use drover_load::plan::request::RequestTemplate;
use drover_load::plan::shape::Schedule;
use drover_load::plan::target::Url;
use drover_load::{IdleResult, LoadListener};
use drover_usage::UsageError;
use drover_usage::duration;

/// Flags of `drover idle`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The server, [http://|https://]HOST[:PORT][/PATH]; the path is used with --every
    #[allow(rustdoc::broken_intra_doc_links, reason = "it is a help text")]
    url: Url,

    /// Connections to open and keep open
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = count::within(1..=MOST_CONNECTIONS))]
    connections: u32,

    /// How long to keep the connections open [default: until SIGINT or SIGTERM]
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    hold: Option<Duration>,

    /// Let each connection send a request every T: at any moment, few connections are active
    #[arg(long, value_name = "T", value_parser = duration::parse)]
    every: Option<Duration>,

    /// Open a new connection for each connection that the server has closed
    #[arg(long)]
    reopen: bool,

    /// How long the opening of a connection, or a response, may take
    #[arg(long, value_name = "T", value_parser = duration::parse, default_value = "10s")]
    timeout: Duration,

    #[arg(long, value_name = "M", default_value = "auto", value_parser = mechanism,
          help = format!("How the connections are waited for: {}", mechanism_names()))]
    dispatch: AutoOr<Mechanism>,

    #[command(flatten)]
    tls: TlsArgs,

    #[command(flatten)]
    http2: Http2Args,
}

/// Prints what happens to the connections.
struct ConsoleReporter;

impl LoadListener for ConsoleReporter {
    fn connected(&mut self, open: u32) -> io::Result<Option<Instant>> {
        say(&format!("holding {open} connections"))?;
        Ok(None)
    }

    fn closed(&mut self, total: u64) -> io::Result<()> {
        say(&format!("closed by the server: {total}"))
    }
}

/// Runs `drover idle`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let held = drover_load::idle(args.options()?, &mut ConsoleReporter)?;
    print(&held)?;
    if held.all_lost && held.opened > 0 {
        bail!("the server closed all connections: none is left; --reopen opens them again");
    }
    if held.opened < held.wanted {
        let why = held.connect_error.map_or(String::new(), |error| format!(": {error}"));
        bail!(
            "{} of {} connections could not be opened{why}",
            held.wanted - held.opened,
            held.wanted
        );
    }
    Ok(())
}

impl Args {
    fn options(self) -> anyhow::Result<LoadOptions> {
        for (flag, value) in
            [("--timeout", Some(self.timeout)), ("--every", self.every), ("--hold", self.hold)]
        {
            if value == Some(Duration::ZERO) {
                return Err(UsageError::new(format!("{flag} must be longer than 0")).into());
            }
        }
        let (connections, idle, schedule) = match self.every {
            None => (0, self.connections, None),
            Some(period) => (self.connections, 0, Some(Schedule::every(period, self.connections))),
        };
        let tls = self.tls.options(self.url.is_https())?;
        let protocol = self.http2.protocol([&self.url], None)?;
        let asked = vec![RequestTemplate { url: self.url, content: Arc::default() }];
        let mechanism = self.dispatch.usable(mechanisms::auto_of_readiness)?;
        Ok(LoadOptions {
            connections,
            idle,
            schedule,
            duration: self.hold,
            reopen: self.reopen,
            reopen_idle: self.reopen,
            timeout: self.timeout,
            protocol,
            tls,
            ..LoadOptions::new(asked, mechanism)
        })
    }
}

fn print(held: &IdleResult) -> io::Result<()> {
    let mut out = stdout();
    writeln!(
        out,
        "held {} connections for {:.1} s; {} closed by the server, {} opened again",
        held.opened,
        held.time.as_secs_f64(),
        held.closed_by_peer,
        held.reopened
    )?;
    if held.requests > 0 {
        writeln!(out, "{} requests, {} responses", held.requests, held.responses)?;
    }
    let errors = held.errors.to_string();
    if !errors.is_empty() {
        writeln!(out, "errors: {errors}")?;
    }
    out.flush()
}
