//! The built-in experiments, and the servers that the lab knows by name.

use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::embedded::{EXPERIMENTS, FOLDER, SHARED};
pub use super::peers;
use super::{FileSource, fragment, read_from};
use crate::document::Faults;
use crate::spec::experiment::Experiment;
use crate::spec::subject::SubjectSpec;

/// The files that are part of the program.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltInFiles;

impl FileSource for BuiltInFiles {
    fn text(&self, path: &Path) -> io::Result<String> {
        let inner = path.strip_prefix(FOLDER).unwrap_or(path);
        let found = EXPERIMENTS.iter().chain(SHARED).find(|(name, _)| Path::new(name) == inner);
        found.map(|(_, text)| (*text).to_owned()).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// The names of the built-in experiments, in the order of their documents.
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|(path, _)| path.trim_end_matches(".toml")).collect()
}

/// The built-in experiment of that name; `None` if there is none.
///
/// # Errors
/// The faults of the experiment file. A test makes sure that there are none.
pub fn experiment(name: &str) -> Option<Result<Experiment, Faults>> {
    let (path, _) =
        EXPERIMENTS.iter().find(|(path, _)| path.strip_suffix(".toml") == Some(name))?;
    Some(read_from(&BuiltInFiles, &PathBuf::from(FOLDER).join(path)))
}

/// The subjects for Drover's own server: one for each dispatch mechanism, by its name, and one for `auto`.
#[must_use]
pub fn dispatch_mechanisms() -> IndexMap<String, SubjectSpec> {
    let (name, text) = SHARED[1];
    fragment(name, text).expect("experiments include it, and a test reads those").subject
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that listens at all addresses cannot start beside connections of others, and could be reached from elsewhere.
    #[test]
    fn every_peer_binds_the_address_that_it_is_given_and_no_other() {
        let (_, text) = SHARED.iter().find(|(name, _)| name.ends_with("peers.toml")).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let subjects = table["subject"].as_table().unwrap();
        assert!(subjects.len() >= 5);
        for (name, subject) in subjects {
            let binds = |line: &str| {
                let words =
                    ["listen {host}", "server.bind = \"{host}", "host: {host}", "bind {host}"];
                words.iter().any(|it| line.trim().to_ascii_lowercase().starts_with(it))
            };
            let mut settings = subject["files"].as_table().unwrap().clone();
            let has = |settings: &toml::Table, holds: &dyn Fn(&str) -> bool| {
                settings.values().any(|text| text.as_str().unwrap().lines().any(holds))
            };
            assert!(has(&settings, &binds), "{name}: {settings}");
            settings.extend(subject["tls"]["files"].as_table().unwrap().clone());
            for (what, holds) in [
                ("its address", &binds as &dyn Fn(&str) -> bool),
                ("the certificate", &|line: &str| line.contains("{cert}")),
                ("the key", &|line: &str| line.contains("{key}")),
            ] {
                assert!(has(&settings, holds), "{name} over TLS, {what}: {settings}");
            }
        }
    }
}
