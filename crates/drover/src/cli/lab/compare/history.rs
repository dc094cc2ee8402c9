//! `drover lab compare --history`: adds sessions to a history, and shows what has changed in it.

use std::io::Write;
use std::path::Path;

use drover_lab::compare::history::{self, History, HistoryEntry, Since};
use drover_lab::record::SessionRecord;
use drover_usage::UsageError;

use super::{Args, check_metrics, judge, write_json};
use crate::cli::stdout::stdout;

/// Adds these sessions to the file, and shows all that it has.
pub(super) fn run(args: &Args, file: &Path, sessions: &[SessionRecord]) -> anyhow::Result<()> {
    let named: Vec<HistoryEntry> = sessions
        .iter()
        .map(|session| HistoryEntry::of(session).map_err(UsageError::new))
        .collect::<Result<_, _>>()?;
    if named.is_empty() && !file.exists() {
        let file = file.display();
        let message = format!("there is no history '{file}': name the sessions that begin it");
        return Err(UsageError::new(message).into());
    }
    let entries = match named.is_empty() {
        true => history::read(file)?,
        false => history::add(file, &named)?,
    };
    check_metrics(&history::metrics(&entries), &args.metric)?;
    let history = History::of(entries, &args.metric);
    write!(stdout(), "{}", history::table(&history, args.all))?;
    write_json(args, &history)?;
    let since = args.since.unwrap_or(Since::ALWAYS);
    let metrics: Vec<&str> = history.metrics().into_iter().collect();
    judge(&args.fail_if, &metrics, |condition| history.met(condition, since))
}
