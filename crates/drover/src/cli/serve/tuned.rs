//! Results of `drover tune` for a directory, kept for servers of that directory. A server takes the result for each
//! flag that is left to `auto`.
//!
//! There is a file for each directory. A result is used only with the kernel, the processor, the number of processors
//! and the program that it was measured with. A result that does not fit is ignored and not deleted.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use drover_lab::hash::hash_bytes;
use drover_lab::journal::Environment;
use drover_mech::accept;
use drover_mech::fileio;
use drover_mech::mechanisms::{self, Features, Mechanism};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::{debug, info};

use super::config::{FlagOrigin, FlagValues};
use super::flags::Args;
use super::remembered::Remembered;
use crate::cli::auto_or::OnOff;

/// The value of the key `schema` of a file.
const SCHEMA: &str = "drover.tuned/1";

/// The program that runs, even if the file of its name has been replaced since.
const PROGRAM: &str = "/proc/self/exe";

/// The result for a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::cli) struct Tuned {
    schema: String,
    /// The day, as in 2001-06-25.
    on: String,
    /// The machine and the program of the measurement.
    environment: Environment,
    /// The directory.
    root: String,
    /// The chosen values, by the name of the flag. A flag without an entry has its default.
    taken: BTreeMap<String, String>,
    /// The measurements, for people to read.
    evidence: Value,
}

impl Tuned {
    /// The result for `root`, a canonical path, with the environment of this machine.
    ///
    /// # Errors
    /// This program cannot be read.
    pub(in crate::cli) fn here(
        on: &str,
        root: &Path,
        taken: BTreeMap<String, String>,
        evidence: Value,
    ) -> io::Result<Tuned> {
        Ok(Tuned {
            schema: SCHEMA.to_owned(),
            on: on.to_owned(),
            environment: Environment::identity(Path::new(PROGRAM))?,
            root: root.display().to_string(),
            taken,
            evidence,
        })
    }

    /// Writes the result to its file, for servers that start later. Returns the path; `None`: neither HOME nor
    /// XDG_CACHE_HOME says where caches are.
    ///
    /// # Errors
    /// What the file system says.
    pub(in crate::cli) fn keep(&self) -> io::Result<Option<PathBuf>> {
        let Some(file) = file_of(Path::new(&self.root)) else { return Ok(None) };
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Renamed when complete: a server that starts meanwhile reads the old result or the new one.
        let new = file.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, text)?;
        fs::rename(&new, &file)?;
        Ok(Some(file))
    }

    /// The result for a directory, if it may be used here. If not, the log says why.
    fn look(root: &Path) -> Option<Tuned> {
        match Tuned::find(root)? {
            Ok(tuned) => Some(tuned),
            Err(why) => {
                info!("{why}; 'drover tune {}' measures anew", root.display());
                None
            }
        }
    }

    /// The result for a directory, or why it may not be used here; `None`: there is none.
    fn find(root: &Path) -> Option<Result<Tuned, String>> {
        static KNOWN: Remembered<Option<Result<Tuned, String>>> = Remembered::new();
        let root = root.canonicalize().ok()?;
        let find = || Ok::<_, Infallible>(Tuned::look_up(&root));
        KNOWN.find(&root.display().to_string(), find).ok()?
    }

    /// The same, by the file.
    fn look_up(root: &Path) -> Option<Result<Tuned, String>> {
        let file = file_of(root)?;
        let read = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            read => read.map_err(|error| error.to_string()),
        };
        let tuned = read.and_then(|text| {
            serde_json::from_slice(&text).map_err(|error| format!("it is no result: {error}"))
        });
        let counts = |tuned: Tuned| match tuned.obstacle(root) {
            None => Ok(tuned),
            Some(why) => Err(why),
        };
        let tuned = tuned.and_then(counts);
        Some(tuned.map_err(|why| format!("{} does not count: {why}", file.display())))
    }

    /// Why the result must not be used here; `None`: it may be used.
    fn obstacle(&self, root: &Path) -> Option<String> {
        if self.schema != SCHEMA {
            return Some(format!("it is of {}, not of {SCHEMA}", self.schema));
        }
        if self.root != root.display().to_string() {
            return Some(format!("it is of {}", self.root));
        }
        match Environment::identity(Path::new(PROGRAM)) {
            Err(error) => Some(format!("{PROGRAM}: {error}")),
            Ok(here) => {
                let differences = self.environment.differences(&here);
                (!differences.is_empty()).then(|| differences.join(", "))
            }
        }
    }

    /// The chosen values for the flags that are left to `auto`, without values that do not work in this process.
    fn where_auto(&self, args: &Args) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut take = |name: &'static str, is_auto: bool, works: &dyn Fn(&str) -> bool| {
            let value = self.taken.get(name).filter(|_| is_auto)?;
            if !works(value) {
                debug!("{name} {value}, as tuned, does not work here");
                return None;
            }
            found.push((name, value.clone()));
            Some(value.clone())
        };
        let most = args.max_connections.unwrap_or(NonZeroUsize::MAX);
        let fits = |value: &str| value.parse().is_ok_and(|number: NonZeroUsize| number <= most);
        let workers = take("workers", args.workers.is_auto(), &fits);
        let workers = workers.and_then(|text| text.parse().ok()).unwrap_or(args.workers());
        let mechanism = take("dispatch", args.dispatch.0.is_none(), &|name| {
            mechanisms::by_name(name).is_some_and(|it| works(it, workers))
        });
        let mechanism = mechanism.as_deref().and_then(mechanisms::by_name).or(args.dispatch.0);
        take("files", args.files.0.is_none(), &|name| {
            fileio::by_name(name).is_some_and(|it| it.probe().is_ok())
        });
        // The strategy is used only with threads that wait by the mechanism that it was measured with.
        let as_measured = mechanism
            .is_some_and(|it| self.taken.get("dispatch").is_some_and(|name| name == it.name));
        let is_auto =
            args.accept.0.is_none() && !args.processes && as_measured && workers.get() > 1;
        let has_unix = args.listen.iter().any(|listen| listen.unix.is_some());
        take("accept", is_auto, &|name| {
            let goes_with =
                |it: &accept::Strategy| mechanism.is_some_and(|by| it.goes_with(by).is_ok());
            let serves_all =
                |it: &accept::Strategy| !has_unix || it.goes_with_unix_sockets(workers).is_ok();
            accept::by_name(name)
                .is_some_and(|it| goes_with(it) && serves_all(it) && it.probe().is_ok())
        });
        found
    }
}

/// Whether every worker can wait by the mechanism.
fn works(mechanism: &Mechanism, workers: NonZeroUsize) -> bool {
    match mechanism.features.contains(Features::COMPLETION) {
        true => mechanisms::rings(workers.get()).is_ok(),
        false => mechanism.probe().is_ok(),
    }
}

/// The flags, with the result of `drover tune` for each flag that is left to `auto`.
pub(super) fn complete(args: Args, flags: FlagValues) -> (Args, FlagValues) {
    if is_not_for(&args).is_some() {
        return (args, flags);
    }
    let Some(tuned) = args.root_of_all().and_then(Tuned::look) else { return (args, flags) };
    let mut with = flags.clone();
    for (name, value) in tuned.where_auto(&args) {
        with.replace(name, OsString::from(value), FlagOrigin::Tuned(tuned.on.clone()));
    }
    match with.parse() {
        Ok(parsed) => (Args { check: args.check, explain: args.explain, ..parsed }, with),
        // Not expected: values that work one by one go together.
        Err(_) => (args, flags),
    }
}

/// Why no result is looked for.
fn is_not_for(args: &Args) -> Option<&'static str> {
    let is_auto = args.workers.is_auto()
        || args.dispatch.0.is_none()
        || args.files.0.is_none()
        || args.accept.0.is_none();
    match (args.tuned, args.response_size, is_auto) {
        (OnOff::Off, ..) => Some("no result is looked for: --tuned off"),
        (_, Some(_), _) => Some("no result is looked for: --response-size serves no folder"),
        _ if args.root_of_all().is_none() => Some("no result is looked for: no ROOT is served"),
        (.., false) => Some("no result is looked for: nothing is left to auto"),
        _ => None,
    }
}

/// Why flags that are left to `auto` have no value of a result, and whether a new result would help; `None`: there is a
/// result.
pub(super) fn why_none(args: &Args) -> Option<(String, bool)> {
    if let Some(why) = is_not_for(args) {
        return Some((why.to_owned(), false));
    }
    match args.root_of_all().and_then(Tuned::find) {
        None => Some(("no result for this folder".to_owned(), true)),
        Some(Err(why)) => Some((why, true)),
        Some(Ok(_)) => None,
    }
}

/// The file for a directory; `None`: neither HOME nor XDG_CACHE_HOME says where caches are.
fn file_of(root: &Path) -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    let name = hash_bytes(root.as_os_str().as_bytes());
    Some(caches.join("drover").join(format!("tuned-{name}.json")))
}
