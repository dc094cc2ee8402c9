//! Reports of changes in directories, from inotify(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::files::root::Root;

/// A queue of changes in watched directories.
///
/// The kernel reports changes that are made through a watched directory: names that appear or disappear,
/// and writes and attribute changes of a file that was opened by its name in this directory. The kernel
/// does not report stores into a shared mapping, writes through another hard link in another directory,
/// mounts, and changes that other hosts make to a network file system.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// The number of a watched directory (a watch descriptor). The kernel reuses a number only after it has
/// used all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch(i32);

/// A reported change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange<'e> {
    /// A name in the directory was added, removed or renamed, or the file with this name has changed.
    Name(Watch, &'e [u8]),
    /// The directory itself has changed, was removed, or is no longer watched.
    Directory(Watch),
    /// The queue was full (`fs.inotify.max_queued_events`), and events were lost: anything may have
    /// changed.
    Anything,
}

impl Inotify {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// `EMFILE`: the process is out of descriptors, or the user has `fs.inotify.max_user_instances`
    /// queues already.
    pub fn open() -> io::Result<Inotify> {
        Ok(Inotify(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?))
    }

    /// A duplicate of the queue's descriptor, which a worker waits for. It is readable while the queue has
    /// events.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Watches the directory `path` beneath `root`. Watching a directory twice returns equal watches.
    ///
    /// # Errors
    /// `ENOSPC`: the user has `fs.inotify.max_user_watches` watches already. `EACCES`: the process may not
    /// read the directory. `ENOENT`: there is no such directory, or /proc is not mounted. `ELOOP`: the path
    /// leads through a symbolic link. Otherwise as [`Root::open_file`].
    pub fn watch(&self, root: &Root, path: &[u8]) -> io::Result<Watch> {
        // inotify_add_watch(2) takes only a path, so the open directory is named through /proc.
        let directory = root.open_directory(path)?;
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let changes = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB;
        Ok(Watch(inotify::add_watch(&self.0, path, changes | WatchFlags::ONLYDIR)?))
    }

    /// Ends a watch. Does nothing if the directory was removed, which ended the watch.
    pub fn unwatch(&self, watch: Watch) {
        // EINVAL: the kernel has ended the watch, and reports IN_IGNORED.
        let _ = inotify::remove_watch(&self.0, watch.0);
    }

    /// Reads all events from the queue, and calls `hear` for each.
    ///
    /// # Errors
    /// An error of read(2). None is expected.
    pub fn read(&self, mut hear: impl FnMut(FileChange<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => hear(change(&event)),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn change<'e>(event: &'e inotify::Event<'_>) -> FileChange<'e> {
    let watch = Watch(event.wd());
    match event.file_name() {
        _ if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => FileChange::Anything,
        Some(name) => FileChange::Name(watch, name.to_bytes()),
        None => FileChange::Directory(watch),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tells_which_name_in_which_directory_and_which_directory_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let inotify = Inotify::open().unwrap();
        let outer = inotify.watch(&root, b"").unwrap();
        let inner = inotify.watch(&root, b"inside").unwrap();
        assert!(outer != inner && inotify.watch(&root, b"inside").unwrap() == inner);
        let heard = || {
            let mut heard = Vec::new();
            inotify.read(|change| heard.push(format!("{change:?}"))).unwrap();
            heard.dedup();
            heard
        };
        let name = |watch, name: &str| format!("{:?}", FileChange::Name(watch, name.as_bytes()));
        assert_eq!(heard(), [""; 0]);
        fs::write(inside.join("a"), "1").unwrap();
        assert_eq!(heard(), [name(inner, "a")]);
        fs::rename(inside.join("a"), directory.path().join("b")).unwrap();
        assert_eq!(heard(), [name(inner, "a"), name(outer, "b")]);
        fs::remove_dir(&inside).unwrap();
        assert_eq!(heard(), [format!("{:?}", FileChange::Directory(inner)), name(outer, "inside")]);
        inotify.unwatch(outer);
        assert_eq!(heard(), [format!("{:?}", FileChange::Directory(outer))]);
    }
}
