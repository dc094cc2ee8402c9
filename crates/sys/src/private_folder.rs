//! Folders in which nobody but their owner can put anything.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a folder is not a process's own.
#[derive(Debug)]
pub enum SharedFolder {
    /// What the kernel says of it.
    Failed(PathBuf, io::Error),
    /// It belongs to another user, of this number, than the one of the second.
    OfAnother(PathBuf, u32, u32),
    /// Others can write it, by this mode.
    Writable(PathBuf, u32),
}

impl fmt::Display for SharedFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SharedFolder::Failed(folder, error) => {
                write!(f, "cannot create {}: {error}; keys are kept there", folder.display())
            }
            SharedFolder::OfAnother(folder, owner, own) => {
                let name = folder.display();
                write!(
                    f,
                    "{name} belongs to user {owner}, who could replace what is kept there; run 'chown {own} {name}', or set \
                     XDG_STATE_HOME to a folder of your own"
                )
            }
            SharedFolder::Writable(folder, mode) => {
                let name = folder.display();
                write!(
                    f,
                    "other users can write {name} (mode {mode:03o}), and could replace what is kept there; run 'chmod 700 {name}'"
                )
            }
        }
    }
}

impl std::error::Error for SharedFolder {}

/// Makes `folder`, with those above it that are missing, for this user alone (mode 0700), unless it is there.
///
/// # Errors
/// It belongs to somebody else than this user or root, or others can write it: they could put a key or certificate of their own there.
/// What the kernel says.
pub fn create(folder: &Path) -> Result<(), SharedFolder> {
    let failed = |error| SharedFolder::Failed(folder.to_owned(), error);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let metadata = folder.metadata().map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&metadata.uid()) {
        return Err(SharedFolder::OfAnother(folder.to_owned(), metadata.uid(), own));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(SharedFolder::Writable(folder.to_owned(), metadata.mode() & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// What others could write is not trusted to be this user's.
    #[test]
    fn a_folder_that_others_can_write_is_refused_with_the_remedy() {
        let parent = tempfile::tempdir().unwrap();
        let path = &parent.path().join("a/b");
        create(path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        let refused = || create(path).unwrap_err().to_string();
        for mode in [0o720, 0o702, 0o777] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let told = refused();
            assert!(told.contains(&format!("mode {mode:03o}")), "{told}");
            assert!(told.contains(&format!("chmod 700 {}", path.display())), "{told}");
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        create(path).unwrap();
        // Only root can give a folder away.
        if rustix::process::geteuid().is_root() {
            chown(path, Some(4_000_000), None).unwrap();
            let told = refused();
            assert!(told.contains("belongs to user 4000000"), "{told}");
            assert!(told.contains(&format!("chown 0 {}", path.display())), "{told}");
        }
    }
}
