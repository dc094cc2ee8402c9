//! The configuration file. Each flag has a key, and the parser of the flag reads the key's value.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::rc::Rc;

use clap::{Arg, Command};
use drover_lab::document::{Fault, Faults, KeyEntry, Location, Node, SourceText, Type, Value};
use drover_server::{HostPattern, read_again};

use super::flag_values::{
    FlagOrigin, FlagValueKind, NO_SETTINGS, Set, command, is_path, is_setting, name, word,
};
use crate::cli::mistake;
use crate::cli::serve::hosts::{self, HOST, HostFlag};

/// The message for a host that is no table.
const NO_HOST: &str = "a host is a table in two brackets: [[host]], and beneath it name = \"www.example.org\" and root = \"www\"";

/// Flags that every command has. They are no keys.
const OF_EVERY_COMMAND: [&str; 2] = ["verbose", "help"];

/// Reads the file at `path`: the settings in the order of the file.
///
/// # Errors
/// All faults of the file.
pub(super) fn read(path: &Path) -> Result<Vec<Set>, Faults> {
    let name = path.display().to_string();
    match read_again(path) {
        Ok(text) => parse(name, text, path.parent().unwrap_or(Path::new(""))),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            Err(Faults(vec![Fault { file: name, line: 1, column: 1, message }]))
        }
    }
}

/// Reads the `text` of a file. Relative paths in it begin at `folder`.
pub(super) fn parse(name: String, text: String, folder: &Path) -> Result<Vec<Set>, Faults> {
    let root = Node::parse(&Rc::new(SourceText { name, text })).map_err(Faults::new)?;
    let reader = Reader { command: command(), folder, sets: Vec::new(), faults: Vec::new() };
    reader.all(&root).map_err(Faults::new)
}

struct Reader<'r> {
    command: Command,
    folder: &'r Path,
    sets: Vec<Set>,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    /// What all keys of a table set.
    fn all(mut self, table: &Node) -> Result<Vec<Set>, Vec<Fault>> {
        for (key, entry) in table.entries() {
            self.key(key, entry);
        }
        if self.faults.is_empty() { Ok(self.sets) } else { Err(self.faults) }
    }

    fn key(&mut self, key: &str, entry: &KeyEntry) {
        let command = std::mem::take(&mut self.command);
        match flag_of(&command, key) {
            Some(flag) => self.flag(&command, flag, key, entry),
            None => self.faults.push(entry.key.fault(unknown(&command, key))),
        }
        self.command = command;
    }

    /// Reads the value of a key whose flag is known.
    fn flag(&mut self, command: &Command, flag: &Arg, key: &str, entry: &KeyEntry) {
        let origin = origin(&entry.key);
        if let Some(before) = self.sets.iter().find(|set| set.name == name(flag)) {
            let message = format!(
                "'{key}' is another name of '{}', which is at {}",
                before.name, before.origin
            );
            return self.faults.push(entry.key.fault(message));
        }
        let values = self.values(command, flag, key, &entry.node);
        let (values, origins) = values.into_iter().unzip();
        self.sets.push(Set { name: name(flag).to_owned(), values, origin, origins });
    }

    /// The values of a key, in the form of a command line, with the place of each. Values with faults are missing.
    fn values(
        &mut self,
        command: &Command,
        flag: &Arg,
        key: &str,
        node: &Node,
    ) -> Vec<(OsString, FlagOrigin)> {
        let kind = FlagValueKind::of(flag);
        if is_taken_away(command, flag, node) {
            return vec![(OsString::new(), origin(&node.place))];
        }
        let items = match &node.value {
            Value::Table(_) if name(flag) == HOST => {
                self.faults.push(node.place.fault(NO_HOST));
                return Vec::new();
            }
            Value::List(items) if kind == FlagValueKind::List && items.is_empty() => {
                let message = format!("'{key}' is empty: leave the key out, or name a value");
                self.faults.push(node.place.fault(message));
                return Vec::new();
            }
            Value::List(items) if kind == FlagValueKind::List => &items[..],
            _ => std::slice::from_ref(node),
        };
        let values = items.iter().filter_map(|item| {
            let read = match &item.value {
                Value::Table(_) if name(flag) == HOST => self.host(item),
                _ if name(flag) == HOST => Err(vec![item.place.fault(NO_HOST)]),
                _ => self
                    .value(command, flag, key, item)
                    .map_err(|message| vec![item.place.fault(message)]),
            };
            let value = read.map_err(|faults| self.faults.extend(faults)).ok()?;
            Some((value, origin(&item.place)))
        });
        values.collect()
    }

    /// The value of `--host` for a table `[[host]]`, whose keys are the flags that a host may have of its own.
    fn host(&self, table: &Node) -> Result<OsString, Vec<Fault>> {
        let command = hosts::command();
        let reader = Reader { command, folder: self.folder, sets: Vec::new(), faults: Vec::new() };
        let sets = reader.all(table)?.into_iter().map(|set| (set.name, set.values)).collect();
        let value = HostFlag::of_table(sets).and_then(|value| {
            HostFlag::parse(&value)?;
            Ok(value)
        });
        value.map(OsString::from).map_err(|message| vec![table.place.fault(message)])
    }

    /// One value in the form of a command line.
    fn value(
        &self,
        command: &Command,
        flag: &Arg,
        key: &str,
        node: &Node,
    ) -> Result<OsString, String> {
        let kind = FlagValueKind::of(flag);
        let text = match &node.value {
            Value::Bool(whether) => whether.to_string(),
            _ if kind == FlagValueKind::Switch => {
                return Err(format!("'{key}' is true or false, not {}", node.kind().words()));
            }
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Number(number) => number.to_string(),
            Value::List(_) if kind != FlagValueKind::List => {
                return Err(format!("'{key}' takes one value, not a list"));
            }
            Value::Date | Value::List(_) | Value::Table(_) => {
                return Err(no_value(key, node.kind()));
            }
        };
        if kind == FlagValueKind::Switch {
            return Ok(text.into());
        }
        // '-' is standard output, and no name.
        let value = match is_path(flag) && !text.is_empty() && text != "-" {
            true => self.folder.join(text).into_os_string(),
            false => text.into(),
        };
        accepted(command, kind, name(flag), &value)?;
        Ok(value)
    }
}

/// Where a setting stands.
fn origin(place: &Location) -> FlagOrigin {
    let (line, column) = place.line_and_column();
    FlagOrigin::File { name: place.source.name.clone(), line, column }
}

/// Whether the value says that a host is without what the flag sets for all: "", or a list of nothing.
fn is_taken_away(command: &Command, flag: &Arg, node: &Node) -> bool {
    let is_empty = match &node.value {
        Value::Text(text) => text.is_empty(),
        Value::List(items) => items.is_empty(),
        _ => false,
    };
    is_empty && command.get_name() == HOST && hosts::can_be_taken_away(flag)
}

fn no_value(key: &str, kind: Type) -> String {
    format!("'{key}' takes a value, as in {key} = \"…\", not {}", kind.words())
}

/// Whether the flag takes the value. If not: what the flag's parser says.
fn accepted(
    command: &Command,
    kind: FlagValueKind,
    name: &str,
    value: &OsStr,
) -> Result<(), String> {
    if (command.get_name(), name) == (HOST, hosts::NAME) {
        // It is no flag of its own.
        return value.to_string_lossy().parse::<HostPattern>().map(drop);
    }
    let words = [OsString::from("serve"), word(kind, name, value)];
    let tried = command.clone().try_get_matches_from(words);
    tried.map(drop).map_err(|error| mistake::in_words(&error, command))
}

/// The flag that a key sets.
fn flag_of<'c>(command: &'c Command, key: &str) -> Option<&'c Arg> {
    let has_name = |flag: &&Arg| {
        name(flag) == key || flag.get_all_aliases().is_some_and(|names| names.contains(&key))
    };
    command.get_arguments().filter(|flag| is_setting(flag)).find(has_name)
}

/// The message for a key that sets no flag.
fn unknown(command: &Command, key: &str) -> String {
    if NO_SETTINGS.contains(&key) || OF_EVERY_COMMAND.contains(&key) {
        return format!(
            "'{key}' is for the command line: a file has what every start of the server is to have"
        );
    }
    let known: Vec<&str> =
        command.get_arguments().filter(|flag| is_setting(flag)).map(name).collect();
    if command.get_name() == HOST && flag_of(&self::command(), key).is_some() {
        return format!("'{key}' is for all hosts: it stands above the first [[{HOST}]]");
    }
    match mistake::key_hint(command, key, known) {
        Some(hint) => format!("there is no key '{key}'; {hint}"),
        None if command.get_name() == HOST => {
            format!(
                "there is no key '{key}': a host has a name, a root, and flags about files and responses"
            )
        }
        None => format!("there is no key '{key}': keys are the flags of 'drover serve --help'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, Vec<OsString>)>, Vec<String>> {
        match parse("f.toml".to_owned(), text.to_owned(), Path::new("/etc/drover")) {
            Ok(sets) => Ok(sets.into_iter().map(|set| (set.name, set.values)).collect()),
            Err(faults) => Err(faults.0.iter().map(ToString::to_string).collect()),
        }
    }

    #[track_caller]
    fn sets(text: &str, name: &str, values: &[&str]) {
        let values: Vec<OsString> = values.iter().map(Into::into).collect();
        assert_eq!(read(text), Ok(vec![(name.to_owned(), values)]), "{text}");
    }

    #[test]
    fn a_key_has_the_values_of_its_flag() {
        sets("listen = ['127.0.0.1:8080', 8081]", "listen", &["127.0.0.1:8080", "8081"]);
        sets("listen = 8080", "listen", &["8080"]);
        sets("port = ':80'", "listen", &[":80"]);
        sets("reply-size = '4K'", "response-size", &["4K"]);
        sets("workers = 4", "workers", &["4"]);
        sets("workers = '4'", "workers", &["4"]);
        sets("grace = 0.5", "grace", &["0.5"]);
        sets("pin = true", "pin", &["true"]);
        sets("pin = false", "pin", &["false"]);
        sets("cache = '64M'", "cache", &["64M"]);
    }

    #[test]
    fn relative_paths_begin_at_the_folder_of_the_file() {
        sets("root = 'public'", "root", &["/etc/drover/public"]);
        sets("root = '/srv'", "root", &["/srv"]);
        sets("counters = 'c.json'", "counters", &["/etc/drover/c.json"]);
        sets("access-log = 'log'", "access-log", &["/etc/drover/log"]);
        sets("access-log = '-'", "access-log", &["-"]);
        // Only values that are paths are joined to the folder.
        sets("listen = 'localhost:80'", "listen", &["localhost:80"]);
    }

    #[track_caller]
    fn says(text: &str, expected: &[&str]) {
        let faults = read(text).unwrap_err();
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, words) in faults.iter().zip(expected) {
            assert!(words.split('|').all(|word| fault.contains(word)), "{words}: {fault}");
        }
    }

    #[test]
    fn every_fault_of_a_file_is_told_with_its_place() {
        says(
            "worker = 3\nlisten = ['x', 80, 'y']\npin = 1\n\n[cache]\nsize = 3\n",
            &[
                "f.toml:1:1: |'worker'|nearest is 'workers'",
                "f.toml:2:11: |'x' for '--listen|HOST:PORT",
                "f.toml:2:20: |'y' for '--listen",
                "f.toml:3:7: |true or false, not a whole number",
                "f.toml:5:1: |'cache' takes a value|not a table",
            ],
        );
    }

    #[test]
    fn a_host_is_a_table_with_flags_of_its_own() {
        sets(
            "[[host]]\nname = 'a'\nroot = 'my a'\nlisting = true\nheader = ['*.html A: b', '* C: d']\n\
             [[host]]\nname = ['b', '*.b']\nroot = '/srv/b'\nauth = 'users'",
            "host",
            &[
                "'a=/etc/drover/my a' '--listing=true' '--header=*.html A: b' '--header=* C: d'",
                "'b,*.b=/srv/b' '--auth=/etc/drover/users'",
            ],
        );
        says(
            "[[host]]\nname = 'a b'\nlisitng = true\nworkers = 2\nlisting = 3\n[[host]]\nname = 'a'\n",
            &[
                "f.toml:2:8: |'a b'|no name of a host",
                "f.toml:3:1: |'lisitng'|nearest is 'listing'",
                "f.toml:4:1: |'workers' is for all hosts",
                "f.toml:5:11: |listing",
                "f.toml:6:1: |needs the key 'root'",
            ],
        );
        sets(
            "[[host]]\nname = 'a'\nroot = '/srv'\nauth = ''\nfallback = ''\nheader = []",
            "host",
            &["'a=/srv' '--auth=' '--fallback=' '--header='"],
        );
        says("host = 'a=b'", &["f.toml:1:8: |[[host]]"]);
        says("[host]\nname = 'a'\nroot = '/srv'", &["f.toml:1:1: |[[host]]"]);
        says(
            "[[host]]\nroot = '/srv'\nname = 'a,b'\nsymlinks = ''",
            &["f.toml:3:8: 'a,b' is no name|[\"a.test\", \"b.test\"]", "f.toml:4:12: |--symlinks"],
        );
    }

    #[test]
    fn a_wrong_value_is_answered_by_the_flag() {
        says("workers = 0", &["f.toml:1:11: |number above 0, or auto"]);
        says("workers = true", &["'true' for '--workers"]);
        says("dispatch = 'kqueue'", &["--dispatch|usable here are auto"]);
        says("read-threads = 4096", &["1..=1024"]);
        says("workers = [1]", &["takes one value, not a list"]);
        says("listen = []", &["empty"]);
        says("listen = [[80]]", &["takes a value|not a list"]);
        says("grace = 2026-01-01", &["not a date"]);
        says("port = 80\nlisten = 81", &["f.toml:2:1: |'listen', which is at f.toml:1"]);
        says("a = [1", &["f.toml:1:5: |no end"]);
    }

    /// Neither the flags that say what to do with a file, nor the flag that makes a process a worker.
    #[test]
    fn what_makes_no_sense_in_a_file_is_no_key() {
        for key in ["config", "check", "explain", "verbose", "help"] {
            says(&format!("{key} = true"), &["is for the command line"]);
        }
        let worker = drover_server::WORKER_FLAG.trim_start_matches('-');
        let faults = read(&format!("{worker} = 'x'\nas-work = 'x'\n")).unwrap_err();
        assert!(
            faults
                .iter()
                .all(|it| it.contains("no key") && !it.contains(&format!("nearest is '{worker}'")))
        );
        says("accept_batch = 3", &["nearest is 'accept-batch'"]);
    }

    /// Directives of nginx, for example.
    #[test]
    fn a_key_of_another_server_is_answered_with_ours() {
        says("autoindex = true", &["f.toml:1:1: |'autoindex'; use --listing"]);
        says("worker_processes = 2", &["use --workers N"]);
        says("[[host]]\nname = 'a'\nroot = 'a'\ntry_files = 'x'", &["use --fallback"]);
        says("bindings = 1", &["no key 'bindings': keys are the flags of 'drover serve --help'"]);
    }
}
