//! Files that clients must not read, though the server has them: its settings, users, logs and measurements. A server does
//! not start when one of them lies beneath a directory that is served.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use drover_mech::files::root::Root;
use drover_usage::UsageError;

/// What a file of settings or users holds. A FIFO is refused: it could be read once, and whoever reads it again at a reload waits
/// for ever.
///
/// # Errors
/// What the kernel says, or that it is a FIFO.
pub fn read_again(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe, which cannot be read again; name a file"));
    }
    fs::read_to_string(path)
}

/// Refuses a file that `flag` names if it lies beneath one of the `roots`, or would when it is made. Links in either path are
/// followed. What is no regular file is never served.
///
/// # Errors
/// The file, and the directory that it lies in.
pub fn refuse_served(flag: &str, file: &Path, roots: &[PathBuf]) -> anyhow::Result<()> {
    if file.metadata().is_ok_and(|it| !it.is_file()) {
        return Ok(());
    }
    let Some(real) = real_path(file) else { return Ok(()) };
    let is_around = |root: &Path| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    if let Some(root) = roots.iter().find(|root| is_around(root)) {
        bail!(is_served(flag, file, root.display()));
    }
    Ok(())
}

fn is_served(flag: &str, file: &Path, root: impl fmt::Display) -> UsageError {
    UsageError::new(format!(
        "{flag} {}: it lies in {root}, which is served; move it out of there",
        file.display()
    ))
}

/// The files of a server that runs: what takes the place of a root may hold one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnFiles(Arc<[OwnFile]>);

#[derive(Debug)]
struct OwnFile {
    flag: &'static str,
    path: PathBuf,
    /// The path without links, as it was when the server was started.
    real: PathBuf,
}

impl OwnFiles {
    /// Those of these files, each with its flag, that are files, or will be, and that this process can find.
    pub(crate) fn of<'f>(named: impl Iterator<Item = (&'static str, &'f Path)>) -> OwnFiles {
        let all = named.filter(|(_, path)| path.metadata().map_or(true, |it| it.is_file()));
        let own = |(flag, path): (&'static str, &Path)| {
            Some(OwnFile { flag, path: path.to_owned(), real: real_path(path)? })
        };
        OwnFiles(all.filter_map(own).collect())
    }

    /// Refuses a root with one of the files beneath it. Waits for no disk: the kernel knows the path of what is open.
    ///
    /// # Errors
    /// The file, and the root.
    pub(crate) fn refuse_root(&self, root: &Root) -> anyhow::Result<()> {
        let open = format!("/proc/self/fd/{}", root.directory().as_raw_fd());
        let Ok(around) = fs::read_link(open) else { return Ok(()) };
        match self.0.iter().find(|own| own.real.starts_with(&around)) {
            Some(own) => bail!(is_served(own.flag, &own.path, root.name())),
            None => Ok(()),
        }
    }
}

/// The path of a file without links; of one that does not exist, in the folder in which it would be made.
fn real_path(file: &Path) -> Option<PathBuf> {
    if let Ok(real) = file.canonicalize() {
        return Some(real);
    }
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(file.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_refused_where_it_would_be_served_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["root/sub", "other", "root2"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["root/file", "root/sub/.hidden", "other/file"] {
            fs::write(at(name), "").unwrap();
        }
        symlink(at("root/sub"), at("other/way-in")).unwrap();
        symlink(at("root/file"), at("other/link")).unwrap();
        symlink(at("root"), at("current")).unwrap();
        let roots = [at("current"), at("nowhere")];
        let is_refused = |name: &str| refuse_served("--flag", &at(name), &roots).is_err();
        for name in [
            "root/file",
            "root/new",
            "root/sub/.hidden",
            "current/sub/new",
            "other/way-in/new",
            "other/link",
        ] {
            assert!(is_refused(name), "{name}");
        }
        for name in
            ["other/file", "other/new", "root2/new", "new", "missing/new", "root/sub", "root"]
        {
            assert!(!is_refused(name), "{name}");
        }
        assert!(refuse_served("--flag", Path::new("/dev/null"), &["/".into()]).is_ok());
        let error = refuse_served("--flag", &at("root/new"), &roots).unwrap_err().to_string();
        assert!(error.starts_with("--flag ") && error.contains("is served; move it"), "{error}");
    }
}
