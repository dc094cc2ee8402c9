//! The configuration of a server: flags, and a file that says the same as flags.
//!
//! A key of the file is the long name of a flag, and the parser of that flag reads its value, so that nothing
//! is defined twice. What the command line does not set is taken from the file and written as the words that a
//! command line would have; the server, and each of its worker processes, is started from these words
//! ([`FlagValues::words`]) and never looks at the file again.

mod file;
mod flag_values;
mod table;

use clap::ArgMatches;
use clap::error::ErrorKind;
use lab::document::{Fault, Faults};

pub(super) use flag_values::{FlagValues, Origin};
pub(super) use table::{Notes, table};

use super::flags::Args;
use crate::cli::{faults, mistake};
use usage::UsageError;

/// The flags of the command line, and what the file of `--config` says beside them.
///
/// # Errors
/// A [`UsageError`] for the faults of the file, which are told on stderr, each with its place.
pub(super) fn complete(args: Args, matches: &ArgMatches) -> anyhow::Result<(Args, FlagValues)> {
    let mut flags = FlagValues::of(matches);
    let Some(path) = args.config else { return Ok((args, flags)) };
    for set in file::read(&path).map_err(|faults| refuse(&faults))? {
        flags.fill_in(&set.name, set.values, set.origin);
    }
    let parsed = flags.parse().map_err(|error| conflict(&flags, &error))?;
    Ok((Args { check: args.check, ..parsed }, flags))
}

fn refuse(faults: &Faults) -> UsageError {
    faults::refuse(faults, "the configuration file", "nothing is served")
}

/// What is said of flags that do not go together, at the last key that is one of them.
fn conflict(flags: &FlagValues, error: &clap::Error) -> UsageError {
    let message = mistake::in_words(error, &flag_values::command());
    let named = flags.named_in(&message);
    let in_file = named.iter().filter_map(|setting| match &setting.origin {
        Origin::File { name, line, column } => Some((*line, *column, name)),
        _ => None,
    });
    match (error.kind(), in_file.max()) {
        (ErrorKind::ArgumentConflict, Some((line, column, file))) => {
            refuse(&Faults(vec![Fault { file: file.clone(), line, column, message }]))
        }
        _ => UsageError::new(message),
    }
}
