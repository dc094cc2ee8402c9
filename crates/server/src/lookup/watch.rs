//! Learns at once when a file changes, by inotify(7).
//!
//! A path leads to a file by names, each in a directory, symbolic links and their targets included.
//! Every directory on the way is watched, so a file is unchanged as long as nothing is reported for
//! any name of its [`WatchedPath`]. inotify does not report everything, so files are also checked from time to time.
//!
//! A request costs no look-up of names: changes are counted, and only an entry that was last checked at
//! another count looks at the names of its path.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use drover_mech::files::root::{Cause, Root};
use drover_mech::files::watch::{FileChange, Inotify, Watch};

/// How many directories a worker watches; the kernel keeps about a KiB for each.
pub(crate) const DIRECTORIES_MOST: usize = 16 * 1024;

/// As many symbolic links as the kernel follows on one way (path_resolution(7)).
const LINKS_MOST: u32 = 40;

/// Unused names are searched for when more names were made than were in use at the last search, plus
/// this many.
const NAMES_SPARE: usize = 1024;

/// The bytes that it costs to keep a watched path, and each of its names.
const WATCHED_PATH_COST: usize = 256;
const NAME_COST: usize = 16;

/// The directories that a worker watches.
pub(crate) struct Watcher {
    inotify: Inotify,
    /// How many directories may be watched.
    most: usize,
    /// The names on watched paths, by directory. A name that has changed is removed.
    directories: HashMap<Watch, HashMap<Box<[u8]>, Rc<Name>>>,
    top: Option<Watch>,
    /// How often names have changed.
    changes: u64,
    /// How many names were in use when the unused ones were last looked for.
    used: usize,
    /// How many were made, or missed for want of a watch, since then.
    made: usize,
}

/// A name in a watched directory.
#[derive(Default)]
struct Name {
    changed: Cell<bool>,
    /// The target, if the name is a symbolic link.
    link: OnceCell<Option<Box<[u8]>>>,
    /// The watch, if the name is a directory.
    watch: Cell<Option<Watch>>,
}

/// The names that lead to a file.
pub(crate) struct WatchedPath {
    names: Box<[Rc<Name>]>,
    /// The count of changes when the path was last found unchanged.
    seen: Cell<u64>,
}

impl WatchedPath {
    /// The path whose names are those of both: it holds while both hold.
    pub(crate) fn and(self, other: WatchedPath) -> WatchedPath {
        let names = self.names.into_iter().chain(other.names).collect();
        WatchedPath { names, seen: Cell::new(self.seen.get().min(other.seen.get())) }
    }

    /// The bytes that it costs to keep the path.
    pub(crate) fn cost(&self) -> usize {
        WATCHED_PATH_COST + self.names.len() * NAME_COST
    }
}

impl Watcher {
    /// Watches at most `most` directories.
    pub(crate) fn new(most: usize) -> io::Result<Watcher> {
        let inotify = Inotify::open()?;
        let directories = HashMap::new();
        Ok(Watcher { inotify, most, directories, top: None, changes: 0, used: 0, made: 0 })
    }

    /// A descriptor that is readable when [`Watcher::hear`] has reports to handle.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.inotify.descriptor()
    }

    /// Whether no change was reported for any name of the path.
    pub(crate) fn holds(&self, watched: &WatchedPath) -> bool {
        if watched.seen.get() == self.changes {
            return true;
        }
        let holds = !watched.names.iter().any(|name| name.changed.get());
        if holds {
            watched.seen.set(self.changes);
        }
        holds
    }

    /// Watches the way to `path` (relative, beneath `root`). What is looked at on the way, or at its
    /// end from now on, is watched when it is looked at.
    pub(crate) fn follow(&mut self, root: &Root, path: &[u8]) -> io::Result<WatchedPath> {
        if self.made > self.used + NAMES_SPARE {
            self.forget_unused();
        }
        let mut names = Vec::new();
        let mut links = 0;
        // Where the way has come to, without links; and what is left of it, backwards.
        let mut here = Vec::new();
        let mut left: Vec<Vec<u8>> = Vec::new();
        push_path(&mut left, path);
        let top = self.top.filter(|top| self.directories.contains_key(top));
        let mut watch = top.map_or_else(|| self.watch(root, b""), Ok)?;
        self.top = Some(watch);
        while let Some(component) = left.pop() {
            if component == b".." {
                if here.is_empty() {
                    // Out of the root, where nothing is watched.
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let parent = here.iter().rposition(|&byte| byte == b'/');
                here.truncate(parent.unwrap_or(0));
                watch = self.watch(root, &here)?;
                continue;
            }
            let name = self.name(watch, &component);
            names.push(Rc::clone(&name));
            let parent_len = here.len();
            if !here.is_empty() {
                here.push(b'/');
            }
            here.extend_from_slice(&component);
            let link = match name.link.get() {
                Some(link) => link,
                None => {
                    let link = match root.read_link(&here) {
                        // A name without a file can be watched too: the file may come.
                        Err(error) if left.is_empty() && Cause::of(&error) == Cause::Missing => {
                            None
                        }
                        link => link?,
                    };
                    name.link.get_or_init(|| link)
                }
            };
            if let Some(target) = link {
                links += 1;
                if links > LINKS_MOST || target.starts_with(b"/") {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                here.truncate(parent_len);
                push_path(&mut left, target);
            } else if !left.is_empty() {
                let known = name.watch.get().filter(|watch| self.directories.contains_key(watch));
                watch = known.map_or_else(|| self.watch(root, &here), Ok)?;
                name.watch.set(Some(watch));
            }
        }
        Ok(WatchedPath { names: names.into(), seen: Cell::new(self.changes) })
    }

    /// Forgets every path: the root has been replaced.
    pub(crate) fn forget_everything(&mut self) {
        self.top = None;
        self.changes +=
            u64::from(take_in(FileChange::Anything, &self.inotify, &mut self.directories));
    }

    /// Handles the reported changes.
    pub(crate) fn hear(&mut self) -> io::Result<()> {
        let Watcher { inotify, directories, changes, .. } = self;
        inotify.read(|change| *changes += u64::from(take_in(change, inotify, directories)))
    }

    /// Watches a directory, and names are known in it from then on.
    fn watch(&mut self, root: &Root, path: &[u8]) -> io::Result<Watch> {
        if self.directories.len() >= self.most && self.made >= self.used / 4 {
            self.forget_unused();
        }
        let watch = self.inotify.watch(root, path)?;
        if self.directories.len() >= self.most && !self.directories.contains_key(&watch) {
            self.inotify.unwatch(watch);
            self.made += 1;
            return Err(io::Error::other(format!("{} directories are watched", self.most)));
        }
        self.directories.entry(watch).or_default();
        Ok(watch)
    }

    fn name(&mut self, watch: Watch, name: &[u8]) -> Rc<Name> {
        let names = self.directories.entry(watch).or_default();
        if let Some(name) = names.get(name) {
            return Rc::clone(name);
        }
        self.made += 1;
        Rc::clone(names.entry(name.into()).or_default())
    }

    /// Forgets the names that are on no path, and the directories without names.
    fn forget_unused(&mut self) {
        self.used = 0;
        self.made = 0;
        self.directories.retain(|&watch, names| {
            names.retain(|_, name| Rc::strong_count(name) > 1);
            self.used += names.len();
            if names.is_empty() {
                self.inotify.unwatch(watch);
            }
            !names.is_empty()
        });
    }
}

/// Removes the changed names from `directories`; `false`: none of them was there.
fn take_in(
    change: FileChange<'_>,
    inotify: &Inotify,
    directories: &mut HashMap<Watch, HashMap<Box<[u8]>, Rc<Name>>>,
) -> bool {
    let end = |names: HashMap<_, Rc<Name>>| names.values().for_each(|name| name.changed.set(true));
    match change {
        FileChange::Name(watch, name) => {
            let known = directories.get_mut(&watch).and_then(|names| names.remove(name));
            known.map(|name| name.changed.set(true)).is_some()
        }
        FileChange::Directory(watch) => {
            inotify.unwatch(watch);
            directories.remove(&watch).map(end).is_some()
        }
        FileChange::Anything => {
            // The watches stay: ending each would fill the queue again.
            directories.values_mut().map(std::mem::take).for_each(end);
            true
        }
    }
}

/// Puts the components of `path` in front of what is left of a way.
fn push_path(left: &mut Vec<Vec<u8>>, path: &[u8]) {
    let components = path.split(|&byte| byte == b'/').rev();
    left.extend(components.filter(|&name| !name.is_empty() && name != b".").map(<[u8]>::to_vec));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// `current` leads over `latest` to `releases/1`, which has `a` and `b`.
    fn deployed() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for release in ["releases/1", "releases/2"] {
            fs::create_dir_all(path.join(release)).unwrap();
            fs::write(path.join(release).join("a"), release).unwrap();
            fs::write(path.join(release).join("b"), release).unwrap();
        }
        symlink("1", path.join("releases/latest")).unwrap();
        symlink("releases/../releases/./latest", path.join("current")).unwrap();
        let root = Root::open(path).unwrap();
        (directory, root)
    }

    /// Whether the watched path to current/a holds after `act`, and also the path `control`.
    fn holds_after(control: &str, act: impl FnOnce(&Path)) -> bool {
        let (directory, root) = deployed();
        let mut watcher = Watcher::new(DIRECTORIES_MOST).unwrap();
        let watched = watcher.follow(&root, b"current/a").unwrap();
        let other = watcher.follow(&root, control.as_bytes()).unwrap();
        watcher.hear().unwrap();
        assert!(watcher.holds(&watched) && watcher.holds(&watched));
        act(directory.path());
        watcher.hear().unwrap();
        assert!(watcher.holds(&other), "{control} is not concerned");
        let holds = watcher.holds(&watched);
        let anew = watcher.follow(&root, b"current/a");
        assert!(anew.is_err() || anew.is_ok_and(|watched| watcher.holds(&watched)));
        holds
    }

    #[test]
    fn a_path_ends_with_a_change_of_any_of_its_names_and_no_other() {
        let swap = |new: &str, path: std::path::PathBuf| {
            symlink(new, path.with_extension("new")).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        };
        assert!(holds_after("current/a", |at| fs::write(at.join("current/c"), "").unwrap()));
        assert!(!holds_after("current/b", |at| fs::write(at.join("current/a"), "").unwrap()));
        assert!(
            !holds_after("releases/1/none", |at| fs::remove_file(at.join("current/a")).unwrap())
        );
        assert!(!holds_after("current/b", |at| fs::remove_file(at.join("releases/1/a")).unwrap()));
        assert!(!holds_after("releases/1/a", |at| swap("releases/2", at.join("current"))));
        assert!(!holds_after("releases/1/a", |at| swap("2", at.join("releases/latest"))));
        assert!(!holds_after("releases/2/a", |at| {
            fs::rename(at.join("releases/1"), at.join("releases/3")).unwrap();
        }));
        assert!(!holds_after("", |at| fs::rename(at.join("releases"), at.join("old")).unwrap()));
    }

    #[test]
    fn a_path_without_a_file_ends_when_the_file_comes() {
        let (directory, root) = deployed();
        let mut watcher = Watcher::new(DIRECTORIES_MOST).unwrap();
        let absent = watcher.follow(&root, b"current/a.br").unwrap();
        let both = watcher.follow(&root, b"current/a").unwrap().and(absent);
        assert!(watcher.holds(&both));
        fs::write(directory.path().join("current/a.br"), "").unwrap();
        watcher.hear().unwrap();
        assert!(!watcher.holds(&both));
    }

    #[test]
    fn every_path_ends_when_events_are_lost_and_can_be_followed_again() {
        let (_directory, root) = deployed();
        let mut watcher = Watcher::new(DIRECTORIES_MOST).unwrap();
        let paths =
            [&b"current/a"[..], b"releases/2/b"].map(|path| watcher.follow(&root, path).unwrap());
        let Watcher { inotify, directories, changes, .. } = &mut watcher;
        *changes += u64::from(take_in(FileChange::Anything, inotify, directories));
        assert!(paths.iter().all(|watched| !watcher.holds(watched)));
        let again = watcher.follow(&root, b"current/a").unwrap();
        assert!(watcher.holds(&again));
    }

    #[test]
    fn what_is_on_no_path_is_forgotten_and_makes_room() {
        let (directory, root) = deployed();
        let mut watcher = Watcher::new(3).unwrap();
        let first = watcher.follow(&root, b"releases/1/a").unwrap();
        assert!(watcher.follow(&root, b"releases/2/a").is_err(), "a fourth directory");
        assert!(watcher.holds(&first));
        drop(first);
        let second = watcher.follow(&root, b"releases/2/a").unwrap();
        fs::write(directory.path().join("releases/2/a"), "new").unwrap();
        watcher.hear().unwrap();
        assert!(!watcher.holds(&second));
        for number in 0..10 * NAMES_SPARE {
            let name = format!("releases/2/{number}");
            // There is no such file, but there may be one day.
            let absent = watcher.follow(&root, name.as_bytes()).unwrap();
            assert!(watcher.holds(&absent));
        }
        let names: usize = watcher.directories.values().map(HashMap::len).sum();
        assert!(names <= 2 * NAMES_SPARE, "{names} names");
    }
}
