//! `drover lab compare`: saved sessions side by side, or all sessions of a history.

mod history;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use drover_lab::compare::history::Since;
use drover_lab::compare::{self, Condition, SessionComparison};
use drover_lab::old_names;
use drover_lab::record::SessionRecord;

use crate::cli::stdout::stdout;
use drover_usage::UsageError;

/// How many cells the message of a condition names.
const NAMED: usize = 5;

/// Flags of `drover lab compare`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session that the other sessions are compared with
    ///
    /// A session's folder, or a folder of several sessions, which stands for the newest session
    #[arg(value_name = "BASE", required_unless_present = "history")]
    base: Option<PathBuf>,

    /// The sessions to compare with BASE, of other kernels, machines or program versions
    #[arg(value_name = "OTHER", required_unless_present = "history")]
    others: Vec<PathBuf>,

    /// Add the named sessions to the history in FILE, and show in which sessions anything has changed
    ///
    /// FILE is created if missing. Without sessions, the command only shows the history
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// With --history and --fail-if: ignore changes before this day or time (UTC), as in 2026-11-23
    #[arg(long, value_name = "TIME", requires = "history")]
    since: Option<Since>,

    /// Compare by these metrics only [default: the metrics of the experiments' claims and figures]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = metric)]
    metric: Vec<String>,

    /// Show every ratio, also if equal, open or not comparable; show every session of a history
    #[arg(long)]
    all: bool,

    /// Exit with 1 if a cell meets this condition on OTHER ÷ BASE of a metric, as in 'response-rate <
    /// 0.95'
    ///
    /// A cell meets the condition if the whole interval of the ratio does. In a history, the ratio is
    /// the newest level ÷ the level before. The flag may be given several times
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,

    /// Write the whole comparison to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `drover lab compare`.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folders = args.base.iter().chain(&args.others);
    let sessions: Vec<SessionRecord> =
        folders.map(|folder| read(folder)).collect::<anyhow::Result<_>>()?;
    match (&args.history, &sessions[..]) {
        (Some(file), sessions) => history::run(args, file, sessions),
        (None, [base, others @ ..]) => compare(args, base, others),
        (None, []) => bail!(UsageError::new("name the sessions: BASE, and those beside it")),
    }
}

/// Compares sessions with the first.
fn compare(args: &Args, base: &SessionRecord, others: &[SessionRecord]) -> anyhow::Result<()> {
    let comparison = SessionComparison::of(base, others, &args.metric);
    check_experiments(&comparison)?;
    check_metrics(&compare::metrics(base, others), &args.metric)?;
    write!(stdout(), "{}", compare::table(&comparison, args.all))?;
    write_json(args, &comparison)?;
    let compared: Vec<&str> = comparison.compared_metrics().into_iter().collect();
    judge(&args.fail_if, &compared, |condition| condition.met_by(&comparison))
}

/// Writes all of a result, where the user wants it.
fn write_json(args: &Args, result: &impl serde::Serialize) -> anyhow::Result<()> {
    let Some(file) = &args.json else { return Ok(()) };
    let mut text = serde_json::to_vec_pretty(result)?;
    text.push(b'\n');
    std::fs::write(file, text).with_context(|| format!("--json {}", file.display()))
}

/// Reads the session of a folder.
fn read(folder: &Path) -> anyhow::Result<SessionRecord> {
    let session = drover_lab::session::newest(folder).ok_or_else(|| {
        UsageError::new(format!(
            "there is no session in '{}': sessions are folders that 'drover lab' has written; servers are \
             compared by 'drover lab versus'",
            folder.display()
        ))
    })?;
    Ok(SessionRecord::unjudged(&session)?)
}

fn metric(name: &str) -> Result<String, std::convert::Infallible> {
    Ok(old_names::metric(name).to_owned())
}

fn check_metrics(known: &BTreeSet<String>, chosen: &[String]) -> Result<(), UsageError> {
    match chosen.iter().find(|name| !known.contains(*name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let message = format!(
                "--metric: no experiment of these sessions has the metric '{name}'; those that there \
                 are: {}",
                listed(&known)
            );
            Err(UsageError::new(message))
        }
    }
}

fn check_experiments(comparison: &SessionComparison) -> Result<(), UsageError> {
    match comparison.others.iter().find(|other| other.experiments.is_empty()) {
        None => Ok(()),
        Some(other) => Err(UsageError::new(format!(
            "{} and {} have no experiment in common: run the same ones",
            comparison.base.folder, other.session.folder
        ))),
    }
}

/// Fails if a condition is met in any cell; `met_by` has the cells in words.
fn judge(
    conditions: &[Condition],
    compared: &[&str],
    met_by: impl Fn(&Condition) -> Vec<String>,
) -> anyhow::Result<()> {
    for condition in conditions {
        if !compared.contains(&condition.metric()) {
            bail!(UsageError::new(format!(
                "--fail-if: no compared cell has the metric '{}'; those that there are: {}",
                condition.metric(),
                listed(compared)
            )));
        }
    }
    let told = |condition| told(condition, &met_by(condition));
    let met: Vec<String> = conditions.iter().filter_map(told).collect();
    ensure!(met.is_empty(), "{}", met.join("; "));
    Ok(())
}

/// The cells in which a condition is met, in words; `None`: it is met in no cell.
fn told(condition: &Condition, cells: &[String]) -> Option<String> {
    let more = match cells.len().checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(", and {more} more"),
    };
    let named = cells.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    (!cells.is_empty()).then(|| format!("--fail-if '{condition}': {named}{more}"))
}

/// The names, or that there is none.
fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
