//! Files that are written whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Puts a file with these bytes and this mode, less the umask, in the place of `path`: whoever opens `path` finds the file before it or all
/// of this one, also after a power cut (rename(2), fsync(2)). Meanwhile a file with the number of the process behind its name stands beside
/// it.
///
/// # Errors
/// What the kernel says of the folder or of the file.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut unfinished = OsString::from(path);
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    // One that a crash has left would keep its mode.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    // So that the new name is there after a power cut.
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_takes_the_place_of_another_with_its_own_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for (bytes, mode) in [("first", 0o600), ("second", 0o640), ("third", 0o600)] {
            write(&path, bytes.as_bytes(), mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
            // The umask may take rights away, and adds none.
            let found = path.metadata().unwrap().permissions().mode() & 0o777;
            assert!(found & !mode == 0 && found & 0o600 == 0o600, "{found:o}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing stays beside it");
    }

    #[test]
    fn what_a_crash_has_left_is_overwritten_and_a_failure_leaves_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write(&path, b"old", 0o600).unwrap();
        let left = folder.path().join(format!("key.{}", std::process::id()));
        fs::write(&left, "half").unwrap();
        write(&path, b"new", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        fs::create_dir(&left).unwrap();
        write(&path, b"newer", 0o600).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
