//! `--host`: a site of its own for some hosts, as a flag and as a table of the configuration file.
//!
//! The flag is a short command line: `NAME,NAME=ROOT --flag --flag=value`. Its flags are those of
//! [`SiteFlags`], and a flag without a value, `--flag=`, takes away what is set for all hosts.
//! Worker processes get a table of a file in this form too.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::BoolValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches};
use drover_server::HostPattern;

use super::flags::site::{SiteFlags, WITH_DEFAULT};
use crate::cli::mistake;
use drover_usage::UsageError;

/// The flag, and the key of the tables.
pub(super) const HOST: &str = "host";

/// The keys that a table must have.
pub(super) const NAME: &str = "name";
pub(super) const ROOT: &str = "root";

/// A site for some hosts.
#[derive(Clone, Debug)]
pub(super) struct HostFlag {
    pub(super) names: Vec<HostPattern>,
    pub(super) root: PathBuf,
    /// The flags of its own.
    pub(super) own: ArgMatches,
    /// The names of flags for all hosts that this one does not have.
    pub(super) without: Vec<String>,
}

/// What is wrong with sites.
#[derive(Debug, Default)]
pub(super) struct SiteFaults(pub(super) Vec<SiteFault>);

/// What is wrong with a site.
#[derive(Debug)]
pub(super) struct SiteFault {
    /// The number of the host's site, from 0; `None`: the site is that of ROOT.
    pub(super) host: Option<usize>,
    pub(super) error: anyhow::Error,
}

impl SiteFaults {
    /// The result of a part of a site; what is wrong with it is kept, unless another site has the same fault.
    pub(super) fn of<T>(&mut self, host: Option<usize>, made: anyhow::Result<T>) -> Option<T> {
        let error = match made {
            Ok(made) => return Some(made),
            Err(error) => error,
        };
        let text = format!("{error:#}");
        if self.0.iter().all(|known| format!("{:#}", known.error) != text) {
            self.0.push(SiteFault { host, error });
        }
        None
    }
}

impl fmt::Display for SiteFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|fault| format!("{:#}", fault.error)).collect();
        f.write_str(&all.join("; "))
    }
}

impl std::error::Error for SiteFaults {}

/// The clap command that reads what a host may have. No flag has a default: what is not given is as for the other hosts.
pub(super) fn command() -> Command {
    let without_default = |arg: Arg| match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(BoolValueParser::new()),
        _ => arg.default_values(Vec::<&str>::new()),
    };
    let name = Arg::new(NAME).long(NAME).action(ArgAction::Append);
    let root = Arg::new(ROOT).long(ROOT).value_parser(clap::value_parser!(PathBuf));
    SiteFlags::augment_args(Command::new(HOST).disable_help_flag(true))
        .mut_args(without_default)
        .arg(name.value_parser(str::parse::<HostPattern>))
        .arg(root)
}

/// Whether a host can be without what this flag sets for all: it takes a value, and has no default.
pub(super) fn can_be_taken_away(flag: &Arg) -> bool {
    let is_of_name = [NAME, ROOT].contains(&flag.get_id().as_str());
    let takes_value = flag.get_num_args().is_none_or(|it| it.min_values() > 0);
    !is_of_name && takes_value && !WITH_DEFAULT.contains(&flag.get_id().as_str())
}

impl HostFlag {
    /// Reads `NAME,NAME=ROOT --flag=value`, with quotation marks as a shell has them.
    pub(super) fn parse(text: &str) -> Result<HostFlag, String> {
        let wrong = || {
            // With other servers --host is the address to listen on.
            let is_address = text.parse::<IpAddr>().is_ok() || text == "localhost";
            let hint = if is_address { "; to listen on an address, use --listen" } else { "" };
            format!(
                "'{text}' is no site of a host; write NAME=ROOT or NAME,NAME=ROOT without blanks, as in \
                 'www.example.org=/srv/www --listing'{hint}"
            )
        };
        let words = shlex::split(text).ok_or_else(|| "a quotation mark has no end".to_owned())?;
        let (site, own) = words.split_first().ok_or_else(wrong)?;
        let (names, root) = site.split_once('=').ok_or_else(wrong)?;
        if site.starts_with('-') || root.is_empty() {
            return Err(wrong());
        }
        if names.is_empty() || names.contains(char::is_whitespace) {
            return Err(wrong());
        }
        let command = command();
        let taken_away = |word: &&String| {
            let name = word.strip_prefix("--")?.strip_suffix('=')?;
            let named = |flag: &&Arg| flag.get_long() == Some(name) && can_be_taken_away(flag);
            command.get_arguments().find(named)
        };
        let (without, own): (Vec<_>, Vec<_>) = own.iter().partition(|it| taken_away(it).is_some());
        let words = [command.get_name()].into_iter().chain(own.into_iter().map(String::as_str));
        let own = command.clone().try_get_matches_from(words);
        let own = own.map_err(|error| mistake::in_words(&error, &command))?;
        let without: Vec<&Arg> = without.iter().filter_map(taken_away).collect();
        if let Some(flag) = without.iter().find(|flag| own.contains_id(flag.get_id().as_str())) {
            let name = flag.get_long().unwrap_or_default();
            return Err(format!(
                "'--{name}=' takes away what --{name} sets; leave one of them out"
            ));
        }
        // One that is taken away twice is taken away.
        let mut names_without: Vec<String> = Vec::new();
        for name in without.into_iter().filter_map(Arg::get_long) {
            if !names_without.iter().any(|known| known == name) {
                names_without.push(name.to_owned());
            }
        }
        if let Some(key) = [NAME, ROOT].into_iter().find(|key| own.contains_id(key)) {
            return Err(format!("--{key} stands in front: write NAME=ROOT"));
        }
        let names = names.split(',').map(str::parse).collect::<Result<_, String>>()?;
        Ok(HostFlag { names, root: root.into(), own, without: names_without })
    }

    /// The flag's value for a table that sets these flags, which have been checked.
    ///
    /// # Errors
    /// A key that is missing, a value that is not UTF-8.
    pub(super) fn of_table(sets: Vec<(String, Vec<OsString>)>) -> Result<String, String> {
        let (mut names, mut root, mut own) = (Vec::new(), None, Vec::new());
        for (key, values) in sets {
            for value in values {
                let value = value.into_string().map_err(|it| format!("{it:?} is not UTF-8"))?;
                match key.as_str() {
                    NAME => names.push(value),
                    ROOT => root = Some(value),
                    _ => own.push(format!("--{key}={value}")),
                }
            }
        }
        let missing = |key| {
            format!(
                "a host needs the key '{key}', as in name = \"www.example.org\", root = \"www\""
            )
        };
        let root = root.ok_or_else(|| missing(ROOT))?;
        if names.is_empty() {
            return Err(missing(NAME));
        }
        let site = format!("{}={root}", names.join(","));
        shlex::try_join([site.as_str()].into_iter().chain(own.iter().map(String::as_str)))
            .map_err(|error| error.to_string())
    }

    /// # Errors
    /// A site of `all` that comes before this one has one of the names too.
    pub(super) fn named_first(&self, all: &[HostFlag]) -> anyhow::Result<()> {
        for before in all.iter().take_while(|host| !std::ptr::eq(*host, self)) {
            if let Some(name) = self.names.iter().find(|name| before.names.contains(name)) {
                anyhow::bail!(UsageError::new(format!(
                    "{name} has two sites: this one, and that of {}; name it once",
                    before.described()
                )));
            }
        }
        Ok(())
    }

    /// The names, for messages.
    pub(super) fn described(&self) -> String {
        let names: Vec<_> = self.names.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// The flags of this site: its own, and those for all hosts where it has none.
    pub(super) fn flags(&self, of_all: &SiteFlags) -> SiteFlags {
        let mut flags = of_all.clone();
        self.without.iter().for_each(|name| flags.take_away(name));
        flags
            .update_from_arg_matches(&self.own)
            .expect("the flags were read from the same command line");
        flags
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[track_caller]
    fn of_all(words: &[&str]) -> SiteFlags {
        let command = SiteFlags::augment_args(Command::new("serve"));
        let words = ["serve"].into_iter().chain(words.iter().copied());
        SiteFlags::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn a_host_has_its_own_flags_and_those_of_all_where_it_has_none() {
        let all =
            of_all(&["--hidden", "--listing", "--fallback=a.html", "--error-page=404=x.html"]);
        let text = "a.example.org,*.example.org=/srv/a b=c --listing=false --fallback 'my app.html' --html-suffix";
        let text = text.replace("/srv/a b=c", "'/srv/a b=c'");
        let host = HostFlag::parse(&text).unwrap();
        assert_eq!(host.root, Path::new("/srv/a b=c"));
        let names: Vec<_> = host.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a.example.org", "*.example.org"]);
        let flags = host.flags(&all);
        assert!(flags.hidden && !flags.listing && flags.html_suffix && !flags.precompressed);
        assert_eq!(flags.fallback.as_deref(), Some("my app.html"));
        assert_eq!(flags.response.error_page.len(), 1);
    }

    #[test]
    fn a_host_can_be_without_each_flag_that_has_a_value_and_no_default() {
        let values = [
            ("fallback", "a.html"),
            ("header", "* A: b"),
            ("redirect", "/a /b"),
            ("error-page", "404=x.html"),
            ("types", "log=text/plain"),
            ("cache-control", "* 1h"),
            ("cors", "*"),
            ("auth", "users"),
            ("early-hints", "*.html </a.css>; rel=preload"),
            ("tls-cert", "cert.pem"),
            ("tls-key", "key.pem"),
        ];
        let words: Vec<String> =
            values.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (all, none) = (of_all(&words), format!("{:?}", of_all(&[])));
        assert_ne!(format!("{all:?}"), none);
        let flags: Vec<_> = command()
            .get_arguments()
            .filter(|flag| can_be_taken_away(flag))
            .map(|flag| flag.get_long().unwrap().to_owned())
            .collect();
        assert_eq!(flags.len(), values.len(), "{flags:?}");
        let text = flags.iter().map(|name| format!(" --{name}=")).collect::<String>();
        let host = HostFlag::parse(&format!("a=/srv{text}")).unwrap();
        assert_eq!(format!("{:?}", host.flags(&all)), none);
        assert_eq!(host.without, flags);
        let twice = HostFlag::parse("a=/srv --types= --auth= --types=").unwrap();
        assert_eq!(twice.without, ["types", "auth"]);
    }

    #[test]
    fn what_is_no_host_is_told() {
        for (text, why) in [
            ("", "write NAME=ROOT"),
            ("a", "write NAME=ROOT"),
            ("a=", "write NAME=ROOT"),
            ("--listing", "write NAME=ROOT"),
            ("a:80=/srv", "all ports"),
            ("a,=/srv", "no name of a host"),
            ("a.test, b.test=/srv", "without blanks"),
            ("=/srv", "write NAME=ROOT"),
            ("a=/srv --symlinks=", "--symlinks"),
            ("a=/srv --header= --header='* A: b'", "leave one of them out"),
            ("a=/srv --error-page= --error-page 404=x", "leave one of them out"),
            ("a=/srv --lisitng", "'--listing'"),
            ("a=/srv --workers=2", "--workers"),
            ("a=/srv --symlinks=some", "inside"),
            ("a=/srv --listing=perhaps", "perhaps"),
            ("a=/srv other", "other"),
            ("a=/srv 'x", "quotation mark"),
            ("a=/srv --root=/x", "stands in front"),
        ] {
            let error = HostFlag::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
