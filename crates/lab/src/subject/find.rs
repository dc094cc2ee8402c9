//! Finds the programs and folders that a subject or a load needs.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Folders of programs that `PATH` often lacks: servers are installed there.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// The first of some candidates that exists: a path, or the name of a program in `PATH`.
///
/// # Errors
/// [`Failure::NotTestable`] if none does, with what to do about it.
pub fn find(name: &str, candidates: &[String], install: Option<&str>) -> Result<PathBuf, Failure> {
    let locate = |candidate: &String| match candidate.contains('/') {
        true => Some(PathBuf::from(candidate)).filter(|path| path.exists()),
        false => on_path(candidate),
    };
    candidates.iter().find_map(locate).ok_or_else(|| {
        let remedy = install.map_or(String::new(), |install| format!(" ({install})"));
        Failure::not_testable(format!(
            "{name} is not installed{remedy}: there is none of {}",
            candidates.join(", ")
        ))
    })
}

/// The program of that name in `PATH`, or in the folders of servers.
#[must_use]
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    let candidates = folders.map(|folder| folder.join(program));
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let mut candidates = candidates.filter(|path| is_program(path));
    candidates.next()
}
