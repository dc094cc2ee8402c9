//! From a request's path to an open file beneath the root.
//!
//! What was found is kept in the worker's cache. An [`Entry`] is made of one open file: validators,
//! head and bytes (or the descriptor that they are sent from) belong together, however old it is.
//! An entry that has not been checked for a while is checked by one look at what its name leads to
//! now, and a descriptor that is about to be sent from by one look at the file itself. One whose
//! directories are watched is found wrong as soon as a change was heard of, and checked more rarely.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http1::conditional::Validators;
use http1::{Refusal, Status, mime, path};
use mech::Key;
use mech::fs::{Cause, FileKind, How, OpenFile, Root, Stamp};
use mech::net::Net;
use mech::opening::{Openers, Opening};
use tracing::warn;

use super::Revalidate;
use super::cache::Cache;
use super::clock::Clock;
use super::reply::{self, UsualHead};
use super::stats::{Counters, Tally};
use super::watch::{DIRECTORIES_MOST, Trail, Watcher};

/// What a request for a directory gets.
const INDEX: &[u8] = b"index.html";

/// What an open descriptor counts in the cache at least, beside its memory: with it the limit of
/// bytes limits descriptors too.
const DESCRIPTOR_COST: usize = 64 * 1024;

/// How files are found and kept.
#[derive(Clone, Debug)]
pub(super) struct FileOptions {
    /// What a worker may keep, in bytes; 0: nothing.
    pub(super) cache: usize,
    /// How many descriptors a worker may keep.
    pub(super) descriptors: u64,
    /// How long an entry is right without a look at its name.
    pub(super) revalidate: Revalidate,
    /// Who opens what may need the disk; `None`: we do, and wait.
    pub(super) openers: Option<Arc<Openers>>,
    /// How files are opened.
    pub(super) how: How,
}

/// Who asks for a file, and may have to wait for it.
pub(super) struct Asker<'a> {
    pub(super) net: &'a Net,
    pub(super) key: Key,
    pub(super) counters: &'a Counters,
    /// The file that it has waited for.
    pub(super) given: Option<Opening>,
    /// The file that it is to wait for.
    pub(super) asked: &'a mut Option<Opening>,
}

/// The files of a site, as one worker finds them.
pub(super) struct Files {
    root: Arc<Root>,
    options: FileOptions,
    cache: Cache<Entry>,
    watcher: Option<Watcher>,
    /// Whether a file could not be watched, and the log knows.
    unwatched: bool,
    descriptor_cost: usize,
    /// Whether a descriptor may be among what is kept.
    keeps_descriptors: bool,
    /// The name under which the last request looked; kept for its memory.
    name: Vec<u8>,
}

/// One open file with everything a reply says of it.
pub(super) struct Entry {
    pub(super) source: Source,
    pub(super) len: u64,
    pub(super) validators: Validators,
    pub(super) content_type: &'static str,
    /// Under what name it was found.
    name: Box<[u8]>,
    stamp: Stamp,
    /// By what its changes are heard of, if they are.
    trail: Option<Trail>,
    /// The turn in which the open file was last seen to be as it was.
    looked: Cell<Instant>,
    /// Its bytes, if they are few, until the reply is prepared.
    content: Option<Vec<u8>>,
}

/// Where an entry's bytes are, and the head of its usual reply if one was prepared.
pub(super) enum Source {
    /// Behind the usual head.
    Memory(UsualHead),
    /// In the file.
    File(Rc<OwnedFd>, Option<UsualHead>),
}

/// What a path leads to.
pub(super) enum Found<'a> {
    File(Rc<Entry>),
    /// Nothing yet: the asker is to wait, and to ask again.
    Later,
    /// A directory whose path lacks its slash: relative links on its page would go astray.
    Redirect {
        name: &'a [u8],
        query: Option<&'a [u8]>,
    },
}

/// Why a path leads nowhere.
pub(super) enum Lost {
    /// The client's business.
    Refused(Refusal),
    /// Ours: the log should hear of it.
    Failed(Refusal, io::Error),
}

impl Files {
    /// # Errors
    /// As [`Watcher::new`], if changes are to be heard of.
    pub(super) fn new(root: Arc<Root>, options: FileOptions) -> io::Result<Files> {
        let watches = options.cache > 0 && options.revalidate.watched_after.is_some();
        let watcher = watches.then(|| Watcher::new(DIRECTORIES_MOST)).transpose()?;
        let share = options.cache as u64 / options.descriptors.max(1);
        Ok(Files {
            root,
            cache: Cache::new(options.cache),
            options,
            watcher,
            unwatched: false,
            descriptor_cost: DESCRIPTOR_COST.max(share as usize),
            keeps_descriptors: false,
            name: Vec::new(),
        })
    }

    /// By what we hear of changes, if we do.
    pub(super) fn watcher(&mut self) -> Option<&mut Watcher> {
        self.watcher.as_mut()
    }

    /// Gives back the descriptors that are kept, for there are none left to open anything else;
    /// `false`: none was kept.
    pub(super) fn give_back_descriptors(&mut self) -> bool {
        std::mem::take(&mut self.keeps_descriptors)
            && self.cache.remove_where(|entry| matches!(entry.source, Source::File(..)))
    }

    /// The file that `path` (the path and query of a request) led to not long ago: one look-up.
    pub(super) fn recall(&mut self, path: &[u8], now: Instant) -> Option<Rc<Entry>> {
        let path = without_query(path);
        let (entry, checked) = self.cache.get(path)?;
        let Revalidate { after, watched_after } = self.options.revalidate;
        let (after, holds) = match (&entry.trail, &self.watcher) {
            (Some(trail), Some(watcher)) => (watched_after.unwrap_or(after), watcher.holds(trail)),
            _ => (after, true),
        };
        let in_time = now < *checked + after;
        let file_as_it_was = match &entry.source {
            Source::Memory(_) => true,
            // Once per turn: the replies of one turn are as good as simultaneous.
            Source::File(..) if entry.looked.get() == now => true,
            Source::File(file, _) => {
                entry.looked.set(now);
                Stamp::of(file.as_fd()).is_ok_and(|stamp| stamp == entry.stamp)
            }
        };
        let name_as_it_was = || {
            let stamp = match &self.options.openers {
                Some(_) => self.root.stamp_at_once(&entry.name),
                None => self.root.stamp(&entry.name),
            };
            stamp.is_ok_and(|stamp| stamp == entry.stamp)
        };
        if holds && file_as_it_was && (in_time || name_as_it_was()) {
            if !in_time {
                *checked = now;
            }
            return Some(Rc::clone(entry));
        }
        self.cache.remove(path);
        None
    }

    /// Opens what `path` leads to, and keeps it if it is a file.
    pub(super) fn find<'a>(
        &'a mut self,
        path: &'a [u8],
        clock: &Clock,
        asker: &mut Asker<'_>,
    ) -> Result<Found<'a>, Lost> {
        let now = asker.net.now();
        let resolved = path::resolve(path, &mut self.name).map_err(Lost::Refused)?;
        if resolved.directory {
            if !self.name.is_empty() {
                self.name.push(b'/');
            }
            self.name.extend_from_slice(INDEX);
        }
        let Some(open) = self.open(asker).map_err(lost)? else { return Ok(Found::Later) };
        if open.noatime_refused {
            asker.counters.add(Tally::NoatimeRefused, 1);
        }
        match open.kind {
            FileKind::Regular => {
                let mut entry = Entry::new(open, &self.name, now);
                if self.options.cache > 0 {
                    self.watch(&mut entry);
                    let mut cost = entry.prepare(clock);
                    if matches!(entry.source, Source::File(..)) {
                        cost += self.descriptor_cost;
                        self.keeps_descriptors = true;
                    }
                    let entry = Rc::new(entry);
                    self.cache.insert(without_query(path), Rc::clone(&entry), cost, now);
                    return Ok(Found::File(entry));
                }
                Ok(Found::File(Rc::new(entry)))
            }
            FileKind::Directory if !resolved.directory => {
                Ok(Found::Redirect { name: &self.name, query: resolved.query })
            }
            FileKind::Directory => Err(refused(Status::NotFound, "")),
            FileKind::Other => Err(refused(Status::Forbidden, "not a regular file")),
        }
    }

    /// Opens what is called `self.name`; `None`: another thread does.
    fn open(&mut self, asker: &mut Asker<'_>) -> io::Result<Option<OpenFile>> {
        let how = self.options.how;
        loop {
            let opened = match (asker.given.take().and_then(Opening::take), &self.options.openers) {
                (Some(opened), _) => opened,
                (None, None) => self.root.open_as(&self.name, how),
                (None, Some(openers)) => match self.root.open_at_once(&self.name, how) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let remote = asker.net.remote();
                        let opening = openers.open(&self.root, &self.name, how, remote, asker.key);
                        *asker.asked = Some(opening?);
                        asker.counters.add(Tally::OpenedElsewhere, 1);
                        return Ok(None);
                    }
                    opened => opened,
                },
            };
            match opened {
                Err(error)
                    if Cause::of(&error) == Cause::Exhausted && self.give_back_descriptors() => {}
                opened => return opened.map(Some),
            }
        }
    }

    /// Has changes of the entry's file heard of from now on. Its bytes are not read yet; whether its
    /// name has led elsewhere since it was opened is looked at once more.
    fn watch(&mut self, entry: &mut Entry) {
        let Some(watcher) = &mut self.watcher else { return };
        match watcher.follow(&self.root, &entry.name) {
            Ok(trail) => {
                let stamp = self.root.stamp(&entry.name);
                entry.trail = stamp.is_ok_and(|stamp| stamp == entry.stamp).then_some(trail);
            }
            Err(error) if !std::mem::replace(&mut self.unwatched, true) => {
                let (name, after) = (entry.name.escape_ascii(), self.options.revalidate.after);
                warn!(
                    "cannot watch the way to {name}: {error}; such files are looked at after \
                       {after:?} (if too many are watched, raise fs.inotify.max_user_watches)"
                );
            }
            Err(_) => {}
        }
    }
}

impl Entry {
    fn new(open: OpenFile, name: &[u8], now: Instant) -> Entry {
        let OpenFile { fd, stamp, content, .. } = open;
        let Stamp { len, modified, modified_nanos, inode, .. } = stamp;
        Entry {
            source: Source::File(Rc::new(fd), None),
            len,
            validators: Validators::new(modified, modified_nanos, len, Some(inode)),
            content_type: mime::of(name),
            name: name.into(),
            stamp,
            trail: None,
            looked: Cell::new(now),
            content,
        }
    }

    /// Prepares the usual reply, with the bytes if they were few and are as they were, and says what
    /// the entry costs to keep, without the descriptor.
    fn prepare(&mut self, clock: &Clock) -> usize {
        let content = self.content.take();
        let Source::File(file, _) = &self.source else { return 0 };
        let file = Rc::clone(file);
        let (usual, has_body) = reply::usual_head(self, clock, |bytes| match &content {
            // If it was written to while it was read, the bytes may be of two states.
            Some(content) if Stamp::of(file.as_fd()).is_ok_and(|stamp| stamp == self.stamp) => {
                bytes.extend_from_slice(content);
                true
            }
            _ => self.len == 0,
        });
        let trail_cost = self.trail.as_ref().map_or(0, Trail::cost);
        let cost = size_of::<Entry>() + self.name.len() + trail_cost + usual.len();
        self.source =
            if has_body { Source::Memory(usual) } else { Source::File(file, Some(usual)) };
        cost
    }

    /// The head of the usual reply, and the body behind it if that is in memory.
    pub(super) fn usual(&self) -> Option<&UsualHead> {
        match &self.source {
            Source::Memory(usual) => Some(usual),
            Source::File(_, usual) => usual.as_ref(),
        }
    }
}

/// Files do not depend on the query.
fn without_query(path: &[u8]) -> &[u8] {
    path.iter().position(|&byte| byte == b'?').map_or(path, |end| &path[..end])
}

fn refused(status: Status, reason: &'static str) -> Lost {
    Lost::Refused(Refusal { status, reason })
}

/// What the kernel's refusal to open means for the client.
fn lost(error: io::Error) -> Lost {
    let (status, reason) = match Cause::of(&error) {
        Cause::Missing => return refused(Status::NotFound, ""),
        Cause::Forbidden => return refused(Status::Forbidden, ""),
        Cause::Exhausted => (Status::ServiceUnavailable, "try again later"),
        Cause::Broken => (Status::InternalServerError, ""),
    };
    Lost::Failed(Refusal { status, reason }, error)
}
