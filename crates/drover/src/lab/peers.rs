//! Other servers that an experiment may put beside Drover's: found if they are installed, and run by
//! a configuration of the lab's own, as an ordinary user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What the lab knows of them: names, programs, configurations.
const TABLE: &str = include_str!("peers.toml");

/// Where programs are besides `PATH`, which rarely has the folders of servers.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// A server that is not Drover.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// What its program may be called.
    programs: Vec<String>,
    /// How to get it.
    install: String,
    /// The folders that its modules may be in, if it needs any.
    #[serde(default)]
    modules: Vec<PathBuf>,
    /// The command that runs it in the foreground.
    command: String,
    /// The configuration that this refers to.
    configuration: String,
}

/// What is filled in where a command or a configuration says so.
#[derive(Debug)]
pub(super) struct Blanks<'a> {
    pub(super) port: u16,
    pub(super) root: &'a Path,
    pub(super) work: &'a Path,
}

impl Peer {
    /// The peer of that name.
    pub fn by_name(name: &str) -> Option<Peer> {
        let mut table: BTreeMap<String, Peer> =
            toml::from_str(TABLE).expect("tested: the table parses");
        table.remove(name)
    }

    /// Where its program is.
    ///
    /// # Errors
    /// In words: that it is missing, and how to get it.
    pub fn find(&self) -> Result<PathBuf, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> =
            std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from)).collect();
        let candidates = folders
            .iter()
            .flat_map(|folder| self.programs.iter().map(|program| folder.join(program)));
        candidates.into_iter().find(|candidate| candidate.is_file()).ok_or_else(|| {
            format!("it is not installed ({}, or as your system has it)", self.install)
        })
    }

    /// The command line and the configuration, filled in.
    pub(super) fn fill_in(&self, program: &Path, blanks: &Blanks) -> (String, String) {
        let modules = self.modules.iter().find(|folder| folder.is_dir());
        let modules = modules.map_or(String::new(), |folder| folder.display().to_string());
        let fill = |text: &str| {
            text.replace("{program}", &program.display().to_string())
                .replace("{port}", &blanks.port.to_string())
                .replace("{root}", &blanks.root.display().to_string())
                .replace("{work}", &blanks.work.display().to_string())
                .replace("{modules}", &modules)
        };
        (fill(&self.command), fill(&self.configuration))
    }
}

/// The names of all peers.
pub fn names() -> Vec<String> {
    let table: BTreeMap<String, Peer> = toml::from_str(TABLE).expect("tested: the table parses");
    table.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_its_blanks_filled_in() {
        let blanks = Blanks { port: 4711, root: Path::new("/files"), work: Path::new("/w") };
        assert!(names().len() >= 4);
        for name in names() {
            let peer = Peer::by_name(&name).unwrap();
            let (command, configuration) = peer.fill_in(Path::new("/bin/it"), &blanks);
            assert!(command.starts_with("/bin/it ") && command.contains("/w"), "{name}");
            assert!(configuration.contains("4711") && configuration.contains("/files"), "{name}");
            for blank in ["{program}", "{port}", "{root}", "{work}", "{modules}"] {
                assert!(!command.contains(blank) && !configuration.contains(blank), "{name}");
            }
        }
    }

    #[test]
    fn a_peer_that_is_missing_is_told_with_the_remedy() {
        let mut peer = Peer::by_name("nginx").unwrap();
        peer.programs = vec!["no-such-server".to_string()];
        assert!(peer.find().unwrap_err().contains("apt-get install nginx-light"));
        assert!(Peer::by_name("no-such-server").is_none());
    }
}
