//! Hearing of changes in directories, from inotify(7).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::files::root::Root;

/// A queue of changes in watched directories.
///
/// Reported is what goes through a directory: names that come and go, and
/// writes and changes of attributes that reach a file by its name there. Not
/// reported are stores into a shared mapping, writes through another link of
/// the file elsewhere, mounts, and what other hosts do to a network's file
/// system.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// A watched directory, until it is no longer watched. Numbers come back only
/// after all others were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch(i32);

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'e> {
    /// The name, or what it leads to, is another or is gone.
    Name(Watch, &'e [u8]),
    /// The directory itself has changed, is gone, or is no longer watched.
    Directory(Watch),
    /// The queue was full (`fs.inotify.max_queued_events`): anything may have
    /// changed.
    Anything,
}

impl Inotify {
    /// An empty queue.
    ///
    /// # Errors
    /// `EMFILE` also when the user has `fs.inotify.max_user_instances` already.
    pub fn open() -> io::Result<Inotify> {
        Ok(Inotify(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?))
    }

    /// A duplicate of the descriptor, to wait for.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Watches a directory beneath `root`; the same watch if it is watched
    /// already. `path` leads through no symbolic link.
    ///
    /// # Errors
    /// `ENOSPC`: the user has `fs.inotify.max_user_watches` already; `EACCES`
    /// for a directory that may not be read; as [`Root::open_file`]; `ENOENT`
    /// also without /proc.
    pub fn watch(&self, root: &Root, path: &[u8]) -> io::Result<Watch> {
        // There is no inotify_add_watch that begins at a descriptor.
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

    /// Watches a directory no longer; one that is gone is not watched anyway.
    pub fn unwatch(&self, watch: Watch) {
        // EINVAL: the kernel has ended it, and an event says so.
        let _ = inotify::remove_watch(&self.0, watch.0);
    }

    /// Empties the queue.
    ///
    /// # Errors
    /// None that is known.
    pub fn read(&self, mut hear: impl FnMut(Change<'_>)) -> io::Result<()> {
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

fn change<'e>(event: &'e inotify::Event<'_>) -> Change<'e> {
    let watch = Watch(event.wd());
    match event.file_name() {
        _ if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => Change::Anything,
        Some(name) => Change::Name(watch, name.to_bytes()),
        None => Change::Directory(watch),
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
        let name = |watch, name: &str| format!("{:?}", Change::Name(watch, name.as_bytes()));
        assert_eq!(heard(), [""; 0]);
        fs::write(inside.join("a"), "1").unwrap();
        assert_eq!(heard(), [name(inner, "a")]);
        fs::rename(inside.join("a"), directory.path().join("b")).unwrap();
        assert_eq!(heard(), [name(inner, "a"), name(outer, "b")]);
        fs::remove_dir(&inside).unwrap();
        assert_eq!(heard(), [format!("{:?}", Change::Directory(inner)), name(outer, "inside")]);
        inotify.unwatch(outer);
        assert_eq!(heard(), [format!("{:?}", Change::Directory(outer))]);
    }
}
