//! A session in a terminal: the estimate, the progress, the summary, and the exit status.

pub(super) mod live;
pub(super) mod own;
mod progress;
pub(super) mod progress_file;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use drover_lab::analysis::FEWEST_ROUNDS;
use drover_lab::journal::JournalError;
use drover_lab::path_text::{escaped, utf8};
use drover_lab::process::Interrupt;
use drover_lab::report::model::Report;
use drover_lab::report::model::words::counted;
use drover_lab::report::terminal;
use drover_lab::session::{Session, SessionOutcome, SessionSettings};

use crate::cli::stdout::stdout;
use drover_usage::UsageError;
use drover_usage::duration::in_words;
use live::Live;
use progress::ProgressPrinter;

/// The folder, in the folder of all sessions, that keeps the files to be served.
const POOLS: &str = "pools";

/// The width of the summary, in columns, where the width of the terminal is unknown.
const WIDTH: usize = 80;

/// The settings of a session of this program. SIGINT, SIGTERM and SIGHUP end the session. `out` is the folder of all
/// sessions. Without `pools`, the pools are a folder in `out`.
///
/// # Errors
/// A folder, or the path of this program, that configuration files cannot name.
pub(in crate::cli) fn settings(
    out: PathBuf,
    pools: Option<PathBuf>,
    is_forced: bool,
) -> anyhow::Result<SessionSettings> {
    let drover =
        std::env::current_exe().context("cannot find the path of the drover executable")?;
    utf8(&drover).map_err(|why| UsageError::new(format!("cannot run this program: {why}")))?;
    for (flag, folder) in [("--out", Some(&out)), ("--pools", pools.as_ref())] {
        folder.map_or(Ok(()), |folder| expect_utf8(flag, folder))?;
    }
    Ok(SessionSettings {
        drover,
        pools: pools.unwrap_or_else(|| out.join(POOLS)),
        out,
        is_forced,
        interrupt: Interrupt::on_signals()?,
        guest: None,
    })
}

/// Refuses a folder of sessions whose path is not UTF-8: servers find their files by text.
///
/// # Errors
/// The flag with the path.
pub(super) fn expect_utf8(flag: &str, folder: &Path) -> anyhow::Result<()> {
    utf8(&resolved(folder)?)
        .map(drop)
        .map_err(|why| UsageError::new(format!("{flag}: {why}: use another folder")).into())
}

/// The absolute path of a folder without links, even if the folder does not exist yet.
fn resolved(folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(folder).with_context(|| escaped(folder))?;
    let there = folder.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    Ok(match there {
        Some((part, resolved)) => resolved.join(folder.strip_prefix(part)?),
        None => folder,
    })
}

/// Runs a session. Prints the estimate first, then the progress; with `live`, also tells the page the progress.
pub(super) fn conduct(
    session: Session,
    settings: &SessionSettings,
    live: Option<&Live>,
) -> anyhow::Result<SessionOutcome> {
    if !settings.is_forced {
        let differences = session.differences(&settings.drover)?;
        if !differences.is_empty() {
            return Err(UsageError::new(JournalError::Differs(differences).to_string()).into());
        }
    }
    announce(&session)?;
    let progress = ProgressPrinter::begin(session.planned().len(), session.runs(), live);
    for note in session.notes() {
        progress.line(note);
    }
    for (id, why) in session.refused() {
        progress.line(&format!("{id} cannot be run here: {why}"));
    }
    let outcome = session.run(settings, &mut |event| progress.tell(&event));
    outcome.map_err(|error| match error {
        JournalError::Io(..) => {
            anyhow::Error::from(error).context("cannot write the session (--out)")
        }
        error => error.into(),
    })
}

/// How many columns the terminal has; where it is none, as many as most have.
pub(in crate::cli::lab) fn width(term: &console::Term) -> usize {
    term.size_checked().map_or(WIDTH, |(_, columns)| columns.into())
}

/// Prints the summary of a session, and where its report is.
pub(in crate::cli) fn conclude(outcome: &SessionOutcome) -> anyhow::Result<()> {
    let mut out = stdout();
    let term = console::Term::stdout();
    let width = width(&term);
    let is_coloured = term.is_term() && console::colors_enabled();
    write!(out, "{}", terminal::summary(&Report::of(&outcome.record), width, is_coloured))?;
    Ok(writeln!(out, "Report: {}", outcome.report.display())?)
}

/// Says what will be run, and how long that may take.
fn announce(session: &Session) -> anyhow::Result<()> {
    let mut out = stdout();
    if let Some(folder) = session.resumed() {
        write!(out, "Going on with {}: ", folder.display())?;
        if session.runs() == 0 {
            return Ok(writeln!(out, "it has every run, and its report is written anew")?);
        }
    }
    let estimate = session.estimate();
    write!(
        out,
        "{}, {} ({}): about {}",
        counted(session.planned().len(), "experiment"),
        counted(session.runs(), "run"),
        session.preset(),
        in_words(estimate)
    )?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Says how many experiments certainly have too little time for a verdict, if there are any.
pub(super) fn tell_hurried(session: &Session) -> anyhow::Result<()> {
    let hurried = session.hurried();
    if hurried == 0 {
        return Ok(());
    }
    let words = format!(
        "{hurried} of {} {} less time than the {FEWEST_ROUNDS} rounds of a verdict take: set --budget; all runs \
         take about {}",
        counted(session.planned().len(), "experiment"),
        if hurried == 1 { "has" } else { "have" },
        in_words(session.estimate_of_runs())
    );
    Ok(write!(stdout(), "{}", terminal::wrapped("", 2, &words, WIDTH))?)
}

/// An error if the session failed, so that the exit status says so.
pub(in crate::cli) fn verdict(outcome: &SessionOutcome) -> anyhow::Result<()> {
    if outcome.is_interrupted {
        bail!(
            "interrupted: the report covers what was measured until then; 'drover lab run --resume {}' \
             goes on",
            outcome.folder.display()
        );
    }
    let refused = &outcome.record.session.refused;
    if !refused.is_empty() {
        let ids: Vec<&str> = refused.iter().map(|(id, _)| id.as_str()).collect();
        bail!("{} could not be run: the report says why", ids.join(", "));
    }
    if let (runs @ 1.., Some(why)) = outcome.unmeasured() {
        bail!(
            "the lab failed in {}: {why}; 'drover lab run --resume {}' tries again",
            counted(runs, "run"),
            outcome.folder.display()
        );
    }
    match outcome.failures() {
        (0, _) => Ok(()),
        (failed, runs) => bail!("{failed} of {runs} runs failed: the report says why"),
    }
}
