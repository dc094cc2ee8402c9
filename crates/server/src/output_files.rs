//! The files that flags name for writing: the access log, the trace, recorded events, counters.
//!
//! Only the process with the rights opens them; workers get the descriptors. A folder of logs often belongs to `--user`,
//! who may put a link there in place of a file. If root then wrote through the link, that user would have root write to any
//! file. So these files are opened with the rights of `--user`, and belong to that user from the beginning, which is also
//! why they can be opened again at a reload. A symbolic link is only followed if it belongs to root, or to the user that the
//! server was started by (`/dev/stdout` is such a link).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use drover_sys::process::{OrdinaryUser, with_rights_of};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::access_log;
use crate::config::Config;

/// The most links that are followed for one name.
const LINKS_MOST: usize = 40;

/// The files that workers write, open.
#[derive(Debug, Default)]
pub(crate) struct OutputFiles {
    /// The access log.
    pub(crate) log: Option<File>,
    /// The trace (`--trace`).
    pub(crate) trace: Option<File>,
    /// The events of the only worker (`--record-events`).
    pub(crate) events: Option<File>,
}

impl OutputFiles {
    /// Opens the files of `config`. A trace and a record of events are emptied.
    ///
    /// # Errors
    /// What the kernel says, with the flag and the file.
    pub(crate) fn open(config: &Config) -> anyhow::Result<OutputFiles> {
        let user = config.user.as_ref();
        let create = |flag: &str, path: &Option<PathBuf>| {
            let file = path.as_ref().map(|path| {
                let failed = || format!("cannot begin {flag} {}", path.display());
                let options = OpenOptions::new().write(true).create(true).truncate(true).clone();
                open(path, user, &options, UnreadPipe::Wait).with_context(failed)
            });
            file.transpose()
        };
        Ok(OutputFiles {
            log: open_log(config, UnreadPipe::Wait)?,
            trace: create("--trace", &config.trace)?,
            events: create("--record-events", &config.record_events)?,
        })
    }

    /// Those of workers of `config` that succeed the ones that write these: the log is opened by its name, and what only one
    /// set of workers can begin goes on.
    ///
    /// # Errors
    /// As [`OutputFiles::open`].
    pub(crate) fn succeed(&self, config: &Config) -> anyhow::Result<OutputFiles> {
        let again = |file: &Option<File>| file.as_ref().map(File::try_clone).transpose();
        let (trace, events) = (again(&self.trace)?, again(&self.events)?);
        Ok(OutputFiles { log: open_log(config, UnreadPipe::Fail)?, trace, events })
    }

    /// Finds whether the files can be opened. Makes none and changes none.
    ///
    /// # Errors
    /// As [`OutputFiles::open`].
    pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
        let log = config.access_log.as_ref().and_then(|log| log.path.as_ref());
        for (what, path) in [
            ("--access-log", log),
            ("cannot begin --trace", config.trace.as_ref()),
            ("cannot begin --record-events", config.record_events.as_ref()),
        ] {
            if let Some(path) = path {
                check(path, config.user.as_ref())
                    .with_context(|| format!("{what} {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// What opening a pipe does that nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadPipe {
    /// It waits for a reader: a start may take as long as that.
    Wait,
    /// It fails: a server that runs has other things to do.
    Fail,
}

/// Opens the access log, which is created if there is none.
///
/// # Errors
/// What the kernel says, with the flag, the file and the remedy.
pub(crate) fn open_log(config: &Config, unread: UnreadPipe) -> anyhow::Result<Option<File>> {
    let Some(log) = &config.access_log else { return Ok(None) };
    let opened = match &log.path {
        Some(path) => {
            let options = OpenOptions::new().append(true).create(true).clone();
            open(path, config.user.as_ref(), &options, unread)
        }
        None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
    };
    let opened = opened.map_err(|error| match (error.kind(), &config.user) {
        (io::ErrorKind::PermissionDenied, Some(user)) => io::Error::new(
            error.kind(),
            format!("{error}; user {user} must be allowed to write the file, or to make it in its folder"),
        ),
        _ if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
            io::Error::new(error.kind(), "it is a pipe that nobody reads, or a socket")
        }
        _ => error,
    });
    opened.map(Some).with_context(|| access_log::name(log))
}

/// Opens a file that a flag names, with the rights of `user` if there is one.
///
/// # Errors
/// `ELOOP`: the name is a link that belongs to neither root nor the user of this process. Others of open(2).
pub(crate) fn open(
    path: &Path,
    user: Option<&OrdinaryUser>,
    options: &OpenOptions,
    unread: UnreadPipe,
) -> io::Result<File> {
    let starter = rustix::process::geteuid().as_raw();
    let file = with_rights_of(user, || open_here(path, options, starter, unread))?;
    if unread == UnreadPipe::Fail {
        // Writing to it waits all the same.
        rustix::io::ioctl_fionbio(&file, false)?;
    }
    Ok(file)
}

/// `starter`: the user of this process.
fn open_here(
    path: &Path,
    options: &OpenOptions,
    starter: u32,
    unread: UnreadPipe,
) -> io::Result<File> {
    let (path, is_magic) = without_links(path, starter)?;
    let no_follow = if is_magic { OFlags::empty() } else { OFlags::NOFOLLOW };
    let no_wait = if unread == UnreadPipe::Fail { OFlags::NONBLOCK } else { OFlags::empty() };
    let flags = (no_follow | no_wait | OFlags::NOCTTY).bits().cast_signed();
    options.clone().custom_flags(flags).open(&path)
}

/// The path that a name leads to by links that may be followed, and whether it is a magic link of /proc, which leads to
/// something open and not to a name. The folders of the path are looked up as usual.
fn without_links(path: &Path, starter: u32) -> io::Result<(PathBuf, bool)> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MOST {
        let found = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => found,
            _ => return Ok((path, false)),
        };
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize()?;
        if folder.starts_with("/proc") {
            return Ok((path, true));
        }
        let owner = found.uid();
        if owner != 0 && owner != starter {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "it is a symbolic link of user {owner}, which is not followed; name the file itself"
                ),
            ));
        }
        path = folder.join(fs::read_link(&path)?);
    }
    Err(Errno::LOOP.into())
}

/// Finds out whether a file can be created, or written to if it exists, and leaves it as it is.
fn check(path: &Path, user: Option<&OrdinaryUser>) -> io::Result<()> {
    let starter = rustix::process::geteuid().as_raw();
    with_rights_of(user, || {
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).open(path) {
            Ok(_) => fs::remove_file(path),
            // Opening what is no file, a FIFO for one, may wait.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let kind = fs::metadata(path)?.file_type();
                if kind.is_file() || kind.is_dir() {
                    open_here(path, OpenOptions::new().write(true), starter, UnreadPipe::Fail)?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn append() -> OpenOptions {
        OpenOptions::new().append(true).create(true).clone()
    }

    #[test]
    fn a_link_of_the_one_who_starts_is_followed_and_a_magic_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("there", at("link")).unwrap();
        symlink("link", at("twice")).unwrap();
        open(&at("twice"), None, &append(), UnreadPipe::Wait).unwrap();
        assert!(fs::symlink_metadata(at("there")).unwrap().is_file());
        symlink("loop", at("loop")).unwrap();
        assert!(open(&at("loop"), None, &append(), UnreadPipe::Wait).is_err());
        let file = File::create(at("open")).unwrap();
        let magic = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        open(Path::new(&magic), None, &append(), UnreadPipe::Wait).unwrap();
    }

    /// What a user who may write in a folder of logs does to have root write somewhere else.
    #[test]
    fn a_link_of_another_user_is_not_followed_and_files_belong_to_the_user() {
        let user = OrdinaryUser::parse("4000000:4000001").unwrap();
        if !user.can_be_had() {
            return drover_testing::skip!("only root can become another user");
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        lchown(folder.path(), Some(4_000_000), Some(4_000_001)).unwrap();
        fs::write(at("precious"), "").unwrap();
        symlink("precious", at("log")).unwrap();
        lchown(at("log"), Some(4_000_000), None).unwrap();
        let refused =
            open(&at("log"), Some(&user), &append(), UnreadPipe::Wait).unwrap_err().to_string();
        assert!(refused.contains("link of user 4000000"), "{refused}");
        // A link of root is followed, with the rights of the user all the same.
        symlink("precious", at("of-root")).unwrap();
        let refused = open(&at("of-root"), Some(&user), &append(), UnreadPipe::Wait).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        open(&at("new"), Some(&user), &append(), UnreadPipe::Wait).unwrap();
        assert_eq!(fs::metadata(at("new")).unwrap().uid(), 4_000_000);
    }
}
