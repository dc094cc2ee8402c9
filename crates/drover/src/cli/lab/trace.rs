//! `drover lab trace`: flags of the page about traces.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use drover_lab::trace::{TraceFile, render, text};

use crate::cli::stdout::stdout;
use drover_usage::UsageError;
use drover_usage::duration;

/// Flags of `drover lab trace`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files that 'drover serve --trace' has written; one page shows all files, with one scale
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The file of the page [default: the name of the first FILE with the extension .html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Requests that take longer than this time are counted as too late
    #[arg(long, value_name = "T", default_value = "4s", value_parser = duration::parse)]
    past: Duration,
}

/// Runs `drover lab trace`.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let limit_us = u64::try_from(args.past.as_micros()).unwrap_or(u64::MAX);
    let mut traces = Vec::new();
    let mut out = stdout();
    for path in &args.files {
        let trace = read(path)?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        writeln!(out, "{}", text(&name, &trace, limit_us))?;
        traces.push((name, trace));
    }
    let page = args.out.unwrap_or_else(|| args.files[0].with_extension("html"));
    if args.files.contains(&page) {
        let message = format!("--out {} would replace a trace; name another", page.display());
        return Err(UsageError::new(message).into());
    }
    std::fs::write(&page, render(&traces, limit_us))
        .with_context(|| format!("cannot write {}", page.display()))?;
    Ok(writeln!(out, "Report: {}", page.display())?)
}

fn read(path: &Path) -> anyhow::Result<TraceFile> {
    let refused = |reason: String| {
        UsageError::new(format!(
            "cannot read {} as a trace: {reason}; give a FILE of 'drover serve --trace FILE'",
            path.display()
        ))
    };
    let file = File::open(path).map_err(|error| refused(error.to_string()))?;
    TraceFile::read(BufReader::new(file)).map_err(|error| refused(error).into())
}

#[cfg(test)]
mod tests {
    use drover_server::trace::{COLUMNS, FORMAT};

    use super::*;

    #[test]
    fn the_lab_reads_what_the_server_writes() {
        let trace = format!("# {FORMAT} started=1.5\n{COLUMNS}\n");
        assert_eq!(TraceFile::read(trace.as_bytes()).unwrap().about, "started=1.5");
        assert_eq!(FORMAT, drover_lab::trace::FORMAT);
    }
}
