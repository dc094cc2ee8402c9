//! `drover lab claims`: what is decided of the documents' claims, and by whom.

use std::io::Write;
use std::path::PathBuf;

use drover_lab::record::SessionRecord;
use drover_lab::report::findings::SessionResults;
use drover_lab::report::model::Report;
use drover_lab::report::verdicts::{table, verdicts};

use super::session::width;
use crate::cli::stdout::stdout;

/// Flags of `drover lab claims`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A session's folder, or the folder of all sessions, which stands for the newest session [default: the session that
    /// the documentation is about]
    folder: Option<PathBuf>,
}

/// Runs `drover lab claims`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let results = match &args.folder {
        None => SessionResults::published(),
        Some(folder) => {
            let found = super::newest_session(folder)?;
            SessionResults::of(&Report::of(&SessionRecord::read(&found)?), "")
        }
    };
    let text = table(&results, &verdicts(&results), width(&console::Term::stdout()));
    Ok(write!(stdout(), "{text}")?)
}
