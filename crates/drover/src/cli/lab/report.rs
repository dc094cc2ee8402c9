//! `drover lab report`: the page of a session, written anew.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use drover_lab::path_text::escaped;
use drover_lab::record::SessionRecord;

use crate::cli::stdout::stdout;

/// Flags of `drover lab report`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session's folder, or the folder of all sessions, which stands for the newest session
    #[arg(default_value = super::OUT)]
    folder: PathBuf,
}

/// Runs `drover lab report`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = super::newest_session(&args.folder)?;
    let record = SessionRecord::read(&folder)?;
    let page =
        drover_lab::report::write(&folder, None, &record).context("cannot write the report")?;
    Ok(writeln!(stdout(), "Report: {}", escaped(page))?)
}
