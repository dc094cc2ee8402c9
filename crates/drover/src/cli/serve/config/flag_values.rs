//! What each flag of `drover serve` is set to, and who has set it.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches};

use crate::cli::faults;
use crate::cli::serve::flags::Args;
use crate::cli::serve::hosts::{HOST, SiteFault, SiteFaults};
use drover_usage::printable;

/// Flags that say what to do with a configuration. They are no part of a configuration.
pub(super) const NO_SETTINGS: [&str; 3] = ["config", "check", "explain"];

/// The clap command with the flags of `drover serve`. It reads the values of a file's keys.
pub(super) fn command() -> Command {
    Args::augment_args(Command::new("serve"))
}

/// Who has set a flag. As text it is one line, whatever the file is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::serve) enum FlagOrigin {
    /// Nobody. The flag has its default, if there is a default.
    Default,
    /// The command line.
    CommandLine,
    /// `drover tune`, on that day.
    Tuned(String),
    /// The supervisor of this worker process.
    Supervisor,
    /// A configuration file; line and column count from 1.
    File { name: String, line: usize, column: usize },
}

impl fmt::Display for FlagOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlagOrigin::Default => f.write_str("default"),
            FlagOrigin::CommandLine => f.write_str("command line"),
            FlagOrigin::Tuned(on) => write!(f, "tuned on {} (drover tune)", printable(on)),
            FlagOrigin::Supervisor => f.write_str("supervisor"),
            FlagOrigin::File { name, line, .. } => write!(f, "{}:{line}", printable(name)),
        }
    }
}

/// How the value of a flag is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagValueKind {
    /// A word without a flag.
    Positional,
    /// A flag without a value.
    Switch,
    /// The flag with a value.
    One,
    /// A flag that may be repeated, with a value each time.
    List,
}

impl FlagValueKind {
    pub(super) fn of(flag: &Arg) -> FlagValueKind {
        match flag.get_action() {
            _ if flag.is_positional() => FlagValueKind::Positional,
            ArgAction::SetTrue => FlagValueKind::Switch,
            // Of a host, which may say that a switch is off.
            ArgAction::Set if flag.get_num_args().is_some_and(|it| it.min_values() == 0) => {
                FlagValueKind::Switch
            }
            ArgAction::Append => FlagValueKind::List,
            _ => FlagValueKind::One,
        }
    }
}

/// What a file sets.
#[derive(Debug)]
pub(super) struct Set {
    /// The name of the flag.
    pub(super) name: String,
    /// The values of the flag, in the form of a command line.
    pub(super) values: Vec<OsString>,
    pub(super) origin: FlagOrigin,
    /// The place of each of several values; empty: that of the key is all that there is.
    pub(super) origins: Vec<FlagOrigin>,
}

/// A flag, and what it is set to.
#[derive(Clone, Debug)]
pub(in crate::cli::serve) struct FlagValue {
    /// The long name of the flag, which is the key of a file.
    pub(super) name: String,
    pub(super) kind: FlagValueKind,
    /// The values in the form of a command line. A switch has `true` or `false`. Empty: the flag is not set.
    pub(super) values: Vec<OsString>,
    pub(super) origin: FlagOrigin,
    /// Who has set each of several values; empty: `origin` has set all.
    origins: Vec<FlagOrigin>,
    /// The group of the flag in help texts.
    pub(super) heading: Option<String>,
    /// Whether the short help shows the flag. Flags for experiments are shown by the long help only.
    pub(super) is_common: bool,
    pub(super) is_path: bool,
}

/// The name of a flag, which is the key of a file.
pub(super) fn name(flag: &Arg) -> &str {
    flag.get_long().unwrap_or(flag.get_id().as_str())
}

/// Whether the values of a flag are paths.
pub(super) fn is_path(flag: &Arg) -> bool {
    flag.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// Whether a flag is a part of a configuration.
pub(super) fn is_setting(flag: &Arg) -> bool {
    !flag.is_hide_set() && !NO_SETTINGS.contains(&name(flag))
}

impl FlagValue {
    pub(super) fn of(flag: &Arg, matches: &ArgMatches) -> FlagValue {
        let (id, kind) = (flag.get_id().as_str(), FlagValueKind::of(flag));
        let values = match kind {
            FlagValueKind::Switch => vec![matches.get_flag(id).to_string().into()],
            _ => matches.get_raw(id).into_iter().flatten().map(OsStr::to_owned).collect(),
        };
        let origin = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => FlagOrigin::CommandLine,
            _ => FlagOrigin::Default,
        };
        FlagValue {
            name: name(flag).to_owned(),
            kind,
            values,
            origin,
            origins: Vec::new(),
            heading: flag.get_help_heading().map(str::to_owned),
            is_common: !flag.is_hide_short_help_set(),
            is_path: is_path(flag),
        }
    }

    /// Who has set the value with this number, from 0.
    pub(super) fn origin_of(&self, number: usize) -> &FlagOrigin {
        self.origins.get(number).unwrap_or(&self.origin)
    }

    /// The words of a command line that set the flag.
    fn words(&self) -> Vec<OsString> {
        match self.kind {
            _ if self.origin == FlagOrigin::Default => Vec::new(),
            FlagValueKind::Switch if self.values == ["true"] => {
                vec![format!("--{}", self.name).into()]
            }
            FlagValueKind::Switch => Vec::new(),
            _ => self.values.iter().map(|value| word(self.kind, &self.name, value)).collect(),
        }
    }
}

/// The word of a command line that gives a flag a value.
pub(super) fn word(kind: FlagValueKind, name: &str, value: &OsStr) -> OsString {
    let mut word = match kind {
        // A word that begins with a dash would be read as a flag.
        FlagValueKind::Positional if value.as_encoded_bytes().starts_with(b"-") => {
            OsString::from("./")
        }
        FlagValueKind::Positional => OsString::new(),
        _ => format!("--{name}=").into(),
    };
    word.push(value);
    word
}

/// The flags of a server, in the order in which they are declared.
#[derive(Clone, Debug)]
pub(in crate::cli::serve) struct FlagValues {
    pub(super) all: Vec<FlagValue>,
    /// How often `-v` was given.
    verbose: u8,
}

impl FlagValues {
    /// The flags that a command line sets.
    pub(super) fn of(matches: &ArgMatches) -> FlagValues {
        let command = command();
        let flags = command.get_arguments().filter(|flag| is_setting(flag));
        let verbose = matches.try_get_one::<u8>("verbose").ok().flatten();
        FlagValues {
            all: flags.map(|flag| FlagValue::of(flag, matches)).collect(),
            verbose: verbose.copied().unwrap_or_default(),
        }
    }

    /// Sets a flag that the command line does not set.
    pub(super) fn fill_in(&mut self, name: &str, values: Vec<OsString>, origin: FlagOrigin) {
        self.fill_in_each(Set { name: name.to_owned(), values, origin, origins: Vec::new() });
    }

    /// The same, with who has set each of its values.
    pub(super) fn fill_in_each(&mut self, set: Set) {
        let free =
            |it: &&mut FlagValue| it.name == set.name && it.origin != FlagOrigin::CommandLine;
        if let Some(flag) = self.all.iter_mut().find(free) {
            (flag.values, flag.origin, flag.origins) = (set.values, set.origin, set.origins);
        }
    }

    /// Sets a flag that is left to `auto`, whether a user, a file or nobody has left it so.
    pub(in crate::cli::serve) fn replace(
        &mut self,
        name: &str,
        value: OsString,
        origin: FlagOrigin,
    ) {
        if let Some(flag) = self.all.iter_mut().find(|flag| flag.name == name) {
            (flag.values, flag.origin) = (vec![value], origin);
        }
    }

    /// Whether nobody has set a flag.
    pub(in crate::cli::serve) fn is_default(&self, name: &str) -> bool {
        self.all.iter().any(|flag| flag.name == name && flag.origin == FlagOrigin::Default)
    }

    /// Whether a flag is left to `auto`.
    pub(in crate::cli::serve) fn is_auto(&self, name: &str) -> bool {
        self.all.iter().any(|flag| flag.name == name && flag.values == ["auto"])
    }

    /// Who has set a flag, in words.
    pub(in crate::cli::serve) fn set_by(&self, name: &str) -> String {
        match self.all.iter().find(|flag| flag.name == name).map(|flag| &flag.origin) {
            None | Some(FlagOrigin::Default) => "the default".to_owned(),
            Some(FlagOrigin::CommandLine) => format!("the command line says so (--{name})"),
            Some(origin) => format!("--{name}: {origin}"),
        }
    }

    /// The names of the flags that `drover tune` has set, and the day.
    pub(in crate::cli::serve) fn tuned(&self) -> Option<(Vec<&str>, &str)> {
        let tuned = self.all.iter().filter_map(|flag| match &flag.origin {
            FlagOrigin::Tuned(on) => Some((flag.name.as_str(), on.as_str())),
            _ => None,
        });
        let (names, days): (Vec<&str>, Vec<&str>) = tuned.unzip();
        Some((names, *days.first()?))
    }

    /// The flags with a fixed number of workers, in place of a number that follows the usable processors.
    pub(in crate::cli::serve) fn for_workers(&self, workers: NonZeroUsize) -> FlagValues {
        let mut fixed = self.clone();
        fixed.fill_in("workers", vec![workers.to_string().into()], FlagOrigin::Supervisor);
        fixed
    }

    /// The words after `drover` that start a server with exactly these settings. The server then reads no file.
    pub(in crate::cli::serve) fn words(&self) -> Vec<OsString> {
        let verbose = std::iter::repeat_n(OsString::from("-v"), self.verbose.into());
        let settings = self.all.iter().flat_map(FlagValue::words);
        ["serve".into()].into_iter().chain(verbose).chain(settings).collect()
    }

    /// The flags as a server reads them.
    ///
    /// # Errors
    /// Two flags do not go together. The value of each flag was checked before.
    pub(in crate::cli::serve) fn parse(&self) -> clap::error::Result<Args> {
        let settings = self.all.iter().flat_map(FlagValue::words);
        let words = std::iter::once(OsString::from("serve")).chain(settings);
        Args::from_arg_matches(&command().try_get_matches_from(words)?)
    }

    /// The settings that a message names, in the order of the message.
    pub(super) fn named_in(&self, message: &str) -> Vec<&FlagValue> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let place = |setting: &FlagValue| {
            let word = match setting.kind {
                FlagValueKind::Positional => setting.name.to_uppercase(),
                _ => format!("--{}", setting.name),
            };
            let mut found = message.match_indices(&word);
            found.find(|(at, _)| !message[at + word.len()..].starts_with(is_part)).map(|(at, _)| at)
        };
        let named = self.all.iter().filter_map(|setting| Some((place(setting)?, setting)));
        let mut named: Vec<(usize, &FlagValue)> = named.collect();
        named.sort_by_key(|(at, _)| *at);
        named.into_iter().map(|(_, setting)| setting).collect()
    }

    /// The error, with a place in a file in front if a file made the setting that the error's message names first. Of several
    /// faults of sites, each is printed with its place.
    pub(in crate::cli::serve) fn place(&self, error: anyhow::Error) -> anyhow::Error {
        let faults = match error.downcast::<SiteFaults>() {
            Ok(SiteFaults(faults)) => faults,
            Err(error) => vec![SiteFault { host: None, error }],
        };
        let mut placed: Vec<_> = faults.into_iter().map(|fault| self.place_one(fault)).collect();
        if placed.len() == 1 {
            return placed.remove(0);
        }
        let lines: Vec<String> = placed.iter().map(|error| format!("{error:#}")).collect();
        faults::refuse(&lines, "what is to be served", "it is not used").into()
    }

    fn place_one(&self, fault: SiteFault) -> anyhow::Error {
        let hosts = || self.all.iter().find(|flag| flag.name == HOST);
        let origin = match fault.host {
            Some(number) => hosts().map(|flag| flag.origin_of(number)),
            None => self.named_in(&fault.error.to_string()).first().map(|flag| &flag.origin),
        };
        match origin {
            Some(FlagOrigin::File { name, line, column }) => {
                fault.error.context(format!("{name}:{line}:{column}"))
            }
            _ => fault.error,
        }
    }
}
