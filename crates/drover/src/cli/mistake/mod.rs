//! Mistakes on the command line, reported in one line that ends with the help that explains the right way.
//!
//! A wrong hint is worse than none. There are three kinds: what a word of another tool is here ([`other_tools`]), a
//! name that differs by a typing error ([`near()`]), and the command that has the flag.

mod near;
mod other_tools;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use near::near;
use other_tools::Face;
pub(super) use other_tools::key_hint;

/// What clap says of the command line `args` as one line (clap has paragraphs: what is wrong, possible values, a
/// tip). A hint names only flags that exist and that help shows: flags of the command itself, or of the command that
/// has a flag of that name.
pub(super) fn in_one_line(error: &clap::Error, mut program: Command, args: &[OsString]) -> String {
    // Gives each command the flags that all commands have.
    program.build();
    let (command, path) = command_of(&program, args);
    let face = Face::of(&path);
    let hint = one_dash(command, face, args)
        .or_else(|| hint(error, command, face))
        .or_else(|| elsewhere(error, &program));
    format!("{}; see '{path} --help'", joined(sentences(error).into_iter().chain(hint)))
}

/// An error of one of the flags of `command` as one line, wherever the flag was written: on a command line or in a
/// file. `command` has flags of a server.
pub(super) fn in_words(error: &clap::Error, command: &Command) -> String {
    joined(sentences(error).into_iter().chain(hint(error, command, Face::Serve)))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("; ").replace(":; ", ": ")
}

/// The sentences of an error, without usage. Of clap's tips only the one about `--` is no guess.
fn sentences(error: &clap::Error) -> Vec<String> {
    let is_guess = |line: &str| line.starts_with("tip: ") && !line.starts_with("tip: subcommand '");
    let rendered = error.render().to_string();
    rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .filter(|line| !is_guess(line))
        .map(|line| line.trim_start_matches("error: ").trim_start_matches("tip: ").to_owned())
        .collect()
}

/// What the unknown flag, subcommand or value is probably meant to be.
fn hint(error: &clap::Error, command: &Command, face: Face) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let word = text(error, ContextKind::InvalidArg)?;
            other_tools::hint(command, face, word).or_else(|| {
                let name = near(word.strip_prefix("--")?, names_of(command))?;
                Some(format!("a similar argument exists: '--{name}'"))
            })
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(error, ContextKind::InvalidSubcommand)?;
            other_tools::hint(command, face, word).or_else(|| {
                let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
                let name = near(word, shown.map(Command::get_name))?;
                Some(format!("a similar subcommand exists: '{name}'"))
            })
        }
        ErrorKind::InvalidValue => {
            let word = text(error, ContextKind::InvalidValue)?;
            let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue) else {
                return None;
            };
            let value = near(word, valid.iter().map(String::as_str))?;
            Some(format!("a similar value exists: '{value}'"))
        }
        _ => None,
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

/// A long flag with one dash, as tools that are written in Go have it: clap takes `-rate` for `-r` with the value `ate`.
fn one_dash(command: &Command, face: Face, args: &[OsString]) -> Option<String> {
    let words = args.iter().skip(1).filter_map(|word| word.to_str());
    let words = words.take_while(|word| *word != "--");
    words.filter(|word| word.len() > 2 && !word.starts_with("--")).find_map(|word| {
        let name = word.strip_prefix('-')?.split('=').next()?;
        if names_of(command).any(|it| it == name) {
            return Some(format!("'-{name}' has two dashes here: '--{name}'"));
        }
        let hint = other_tools::hint(command, face, &format!("--{name}"))?;
        Some(format!("'-{name}': {hint}"))
    })
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

/// Which other commands have the unknown flag.
fn elsewhere(error: &clap::Error, program: &Command) -> Option<String> {
    let name = text(error, ContextKind::InvalidArg)?.strip_prefix("--")?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let mut owners = Vec::new();
    let mut commands = vec![(program.get_name().to_owned(), program)];
    while let Some((path, command)) = commands.pop() {
        if names_of(command).any(|it| it == name) {
            owners.push(format!("'{path}'"));
        }
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        commands.extend(below.map(|below| (format!("{path} {}", below.get_name()), below)));
    }
    owners.sort();
    (!owners.is_empty()).then(|| format!("it is a flag of {}", owners.join(" and ")))
}

/// The long names of the flags that the help of a command shows, other names included.
fn names_of(command: &Command) -> impl Iterator<Item = &str> {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    shown.flat_map(|flag: &Arg| {
        flag.get_long().into_iter().chain(flag.get_visible_aliases().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn message(command: &str) -> String {
        let args: Vec<OsString> =
            shlex::split(command).unwrap().into_iter().map(OsString::from).collect();
        let error = Cli::try_parse_from(&args).unwrap_err();
        in_one_line(&error, Cli::command(), &args)
    }

    #[track_caller]
    fn says(command: &str, expected: &str) {
        assert_eq!(message(command), expected);
    }

    #[test]
    fn a_mistake_is_one_line_with_the_flag_that_is_meant_and_where_it_is_explained() {
        says(
            "drover labs",
            "unrecognized subcommand 'labs'; a similar subcommand exists: 'lab'; see 'drover --help'",
        );
        says(
            "drover -v serve --worker 3",
            "unexpected argument '--worker' found; a similar argument exists: '--workers'; \
             see 'drover serve --help'",
        );
        says(
            "drover serve --fail-if x",
            "unexpected argument '--fail-if' found; it is a flag of 'drover lab compare'; \
             see 'drover serve --help'",
        );
        says(
            "drover lab --preset quick",
            "unexpected argument '--preset' found; it is a flag of 'drover lab run'; \
             see 'drover lab --help'",
        );
        says(
            "drover lab run --repeats 0",
            "invalid value '0' for '--repeats <N>': number would be zero for non-zero type; \
             see 'drover lab run --help'",
        );
    }

    /// The tip neither names a flag that help hides, nor says how to pass the mistake as a value.
    #[test]
    fn no_tip_is_better_than_a_wrong_one() {
        says(
            "drover serve --as-work x",
            "unexpected argument '--as-work' found; see 'drover serve --help'",
        );
        says("drover serve -x", "unexpected argument '-x' found; see 'drover serve --help'");
    }

    /// Words of other tools, each on the command that does the same.
    #[test]
    fn a_word_of_another_tool_is_answered_with_the_flag_that_does_the_same() {
        for (command, hint) in [
            ("drover serve --spa", "'--spa' found; use --fallback index.html; see"),
            ("drover serve --https", "'--https' found; use --tls self-signed, or --tls-cert FILE"),
            ("drover serve --bind 0.0.0.0", "'--bind' found; use --listen ADDR:PORT; see"),
            (
                "drover serve --gzip",
                "'--gzip' found; use --precompressed after 'drover compress DIR'",
            ),
            ("drover serve --threads=4", "'--threads' found; use --workers N; see 'drover serve"),
            (
                "drover load http://h/ --https",
                "'--https' found; use an https:// URL; see 'drover load --help'",
            ),
            (
                "drover load http://h/ --rps=5",
                "'--rps' found; use --rate R; see 'drover load --help'",
            ),
            ("drover load http://h/ -R1000", "'-R' found; use --rate R; see 'drover load --help'"),
            ("drover load http://h/ --workers 5", "'--workers' found; use --connections N; see"),
            ("drover load http://h/ --script x.lua", "scripts are not supported; --urls, --curl"),
            (
                "drover idle http://h/ --vus 5",
                "'--vus' found; use --connections N; see 'drover idle",
            ),
            (
                "drover lab run --runs 5",
                "'--runs' found; use --repeats N; see 'drover lab run --help'",
            ),
            ("drover man", "'man'; there is no manual page: each command has --help; see"),
            ("drover attack", "'attack'; load is sent by 'drover load'; see 'drover --help'"),
        ] {
            let message = message(command);
            assert!(message.contains(hint), "{command}: {message}");
        }
    }

    /// Go's tools write long flags with one dash.
    #[test]
    fn a_long_flag_with_one_dash_is_recognised() {
        for (command, hint) in [
            ("drover load -rate 100 http://h/", "; '-rate' has two dashes here: '--rate'; see"),
            (
                "drover load -duration=5s http://h/",
                "; '-duration' has two dashes here: '--duration'",
            ),
            ("drover load -targets=f", "; '-targets': use --urls FILE; see 'drover load --help'"),
            ("drover serve -port 80", "; '-port' has two dashes here: '--port'; see"),
        ] {
            let message = message(command);
            assert!(message.contains(hint), "{command}: {message}");
        }
        says(
            "drover load -n10x http://h/",
            "invalid value '10x' for '--requests <N>': write a number from 1 to 18446744073709551615, as 500 or 10k; \
             see 'drover load --help'",
        );
    }

    /// The error ends with the help, and nothing is guessed in between.
    #[test]
    fn a_word_that_is_far_from_all_names_gets_no_hint() {
        for word in [
            "--frobnicate",
            "--tips",
            "--spin-the-wheel",
            "--xlisten",
            "--dispose",
            "--mapping",
            "--q",
            "-q",
        ] {
            for command in ["serve", "load", "lab run", "compress", "tune", "idle"] {
                says(
                    &format!("drover {command} {word}"),
                    &format!("unexpected argument '{word}' found; see 'drover {command} --help'"),
                );
            }
        }
        for word in ["mech", "labour", "serenade", "ludo", "tundra", "dole", "m"] {
            says(
                &format!("drover {word}"),
                &format!("unrecognized subcommand '{word}'; see 'drover --help'"),
            );
        }
        says(
            "drover serve --symlinks out",
            "invalid value 'out' for '--symlinks <WHICH>'; [possible values: never, inside, any]; \
             see 'drover serve --help'",
        );
    }

    #[test]
    fn a_flag_of_another_command_is_named_by_each_of_its_names() {
        says(
            "drover --port 80",
            "unexpected argument '--port' found; it is a flag of 'drover serve'; see 'drover --help'",
        );
    }
}
