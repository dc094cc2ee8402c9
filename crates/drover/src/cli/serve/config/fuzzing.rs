//! What the targets of `fuzz/` look into: what a configuration sets, and what `--check` prints of it. It is compiled for them
//! alone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use drover_lab::document::{Node, SourceText};

use super::file;
use super::flag_values::{FlagValue, FlagValues, command, is_path, name};
use super::table::{SettingNotes, table};
use crate::cli::serve::hosts::{self, HOST, HostFlag};

/// Keys whose values the machine is asked for: names of hosts and of users, and what the kernel offers.
const ASKS_THE_MACHINE: [&str; 7] =
    ["listen", "port", "admin", "user", "dispatch", "accept", "files"];

/// A configuration.
#[derive(Debug)]
pub struct ReadConfig {
    /// What each flag is set to.
    pub values: Vec<(String, Vec<String>)>,
    /// What `--check` prints, but for what the machine is asked for; or why the flags do not go together.
    pub printed: Result<String, String>,
}

/// The configuration of a file of this name and text in `/etc/drover`; `None`: the machine would have to be asked.
///
/// # Errors
/// The faults of the file, and the place of each: its line and column.
pub fn of_file(name: &str, text: &str) -> Option<Result<ReadConfig, Vec<(usize, usize, String)>>> {
    let source = Rc::new(SourceText { name: name.to_owned(), text: text.to_owned() });
    if let Ok(root) = Node::parse(&source)
        && root.entries().any(|(key, _)| ASKS_THE_MACHINE.contains(&key.as_str()))
    {
        return None;
    }
    let sets = match file::parse(name.to_owned(), text.to_owned(), Path::new("/etc/drover")) {
        Ok(sets) => sets,
        Err(faults) => {
            let faults = faults.0.into_iter().map(|it| (it.line, it.column, it.message));
            return Some(Err(faults.collect()));
        }
    };
    let mut flags = defaults();
    sets.into_iter().for_each(|set| flags.fill_in_each(set));
    Some(Ok(ReadConfig::of(&flags)))
}

/// The configuration of a command line with one `--host`.
///
/// # Errors
/// The value is wrong.
pub fn of_host(value: &str) -> Result<ReadConfig, String> {
    HostFlag::parse(value)?;
    let words = ["serve".to_owned(), format!("--{HOST}={value}")];
    let matches = command().try_get_matches_from(words).map_err(|error| error.to_string())?;
    Ok(ReadConfig::of(&FlagValues::of(&matches)))
}

fn defaults() -> FlagValues {
    FlagValues::of(&command().get_matches_from(["serve"]))
}

impl ReadConfig {
    fn of(flags: &FlagValues) -> ReadConfig {
        let printed = match flags.parse() {
            Ok(_) => {
                let mut shown = flags.clone();
                shown.all.retain(|flag| !ASKS_THE_MACHINE.contains(&flag.name.as_str()));
                Ok(table(&shown, &SettingNotes::new()))
            }
            Err(error) => Err(error.to_string()),
        };
        let values = flags.all.iter().map(|flag| (flag.name.clone(), plain(flag)));
        ReadConfig { values: values.collect(), printed }
    }
}

/// The values of a flag; those that mean the same are the same.
fn plain(flag: &FlagValue) -> Vec<String> {
    let path = |value: &OsString| {
        let absolute = std::path::absolute(value).unwrap_or_else(|_| value.into());
        absolute.components().collect::<PathBuf>()
    };
    let value = |value: &OsString| match value.to_str() {
        Some(text) if flag.name == HOST => {
            let host = HostFlag::parse(text).expect("it was read before");
            let command = hosts::command();
            let own = command.get_arguments().filter_map(|flag| {
                let raw = host.own.get_raw(flag.get_id().as_str())?;
                let raw = raw
                    .map(|it| if is_path(flag) { path(&it.into()).into() } else { it.to_owned() });
                Some((name(flag).to_owned(), raw.collect::<Vec<OsString>>()))
            });
            let own: Vec<_> = own.collect();
            let mut without = host.without.clone();
            without.sort();
            let names: Vec<String> = host.names.iter().map(ToString::to_string).collect();
            format!("{names:?} {:?} {own:?} {without:?}", path(&host.root.into()))
        }
        _ if flag.is_path => format!("{:?}", path(value)),
        _ => format!("{value:?}"),
    };
    flag.values.iter().map(value).collect()
}
