//! What `drover load` prints while it runs: events for programs, a view for people, and files with a line per second.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::stdout::stdout;
use drover_load::output::progress::ProgressView;
use drover_load::output::result::LoadResult;
use drover_load::output::{csv, hdr};
use drover_load::{LoadListener, Second};
use drover_usage::UsageError;

/// The group of flags in help that say where results go.
pub(super) const OUTPUT: &str = "Output";

/// Where a load is written down second by second.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportFiles {
    /// Write a line of CSV for each second
    ///
    /// A line has requests, responses, errors, bytes and percentiles
    #[arg(help_heading = OUTPUT)]
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write the latencies per second as an HdrHistogram log
    #[arg(help_heading = OUTPUT)]
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

/// Prints the progress of a load, and writes it to files.
pub(super) struct ConsoleReporter {
    pub(super) events: bool,
    pub(super) lockstep: bool,
    progress: ProgressView,
    csv: Option<BufWriter<File>>,
    hdr: Option<BufWriter<File>>,
}

impl ConsoleReporter {
    /// # Errors
    /// A [`UsageError`] for a file that cannot be written.
    pub(super) fn new(
        files: &ReportFiles,
        progress: ProgressView,
    ) -> anyhow::Result<ConsoleReporter> {
        let mut csv = create("--csv", files.csv.as_deref())?;
        if let Some(out) = &mut csv {
            csv::begin(out)?;
        }
        let hdr = create("--hdr", files.hdr.as_deref())?;
        Ok(ConsoleReporter { events: false, lockstep: false, progress, csv, hdr })
    }

    /// Finishes the view and the files.
    pub(super) fn end(&mut self, result: &LoadResult) -> io::Result<()> {
        self.progress.end();
        match &mut self.csv {
            Some(out) => csv::end(out, result),
            None => Ok(()),
        }
    }

    fn event(&self, event: &str) -> io::Result<()> {
        if self.events {
            say(event)?;
        }
        if self.lockstep {
            io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

fn create(flag: &str, file: Option<&Path>) -> Result<Option<BufWriter<File>>, UsageError> {
    let Some(file) = file else { return Ok(None) };
    if file == Path::new("-") {
        return Err(UsageError::new(format!("{flag} -: give a file, or /dev/stdout")));
    }
    let created = File::create(file)
        .map_err(|error| UsageError::new(format!("{flag} {}: {error}", file.display())))?;
    Ok(Some(BufWriter::new(created)))
}

impl LoadListener for ConsoleReporter {
    fn connected(&mut self, _open: u32) -> io::Result<Option<Instant>> {
        self.event("connected")?;
        Ok(None)
    }

    fn begins(&mut self, at: SystemTime) -> io::Result<()> {
        match &mut self.hdr {
            Some(out) => hdr::begin(out, at),
            None => Ok(()),
        }
    }

    fn looked(&mut self, elapsed: Option<Duration>, responses: u64) {
        self.progress.look(elapsed, responses);
    }

    fn wants_seconds(&self) -> bool {
        self.progress.is_visible() || self.csv.is_some() || self.hdr.is_some()
    }

    fn second(&mut self, at: Duration, long: Duration, second: &Second) -> io::Result<()> {
        if !long.is_zero() {
            self.progress.second(second);
        }
        if let Some(out) = &mut self.csv {
            csv::second(out, at, long, second)?;
        }
        if let Some(out) = &mut self.hdr {
            hdr::second(out, at, long, second)?;
        }
        Ok(())
    }

    fn turn_over(&mut self, responses: u64, window: Duration) -> io::Result<()> {
        self.event(&format!("turn {responses} {}", window.as_secs_f64()))
    }

    fn measured(&mut self) -> io::Result<()> {
        self.event("measured")
    }
}

/// Prints a line on stdout and flushes: the program that reads the line must get it at once.
pub(super) fn say(line: &str) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "{line}")?;
    out.flush()
}
