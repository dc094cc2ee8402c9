//! Which files a process of the server needs after its start.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use drover_mech::files::root::{Root, Symlinks};
use drover_mech::mechanisms;
use drover_sys::socket::Address;
use landlock::{ABI, Access, AccessFs, BitFlags, make_bitflags};

use super::links;
use crate::Config;
use crate::Role;
use crate::config::SiteSettings;

/// The newest version of Landlock whose restrictions are known not to touch what a server does.
pub(super) const KNOWN: ABI = ABI::V10;

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const READ_FILE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile});
/// The file is created if it is gone, as a log is that was moved away, and lines are appended.
const APPEND: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | MakeReg});
/// The file is created, or emptied.
const CREATE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | MakeReg | Truncate});
/// Another file is created and renamed to the file.
const REPLACE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{WriteFile | MakeReg | Truncate | RemoveFile});

/// The device of a dispatch mechanism is opened for both, and called by ioctl(2).
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});

/// What the server reads beside its root: of its own threads and sockets, of the processors' caches, and how much of the
/// machine it may use.
const READ_ALWAYS: [&str; 3] = ["/proc", "/sys/devices/system/cpu", "/sys/fs/cgroup"];

/// A path, and what may be done to what it leads to and everything beneath.
pub(super) type PathRule = (PathBuf, BitFlags<AccessFs>);

/// What a process may do.
#[derive(Debug)]
pub(super) struct Rules {
    /// What is forbidden except by a rule.
    pub(super) handled: BitFlags<AccessFs>,
    pub(super) reading: Vec<PathRule>,
    pub(super) writing: Vec<PathRule>,
    /// The ports that may be bound: those of the server. Workers of its own that a reload starts may need sockets of their
    /// own there.
    pub(super) ports: Vec<u16>,
    /// The directories that are served from, or may be later.
    served: Vec<PathBuf>,
    role: Role,
}

impl Rules {
    /// The rules for a process of a server of `config`, which listens at `addresses`.
    pub(super) fn of(config: &Config, role: Role, addresses: &[Address]) -> Rules {
        let of_root = |root: &Root| match root.symlinks() {
            Symlinks::Any => vec!["/".into()],
            Symlinks::Never | Symlinks::Inside => links::readable_for(root.path()),
        };
        let roots = config.sites().filter_map(SiteSettings::root);
        let served = links::without_those_beneath(roots.flat_map(of_root).collect());
        let all = AccessFs::from_all(KNOWN);
        let (handled, reading) = match role {
            // Programs that it starts inherit its restrictions, and read what they are linked with.
            Role::Supervisor => (all & !READ & !AccessFs::Execute, Vec::new()),
            Role::Server | Role::Worker => {
                let always = READ_ALWAYS.map(PathBuf::from);
                // An editor may put another file in its place.
                let file = config.config_file.as_deref();
                let users = config.users().filter(|_| role == Role::Server);
                let files = file.into_iter().chain(users.map(|users| users.path()));
                let files = files.filter_map(to_read);
                let reading = served.iter().cloned().chain(always).map(|path| (path, READ));
                (all, reading.chain(files).collect())
            }
        };
        let log = config.access_log.as_ref().and_then(|log| log.path.as_ref());
        let written = [
            (log, APPEND),
            (config.trace.as_ref(), CREATE),
            (config.record_events.as_ref(), CREATE),
            (config.counters.as_ref(), REPLACE),
        ];
        let writing = written.into_iter().filter_map(|(path, access)| to_write(path?, access));
        // Workers open the device of their mechanism, and so do those that a reload starts.
        let device = mechanisms::device_of(config.mechanism);
        let device = device.map(|path| (PathBuf::from(path), DEVICE & handled));
        let writing = writing.chain(device);
        let ports = addresses.iter().filter_map(|it| Some(it.ip()?.port())).collect();
        Rules { handled, reading, writing: writing.collect(), ports, served, role }
    }
}

impl Rules {
    /// The first path that a process with `next`'s rules uses and one with these rules may not.
    pub(super) fn first_missing<'n>(&self, next: &'n Rules) -> Option<&'n Path> {
        let is_within = |(path, access): &&PathRule, rules: &[PathRule]| {
            rules.iter().any(|(top, allowed)| path.starts_with(top) && allowed.contains(*access))
        };
        let reads = next.reading.iter().filter(|it| !is_within(it, &self.reading));
        let writes = next.writing.iter().filter(|it| !is_within(it, &self.writing));
        reads.chain(writes).map(|(path, _)| path.as_path()).next()
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }
}

/// The rule by which a file can be read again: one for its folder, since the file may be another one by then. A file in
/// `/` has a rule of its own.
fn to_read(path: &Path) -> Option<PathRule> {
    let path = fs::canonicalize(path).ok().filter(|path| path.is_file())?;
    let folder = path.parent()?;
    let top = if folder.parent().is_some() { folder } else { &path };
    Some((top.to_owned(), READ_FILE))
}

/// The rule by which a file can be written: one for its folder, since the file may be another one by then. What is no
/// file, as a device or a FIFO, gets a rule of its own, and is not replaced; so does a file in `/`.
fn to_write(path: &Path, access: BitFlags<AccessFs>) -> Option<PathRule> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Some((path.to_owned(), AccessFs::WriteFile.into()));
    }
    // The file may be made later, but its folder must be there.
    let path = fs::canonicalize(path).ok().or_else(|| {
        let path = std::path::absolute(path).ok()?;
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    })?;
    let folder = path.parent()?;
    match folder.parent() {
        Some(_) => Some((folder.to_owned(), access)),
        None => Some((path, make_bitflags!(AccessFs::{WriteFile | Truncate}))),
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
        if self.role == Role::Supervisor {
            f.write_str("workers ")?;
        }
        match self.served.is_empty() {
            true => f.write_str("no files to read")?,
            false => write!(f, "read-only beneath {}", list(&mut self.served.iter()))?,
        }
        let mut files = self.reading.iter().filter(|(_, access)| *access == READ_FILE).peekable();
        if files.peek().is_some() {
            write!(f, ", reads files in {}", list(&mut files.map(|it| &it.0)))?;
        }
        match self.writing.is_empty() {
            true => Ok(()),
            false => write!(f, ", writes in {}", list(&mut self.writing.iter().map(|it| &it.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_in_its_folder_and_a_device_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(to_write(&at("new"), APPEND), Some((real.clone(), APPEND)));
        fs::create_dir(at("logs")).unwrap();
        fs::write(at("logs/log"), "").unwrap();
        std::os::unix::fs::symlink("logs/log", at("link")).unwrap();
        assert_eq!(to_write(&at("link"), CREATE), Some((real.join("logs"), CREATE)));
        let alone = make_bitflags!(AccessFs::{WriteFile | Truncate});
        assert_eq!(to_write(Path::new("/new"), REPLACE), Some(("/new".into(), alone)));
        fs::write(at("read"), "").unwrap();
        assert_eq!(to_read(&at("read")), Some((real.clone(), READ_FILE)));
        assert_eq!(to_read(&at("none")), None);
        assert_eq!(to_read(Path::new("/dev/null")), None);
        let device = (PathBuf::from("/dev/null"), AccessFs::WriteFile.into());
        assert_eq!(to_write(Path::new("/dev/null"), REPLACE), Some(device));
    }
}
