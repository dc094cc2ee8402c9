//! What a worker process gives up before it reads what clients send, so that a fault in it reaches little: landlock(7) and
//! seccomp(2).
//!
//! The supervisor keeps its rights: it opens roots, configuration, users' files and logs, and reads nothing that clients send.
//! A worker process has what the supervisor has opened for it, becomes `--user`, restricts itself, and cannot take that back.
//! What is open stays open.
//!
//! | | a worker process |
//! |---|---|
//! | reading | the roots, what may replace them, `/proc`, the processors in `/sys`; neither configuration nor users nor logs |
//! | writing | nothing but the device of the dispatch mechanism, if it has one ([`rules`]) |
//! | programs | none |
//! | TCP (Linux 6.7) | no bind(2), no connect(2) |
//! | signals, abstract unix sockets (Linux 6.12) | its own threads |
//! | system calls, once all workers accept | those that serving needs ([`system_calls`]) |
//!
//! A kernel without some of this enforces the rest. What is in force is a line of the log.
//!
//! # The user
//!
//! A supervisor that root has started stays root, for ports below 1024, for a reload and for files that only root may read.
//! Its workers become `--user` before they restrict themselves ([`give_up`]). The C library changes all threads, also those
//! that run already.
//!
//! # Which directories may be read
//!
//! The root's path is looked up again while serving, and a deployment may have made it lead to another directory
//! ([`Root::replaced`](drover_mech::files::root::Root::replaced)). A rule holds for a directory, not for its name, so that the
//! new directory is readable only if it lies beneath a directory with a rule. [`links`] says which those are: the
//! root, and for each symbolic link in its path the directory in which the link's target lies. With `current ->
//! releases/42` that is `releases`, where 43 will be. A root that is no link has a rule for itself alone: its parent
//! may be a home directory. When another directory takes its place, by rename(2) or by a new mkdir(2), the worker tells the
//! supervisor, which opens that directory and starts workers for it, as at a reload. `/` has a rule only if it is the root,
//! or if links may lead anywhere (`--symlinks any`).
//!
//! The rules are the second guard. The first is openat2(2), which opens nothing outside of the root
//! ([`drover_mech::files::root`]); it holds also for the directories beside the root that the rules leave readable.
//!
//! `/proc` is readable because the inodes of its directories come and go, and with them rules for parts of it. The
//! kernel still keeps memory, environment and descriptors of other processes from a restricted one (ptrace(2)).
//!
//! # Threads
//!
//! Landlock restricts the calling thread and those that it starts. [`enter`](Sandbox::enter) is therefore called before
//! workers, openers and readers start. Older threads are that of the log, which restricts itself, and that of the signals,
//! which is replaced ([`StopSignals`](crate::StopSignals)). From Linux 7.0 on the kernel restricts all threads at once.

mod links;
mod rules;
mod system_calls;

use anyhow::Context;
use landlock::{
    Access, AccessNet, LandlockStatus, PathBeneath, PathFd, RestrictSelfAttr, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use tracing::warn;

use crate::Config;
use crate::config::SiteSettings;
use crate::log;
use rules::{KNOWN, Rules};

/// How much of a sandbox a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    /// None: the configuration switches it off.
    Off,
    /// None: this kernel has no Landlock.
    Unavailable,
    /// None: the kernel has it and refuses, or enforces nothing.
    Failed,
    /// What this kernel has of it.
    InForce,
}

/// The sandbox that a process is in.
#[derive(Debug)]
pub struct Sandbox {
    /// For programs.
    pub state: SandboxState,
    /// What is in force, for people.
    pub in_words: String,
}

/// Becomes the user of `config`, if there is one, with all threads of the process, and enters the sandbox.
///
/// # Errors
/// The process may not become that user, or could become root again, or the user may not look into the root.
pub(crate) fn give_up(config: &Config) -> anyhow::Result<Sandbox> {
    if let Some(user) = &config.user {
        user.assume().with_context(|| format!("cannot become --user {user}"))?;
        for root in config.sites().filter_map(SiteSettings::root) {
            root.may_be_searched().with_context(|| {
                let root = root.name();
                format!(
                    "--user {user} cannot look into '{root}'; give that user the right to search it and every \
                     directory above"
                )
            })?;
        }
    }
    Ok(Sandbox::enter(config))
}

impl Sandbox {
    /// Restricts the calling thread and what it starts from now on, if `config` says so.
    pub(crate) fn enter(config: &Config) -> Sandbox {
        if !config.sandbox {
            let in_words = "off (--no-sandbox)".to_owned();
            return Sandbox { state: SandboxState::Off, in_words };
        }
        let rules = Rules::of(config);
        restrict(config, &rules).map_or_else(
            |error| {
                warn!("cannot enter the sandbox: {error}; serving all the same");
                Sandbox { state: SandboxState::Failed, in_words: format!("none: {error}") }
            },
            |status| Sandbox::of(&status, &rules),
        )
    }

    fn of(status: &RestrictionStatus, rules: &Rules) -> Sandbox {
        let (state, in_words) = match status.landlock {
            LandlockStatus::NotImplemented => (
                SandboxState::Unavailable,
                "none: this kernel has no Landlock (Linux 5.13)".to_owned(),
            ),
            LandlockStatus::NotEnabled => (
                SandboxState::Unavailable,
                "none: Landlock is switched off here (boot option lsm=)".to_owned(),
            ),
            _ if status.ruleset == RulesetStatus::NotEnforced => {
                (SandboxState::Failed, "none: the kernel enforces nothing of it".to_owned())
            }
            LandlockStatus::Available { effective_abi, kernel_abi } => {
                let abi = kernel_abi.unwrap_or(effective_abi as i32);
                let sockets = match abi {
                    ..4 => "sockets are free (before Linux 6.7)",
                    _ => "no TCP bind, no connect",
                };
                (SandboxState::InForce, format!("Landlock (ABI {abi}): {rules}, {sockets}"))
            }
        };
        Sandbox { state, in_words }
    }

    /// Makes the sandbox complete, now that the process has all its sockets and rings: `all_threads` of it, or the calling one,
    /// make no more system calls than serving needs.
    pub(crate) fn close(&mut self, config: &Config, all_threads: bool) {
        if config.sandbox {
            let system_calls = system_calls::enter(config, all_threads);
            self.in_words = format!("{}; {system_calls}", self.in_words);
        }
    }
}

fn restrict(config: &Config, rules: &Rules) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(rules.handled)?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .all_threads(true)?;
    for (path, access) in &rules.reading {
        // What is not there needs no rule.
        if let Ok(fd) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(fd, *access))?;
        }
    }
    // The directory that is open is the root, also where its path leads to another one by now.
    for root in config.sites().filter_map(SiteSettings::root) {
        ruleset = ruleset.add_rule(PathBeneath::new(root.directory(), rules::READ))?;
    }
    for (path, access) in &rules.writing {
        if let Ok(fd) = PathFd::new(path) {
            // The kernel refuses rules for pipes and sockets, and lets them be written.
            let _ = (&mut ruleset).add_rule(PathBeneath::new(fd, *access));
        }
    }
    let of_log = ruleset.try_clone();
    let status = ruleset.restrict_self()?;
    if let (false, Ok(of_log)) = (status.all_threads, of_log) {
        log::on_thread(move || drop(of_log.restrict_self()));
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use drover_mech::files::root::Root;
    use drover_sys::process::on_own_thread;

    use super::*;
    use crate::ContentSource;

    fn config(root: &Path) -> Config {
        let source = ContentSource::Directory(Arc::new(Root::open(root).unwrap()));
        let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
        Config { sandbox: true, ..Config::new(source, mechanism) }
    }

    /// A thread ends with its restrictions, and the other tests go on without.
    fn within<R: Send>(config: &Config, act: impl FnOnce() -> R + Send) -> Option<R> {
        let (sandbox, done) = on_own_thread(|| (Sandbox::enter(config), act())).unwrap();
        if sandbox.state == SandboxState::Unavailable {
            drover_testing::skip!("{}", sandbox.in_words);
            return None;
        }
        assert_eq!(sandbox.state, SandboxState::InForce);
        Some(done)
    }

    fn is_refused<T>(result: std::io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    #[test]
    fn within_only_the_root_is_read_and_nothing_is_written_or_run() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "a").unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        within(&config(&root), || {
            assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
            fs::read("/proc/self/status").unwrap();
            assert!(is_refused(fs::read(folder.path().join("secret"))));
            assert!(is_refused(fs::read("/etc/passwd")));
            assert!(is_refused(fs::write(root.join("a"), "b")));
            assert!(is_refused(fs::write(root.join("b"), "b")));
            assert!(is_refused(fs::remove_file(root.join("a"))));
            assert!(is_refused(std::process::Command::new("/proc/self/exe").status()));
        });
        assert_eq!(fs::read(root.join("a")).unwrap(), b"a");
    }

    #[test]
    fn within_no_port_is_bound_and_no_address_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (told, bound, connected) = on_own_thread(|| {
            let sandbox = Sandbox::enter(&config(folder.path()));
            (sandbox.in_words, TcpListener::bind("127.0.0.1:0"), TcpStream::connect(address))
        })
        .unwrap();
        if !told.contains("no TCP bind") {
            return drover_testing::skip!("{told}");
        }
        assert!(is_refused(bound) && is_refused(connected));
    }

    #[test]
    fn what_flags_name_can_be_neither_read_nor_written_within() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        ["root", "kept"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        fs::write(at("kept/config"), "").unwrap();
        let (counters, config_file) = (Some(at("kept/counters")), Some(at("kept/config")));
        let config = Config { counters, config_file, ..config(&at("root")) };
        within(&config, || {
            assert!(is_refused(fs::read(at("kept/config"))));
            assert!(is_refused(fs::write(at("kept/counters"), "1")));
        });
    }

    #[test]
    fn a_release_that_comes_later_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("releases/42/public")).unwrap();
        std::os::unix::fs::symlink("releases/42", at("current")).unwrap();
        let ((deploy, asked), (done, deployed)) = (channel(), channel());
        let own = folder.path().to_owned();
        let deployer = std::thread::spawn(move || {
            // Nobody asks if this kernel has no Landlock.
            if asked.recv().is_ok() {
                fs::create_dir_all(own.join("releases/43/public")).unwrap();
                fs::write(own.join("releases/43/public/a"), "43").unwrap();
                fs::remove_file(own.join("current")).unwrap();
                std::os::unix::fs::symlink("releases/43", own.join("current")).unwrap();
                done.send(()).unwrap();
            }
        });
        let (config, top) = (config(&at("current/public")), folder.path());
        within(&config, move || {
            // A thread that is not restricted, as whoever deploys is not.
            deploy.send(()).unwrap();
            deployed.recv().unwrap();
            assert_eq!(fs::read(top.join("current/public/a")).unwrap(), b"43");
            assert!(is_refused(fs::read_dir(top)));
        });
        deployer.join().unwrap();
    }

    #[test]
    fn off_is_off() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { sandbox: false, ..config(folder.path()) };
        let entered = on_own_thread(|| (Sandbox::enter(&config), fs::read("/etc/passwd")));
        let (sandbox, read) = entered.unwrap();
        assert_eq!(sandbox.state, SandboxState::Off);
        read.unwrap();
    }
}
