//! Which files a worker needs after its start.

use std::fmt;
use std::path::PathBuf;

use drover_mech::files::root::{Root, Symlinks};
use drover_mech::mechanisms;
use landlock::{ABI, Access, AccessFs, BitFlags, make_bitflags};

use super::links;
use crate::Config;
use crate::config::SiteSettings;

/// The newest version of Landlock whose restrictions are known not to touch what a server does.
pub(super) const KNOWN: ABI = ABI::V10;

pub(super) const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// The device of a dispatch mechanism is opened for both, and called by ioctl(2).
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});

/// What the server reads beside its root: of its own threads and sockets, of the processors' caches, and how much of the
/// machine it may use.
const READ_ALWAYS: [&str; 3] = ["/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup"];

/// A path, and what may be done to what it leads to and everything beneath.
pub(super) type PathRule = (PathBuf, BitFlags<AccessFs>);

/// What a worker may do.
#[derive(Debug)]
pub(super) struct Rules {
    /// What is forbidden except by a rule.
    pub(super) handled: BitFlags<AccessFs>,
    pub(super) reading: Vec<PathRule>,
    pub(super) writing: Vec<PathRule>,
    /// The directories that are served from, or may be later.
    served: Vec<PathBuf>,
}

impl Rules {
    /// The rules for a worker of a server of `config`.
    pub(super) fn of(config: &Config) -> Rules {
        let of_root = |root: &Root| match root.symlinks() {
            Symlinks::Any => vec!["/".into()],
            Symlinks::Never | Symlinks::Inside => links::readable_for(root.path()),
        };
        let roots = config.sites().filter_map(SiteSettings::root);
        let served = links::without_those_beneath(roots.flat_map(of_root).collect());
        let always = READ_ALWAYS.map(PathBuf::from);
        let reading = served.iter().cloned().chain(always).map(|path| (path, READ)).collect();
        let device = mechanisms::device_of(config.mechanism);
        let writing = device.map(|path| (PathBuf::from(path), DEVICE)).into_iter().collect();
        Rules { handled: AccessFs::from_all(KNOWN), reading, writing, served }
    }
}

/// What the rules leave, as the log tells it.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |paths: &mut dyn Iterator<Item = &PathBuf>| {
            let mut names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
            names.dedup();
            names.join(" and ")
        };
        match self.served.is_empty() {
            true => f.write_str("no files to read")?,
            false => write!(f, "read-only beneath {}", list(&mut self.served.iter()))?,
        }
        match self.writing.is_empty() {
            true => f.write_str(", writes nothing"),
            false => write!(f, ", writes {}", list(&mut self.writing.iter().map(|it| &it.0))),
        }
    }
}
