//! The configuration of a server: flags, and a file that sets the same flags.
//!
//! A key of the file is the long name of a flag, and the parser of that flag reads the key's value, so that nothing
//! is defined twice. A flag that the command line does not set is taken from the file, in the form of a command line.
//! The server and each of its worker processes are started from these words ([`FlagValues::words`]) and do not read
//! the file again.

mod file;
mod flag_values;
#[cfg(fuzzing)]
pub mod fuzzing;
mod table;

use clap::ArgMatches;
use clap::error::ErrorKind;
use drover_lab::document::Fault;

pub(super) use flag_values::{FlagOrigin, FlagValues};
pub(super) use table::{SettingNotes, table};

use super::flags::Args;
use crate::cli::{faults, mistake};
use drover_usage::UsageError;

/// The flags of the command line, completed by the file of `--config`.
///
/// # Errors
/// A [`UsageError`] for the faults of the file. The faults are printed on stderr, each with its place.
pub(super) fn complete(args: Args, matches: &ArgMatches) -> anyhow::Result<(Args, FlagValues)> {
    let mut flags = FlagValues::of(matches);
    let Some(path) = args.config else { return Ok(with_root(args, flags)) };
    for set in file::read(&path).map_err(|faults| refuse(&faults.0))? {
        flags.fill_in_each(set);
    }
    let parsed = flags.parse().map_err(|error| conflict(&flags, &error))?;
    if parsed.root.is_none() && parsed.root_of_all().is_some() {
        // A service begins in '/', and whatever directory a file is tried in is not what it is for.
        anyhow::bail!(UsageError::new(format!(
            "{}: no directory is named; write root = \"…\" in the file, or a directory on the command line",
            path.display()
        )));
    }
    let (check, explain) = (args.check, args.explain);
    Ok(with_root(Args { check, explain, config: Some(path), ..parsed }, flags))
}

/// The same, with the directory that is served where nobody has named one.
fn with_root(args: Args, mut flags: FlagValues) -> (Args, FlagValues) {
    if let (None, Some(root)) = (&args.root, args.root_of_all()) {
        flags.fill_in("root", vec![root.into()], FlagOrigin::Default);
    }
    (args, flags)
}

fn refuse(faults: &[Fault]) -> UsageError {
    faults::refuse(faults, "the configuration file", "it is not used")
}

/// The error for flags that do not go together. It names the place of the last key that is one of the flags.
fn conflict(flags: &FlagValues, error: &clap::Error) -> UsageError {
    let message = mistake::in_words(error, &flag_values::command());
    let named = flags.named_in(&message);
    let in_file = named.iter().filter_map(|setting| match &setting.origin {
        FlagOrigin::File { name, line, column } => Some((*line, *column, name)),
        _ => None,
    });
    match (error.kind(), in_file.max()) {
        (ErrorKind::ArgumentConflict, Some((line, column, file))) => {
            refuse(&[Fault { file: file.clone(), line, column, message }])
        }
        _ => UsageError::new(message),
    }
}
