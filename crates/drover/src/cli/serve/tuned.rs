//! What `drover tune` has found for a directory, kept for the servers of it: where `auto` is to choose, they
//! take it.
//!
//! There is a file for each directory. It counts for the kernel, the processor, the number of processors and
//! the program that it was measured with, and for nothing else; one that does not count is left alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lab::hash::hash_bytes;
use lab::journal::Environment;
use mech::accept;
use mech::fileio;
use mech::mechanisms::{self, Features, Mechanism};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::{debug, info};

use super::config::{FlagValues, Origin};
use super::flags::Args;

/// What the key `schema` of a file has to say.
const SCHEMA: &str = "drover.tuned/1";

/// This very program, also if another has taken its name since.
const PROGRAM: &str = "/proc/self/exe";

/// What was found for a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::cli) struct Tuned {
    schema: String,
    /// The day, as in 2001-06-25.
    on: String,
    /// Where it was measured.
    environment: Environment,
    /// The directory.
    root: String,
    /// What is taken, by the name of the flag. A flag without an entry has its default.
    taken: BTreeMap<String, String>,
    /// What was measured, for people.
    evidence: Value,
}

impl Tuned {
    /// What was taken for `root`, a canonical path, on this machine.
    ///
    /// # Errors
    /// If this program cannot be read.
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

    /// Keeps it for servers to come. Returns the file; `None`: there is no place for it.
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
        // A server that starts meanwhile finds the old one, or this one.
        let new = file.with_extension(format!("{}.new", std::process::id()));
        fs::write(&new, text)?;
        fs::rename(&new, &file)?;
        Ok(Some(file))
    }

    /// What was found for a directory, if it counts here. If it does not, the log says why.
    fn look(root: &Path) -> Option<Tuned> {
        let root = root.canonicalize().ok()?;
        let file = file_of(&root)?;
        let read = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            read => read.map_err(|error| error.to_string()),
        };
        let tuned = read.and_then(|text| {
            serde_json::from_slice(&text).map_err(|error| format!("it is no result: {error}"))
        });
        let counts = |tuned: Tuned| match tuned.obstacle(&root) {
            None => Ok(tuned),
            Some(why) => Err(why),
        };
        match tuned.and_then(counts) {
            Ok(tuned) => Some(tuned),
            Err(why) => {
                info!(
                    "{} does not count: {why}; 'drover tune {}' measures anew",
                    file.display(),
                    root.display()
                );
                None
            }
        }
    }

    /// Why it does not count here.
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

    /// What is taken where the flags leave it to `auto`, as far as it works in this process.
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
        // Threads that wait as they were measured.
        let as_measured = mechanism
            .is_some_and(|it| self.taken.get("dispatch").is_some_and(|name| name == it.name));
        let is_auto =
            args.accept.0.is_none() && !args.processes && as_measured && workers.get() > 1;
        take("accept", is_auto, &|name| {
            let goes_with =
                |it: &accept::Strategy| mechanism.is_some_and(|by| it.goes_with(by).is_ok());
            accept::by_name(name).is_some_and(|it| goes_with(it) && it.probe().is_ok())
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

/// The flags with what `drover tune` has found for the directory, where they leave something to `auto`.
pub(super) fn complete(args: Args, flags: FlagValues) -> (Args, FlagValues) {
    let is_auto = args.workers.is_auto()
        || args.dispatch.0.is_none()
        || args.files.0.is_none()
        || args.accept.0.is_none();
    if args.tuned == "off" || args.reply_size.is_some() || !is_auto {
        return (args, flags);
    }
    let Some(tuned) = Tuned::look(&args.root) else { return (args, flags) };
    let mut with = flags.clone();
    for (name, value) in tuned.where_auto(&args) {
        with.replace(name, OsString::from(value), Origin::Tuned(tuned.on.clone()));
    }
    match with.parse() {
        Ok(parsed) => (Args { check: args.check, ..parsed }, with),
        // What works by itself goes together: this does not happen.
        Err(_) => (args, flags),
    }
}

/// The file for a directory; `None`: nobody has said where caches are.
fn file_of(root: &Path) -> Option<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    let name = hash_bytes(root.as_os_str().as_bytes());
    Some(caches.join("drover").join(format!("tuned-{name}.json")))
}
