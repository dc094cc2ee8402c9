//! Where a root may be after a deployment: the symbolic links in its path.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many symbolic links as the kernel follows on one way (path_resolution(7)).
const LINKS_MOST: usize = 40;

/// The directories that must be readable so that the files of `root` are, also when a symbolic link in its path has been
/// made anew: the root, and the directories in which targets of links lie, but never `/`. Without those that are beneath
/// others.
pub(super) fn readable_for(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = folders_of_targets(root);
    found.retain(|path| path.parent().is_some());
    found.push(root.canonicalize().unwrap_or_else(|_| root.to_owned()));
    without_those_beneath(found)
}

/// Directories without those that are beneath others of them.
pub(super) fn without_those_beneath(mut directories: Vec<PathBuf>) -> Vec<PathBuf> {
    directories.sort();
    // A directory is sorted before what is beneath it.
    directories.dedup_by(|next, before| next.starts_with(before));
    directories
}

/// For each symbolic link in `path`: the directory, without links, that its target is a name in.
fn folders_of_targets(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut links = 0;
    let Ok(path) = std::path::absolute(path) else { return found };
    // Where the way has come to, without links; and what is left of it, backwards.
    let mut here = PathBuf::from("/");
    let mut left = backwards(&path);
    while let Some(name) = left.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        let target = fs::read_link(here.join(&name));
        let Some(target) = target.ok().filter(|_| links < LINKS_MOST) else {
            here.push(name);
            continue;
        };
        links += 1;
        let parent = here.join(&target).parent().and_then(|parent| parent.canonicalize().ok());
        found.extend(parent);
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        left.extend(backwards(&target));
    }
    found
}

fn backwards(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_root_without_links_is_read_alone_and_a_deployed_one_with_its_releases() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        fs::create_dir_all(at("app/releases/42/public")).unwrap();
        fs::create_dir_all(at("blue")).unwrap();
        symlink("releases/42", at("app/current")).unwrap();
        symlink(at("app/releases"), at("absolute")).unwrap();
        symlink("blue", at("live")).unwrap();
        symlink("../live", at("app/twice")).unwrap();
        let found = |name: &str| {
            let found = readable_for(&at(name));
            let short = found.iter().map(|path| path.strip_prefix(&top).unwrap().to_str().unwrap());
            short.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(found("app/releases/42"), ["app/releases/42"]);
        assert_eq!(found("app/current"), ["app/releases"]);
        assert_eq!(found("app/current/public"), ["app/releases"]);
        assert_eq!(found("absolute/42/public"), ["app"]);
        assert_eq!(found("app/twice"), [""]);
        // A target in the root directory: everything would be readable.
        symlink("/proc", at("proc")).unwrap();
        assert_eq!(readable_for(&at("proc")), [Path::new("/proc")]);
    }
}
