//! Mistakes on the command line, reported in one line that ends with the help that explains the right way.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

/// What clap says of the command line `args` as one line (clap has paragraphs: what is wrong, possible values, a
/// tip). A tip names only flags that exist and that help shows: flags of the command itself, or of the command that
/// has a flag of that name.
pub(super) fn in_one_line(error: &clap::Error, program: &Command, args: &[OsString]) -> String {
    let (command, path) = command_of(program, args);
    let parts = parts(error, command).into_iter().chain(elsewhere(error, program));
    format!("{}; see '{path} --help'", joined(parts))
}

/// An error of one of the flags of `command` as one line, wherever the flag was written: on a command line or in a
/// file.
pub(super) fn in_words(error: &clap::Error, command: &Command) -> String {
    joined(parts(error, command).into_iter())
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("; ").replace(":; ", ": ")
}

/// The sentences of an error, without usage and without misleading tips.
fn parts(error: &clap::Error, command: &Command) -> Vec<String> {
    let hidden: Vec<String> =
        command.get_arguments().filter(|flag| flag.is_hide_set()).filter_map(quoted).collect();
    let misleads = |line: &str| {
        line.starts_with("tip: to pass '")
            || (line.starts_with("tip: ") && hidden.iter().any(|flag| line.contains(flag)))
    };
    let rendered = error.render().to_string();
    rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .filter(|line| !misleads(line))
        .map(|line| line.trim_start_matches("error: ").trim_start_matches("tip: ").to_owned())
        .collect()
}

/// The subcommand that `args` name, and the words that lead to it.
fn command_of<'c>(program: &'c Command, args: &[OsString]) -> (&'c Command, String) {
    let words = args.iter().skip(1).filter(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let (mut command, mut path) = (program, program.get_name().to_owned());
    for word in words {
        let Some(next) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            break;
        };
        command = next;
        path = format!("{path} {}", next.get_name());
    }
    (command, path)
}

/// Which other commands have the unknown flag, unless a similar one of the command itself is meant.
fn elsewhere(error: &clap::Error, program: &Command) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.strip_prefix("--")?;
    if error.kind() != clap::error::ErrorKind::UnknownArgument
        || error.get(ContextKind::SuggestedArg).is_some()
    {
        return None;
    }
    let mut owners = Vec::new();
    let mut commands = vec![(program.get_name().to_owned(), program)];
    while let Some((path, command)) = commands.pop() {
        let has = |flag: &Arg| !flag.is_hide_set() && flag.get_long() == Some(name);
        if command.get_arguments().any(has) {
            owners.push(format!("'{path}'"));
        }
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        commands.extend(below.map(|below| (format!("{path} {}", below.get_name()), below)));
    }
    owners.sort();
    (!owners.is_empty()).then(|| format!("it is a flag of {}", owners.join(" and ")))
}

fn quoted(flag: &Arg) -> Option<String> {
    Some(format!("'--{}'", flag.get_long()?))
}
