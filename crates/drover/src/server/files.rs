//! From a request's path to an open file beneath the root.
//!
//! What was found is kept in the worker's cache. An [`Entry`] is made of one open file: validators,
//! head and bytes (or the descriptor that they are sent from) belong together, however old it is.
//! An entry that has not been checked for a while is checked by one look at what its name leads to
//! now, and a descriptor that is about to be sent from by one look at the file itself. One whose
//! directories are watched is found wrong as soon as a change was heard of, and checked more rarely.
//!
//! What is not kept is opened at once if that takes no disk, and otherwise by another thread, under its
//! name ([`super::pending`]).

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http1::path::{self, Resolved};
use http1::{Refusal, Status};
use mech::Key;
use mech::fs::{Cause, FileKind, How, OpenFile, Root};
use mech::net::Net;
use mech::open_pool::{OpenPool, OpenResults, Opened};
use tracing::{info, warn};

use super::Revalidate;
use super::cache::Cache;
use super::clock::{Clock, Throttle};
use super::entry::{Entry, Source};
use super::pending::{Opening, Outcome, PendingOpen};
use super::stats::{Counters, Tally};
use super::watch::{DIRECTORIES_MOST, Watcher};

/// What a request for a directory gets.
const INDEX: &[u8] = b"index.html";

/// What an open descriptor counts in the cache at least, beside its memory: with it the limit of
/// bytes limits descriptors too.
const DESCRIPTOR_COST: usize = 64 * 1024;

/// A descriptor that nobody has asked for so long is closed: its file may have been removed.
const UNUSED_FOR: Duration = Duration::from_secs(60);

/// Of what is kept, a [`Files::sweep`] looks at so many entries and a part of all of them: one in so
/// many.
const SWEPT_LEAST: usize = 64;
const SWEPT_PART: usize = 8;

/// How files are found and kept.
#[derive(Clone, Debug)]
pub(super) struct FileOptions {
    /// What a worker may keep, in bytes; 0: nothing.
    pub(super) cache: usize,
    /// How many descriptors a worker may keep.
    pub(super) descriptors: u64,
    /// How long an entry is right without a look at its name, and the root without a look at its path.
    pub(super) revalidate: Revalidate,
    /// How files are opened.
    pub(super) how: How,
    /// Whether names that begin with a dot are served ([`path::Resolved::hidden`]).
    pub(super) hidden: bool,
}

/// The worker that looks files up.
pub(super) struct LookupContext<'a> {
    pub(super) net: &'a Net,
    pub(super) clock: &'a Clock,
    pub(super) counters: &'a Counters,
}

/// The connection that a file is looked up for.
pub(super) struct Requester {
    pub(super) key: Key,
    /// The file that its first request has waited for.
    pub(super) awaited: Option<Rc<PendingOpen>>,
}

/// The files of a site, as one worker finds them.
pub(super) struct Files {
    root: Arc<Root>,
    /// When it was last looked where the root's path leads; `None`: it is to be looked at the next
    /// request.
    root_checked: Option<Instant>,
    options: FileOptions,
    cache: Cache<Entry>,
    /// What other threads are opening; `None`: the worker opens everything, and waits.
    opening: Option<Opening>,
    watcher: Option<Watcher>,
    /// Whether a file could not be watched, and the log knows.
    unwatched: bool,
    descriptor_cost: usize,
    /// Whether a descriptor may be among what is kept.
    keeps_descriptors: bool,
    /// The name under which the last request looked; kept for its memory.
    name: Vec<u8>,
    complaints: Throttle,
}

/// What a request's path leads to.
pub(super) enum Lookup<'a> {
    Ready(Rc<Entry>),
    /// A directory whose path lacks its slash: relative links on its page would go astray.
    Redirect {
        name: &'a [u8],
        query: Option<&'a [u8]>,
    },
    Refused(Refusal),
    /// The file is being opened: wait for it, and ask again.
    Pending(Rc<PendingOpen>),
}

impl Files {
    /// # Errors
    /// As [`Watcher::new`], if changes are to be heard of.
    pub(super) fn new(root: Arc<Root>, options: FileOptions, now: Instant) -> io::Result<Files> {
        let watches = options.cache > 0 && options.revalidate.watched_after.is_some();
        let watcher = watches.then(|| Watcher::new(DIRECTORIES_MOST)).transpose()?;
        let share = options.cache as u64 / options.descriptors.max(1);
        Ok(Files {
            root,
            root_checked: Some(now),
            cache: Cache::new(options.cache),
            options,
            opening: None,
            watcher,
            unwatched: false,
            descriptor_cost: DESCRIPTOR_COST.max(share as usize),
            keeps_descriptors: false,
            name: Vec::new(),
            complaints: Throttle::default(),
        })
    }

    /// Has `pool` open what may need a disk; [`Files::complete`] takes it from `results`.
    pub(super) fn open_elsewhere(&mut self, pool: Arc<OpenPool>, results: Arc<OpenResults>) {
        self.opening = Some(Opening::new(pool, results));
    }

    /// By what we hear of changes, if we do.
    pub(super) fn watcher(&mut self) -> Option<&mut Watcher> {
        self.watcher.as_mut()
    }

    /// Gives back the descriptors that are kept, for there are none left to open anything else;
    /// `false`: none was kept.
    pub(super) fn give_back_descriptors(&mut self) -> bool {
        std::mem::take(&mut self.keeps_descriptors)
            && self.cache.remove_where(Entry::keeps_descriptor)
    }

    /// Closes some of the files that are kept open and have changed, or were removed, or have not been
    /// asked for in a while. To be called now and then: in time it comes to all.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.keeps_descriptors {
            let some = SWEPT_LEAST + self.cache.len() / SWEPT_PART;
            self.cache.sweep(some, |entry| {
                entry.keeps_descriptor()
                    && (now.saturating_duration_since(entry.looked.get()) > UNUSED_FOR
                        || !entry.file_is_as_it_was())
            });
        }
    }

    /// Looks up what `path` (the path and query of a request) leads to.
    pub(super) fn look_up<'a>(
        &'a mut self,
        path: &'a [u8],
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Lookup<'a> {
        match self.recall(path, context.net.now()) {
            Some(entry) => Lookup::Ready(entry),
            None => self.find(path, requester, context),
        }
    }

    /// Takes in what other threads have opened: an entry of each file, under the name that was opened,
    /// for the connections that wait for that name.
    pub(super) fn complete(&mut self, context: &LookupContext<'_>) {
        let results = self.opening.as_ref().map(|opening| opening.results().take());
        for opened in results.unwrap_or_default() {
            match opened {
                Opened::Root { before, now } => {
                    if let Some(opening) = &mut self.opening {
                        opening.looked_at_root();
                    }
                    // Where the root has been replaced since, by a look at once, that look was later.
                    // A path that leads nowhere is no reason to give up the directory that is open.
                    if let Ok(Some(now)) = now
                        && Arc::ptr_eq(&before, &self.root)
                    {
                        self.replace_root(now);
                        // The path may lead elsewhere again already: the next request looks.
                        self.root_checked = None;
                    }
                }
                Opened::File { root, name, result } => {
                    let again = !Arc::ptr_eq(&root, &self.root)
                        || result.as_ref().is_err_and(|error| self.makes_room_after(error));
                    let Some(opening) = &mut self.opening else { continue };
                    if again && opening.open(&self.root, &name, self.options.how).is_ok() {
                        continue;
                    }
                    if let Some(open) = opening.end(&name) {
                        open.finish(root, self.outcome(&name, result, context), context.net);
                    }
                }
            }
        }
    }

    /// The file that `path` led to not long ago: one look-up.
    fn recall(&mut self, path: &[u8], now: Instant) -> Option<Rc<Entry>> {
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
            Source::File(..) => entry.looked.replace(now) == now || entry.file_is_as_it_was(),
        };
        let name_as_it_was = || {
            let stamp = match &self.opening {
                Some(_) => self.root.stamp_at_once(&entry.name),
                None => self.root.stamp(&entry.name),
            };
            stamp.is_ok_and(|stamp| stamp == entry.stamp)
        };
        if !(holds && file_as_it_was && (in_time || name_as_it_was())) {
            self.cache.remove(path);
            return None;
        }
        let entry = Rc::clone(entry);
        if !in_time {
            *checked = now;
            // If it is, nothing is kept any more.
            if self.root_is_replaced(now) {
                return None;
            }
        }
        Some(entry)
    }

    /// Opens what `path` leads to, and keeps it if it is a file.
    fn find<'a>(
        &'a mut self,
        path: &'a [u8],
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Lookup<'a> {
        let now = context.net.now();
        self.root_is_replaced(now);
        let resolved = match self.resolve(path) {
            Ok(resolved) => resolved,
            Err(refusal) => return Lookup::Refused(refusal),
        };
        let name = std::mem::take(&mut self.name);
        let found = self.open(&name, requester, context);
        self.name = name;
        match found {
            Err(open) => Lookup::Pending(open),
            Ok(Outcome::File(entry)) => {
                self.keep(path, &entry, now);
                Lookup::Ready(entry)
            }
            Ok(Outcome::Directory) if resolved.directory => {
                Lookup::Refused(Refusal { status: Status::NotFound, reason: "" })
            }
            Ok(Outcome::Directory) => Lookup::Redirect { name: &self.name, query: resolved.query },
            Ok(Outcome::Refused(refusal)) => Lookup::Refused(refusal),
        }
    }

    /// Puts the name of the file that `path` means into `self.name`.
    fn resolve<'a>(&mut self, path: &'a [u8]) -> Result<Resolved<'a>, Refusal> {
        let resolved = path::resolve(path, &mut self.name)?;
        if resolved.hidden && !self.options.hidden {
            return Err(Refusal { status: Status::NotFound, reason: "" });
        }
        if resolved.directory {
            if !self.name.is_empty() {
                self.name.push(b'/');
            }
            self.name.extend_from_slice(INDEX);
        }
        Ok(resolved)
    }

    /// What `name` leads to; `Err`: another thread opens it.
    fn open(
        &mut self,
        name: &[u8],
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Result<Outcome, Rc<PendingOpen>> {
        let awaited = requester.awaited.take();
        if let Some(outcome) = awaited.and_then(|open| open.outcome_of(&self.root, name)) {
            return Ok(outcome);
        }
        if let Some(open) = self.opening.as_ref().and_then(|it| it.join(name, requester.key)) {
            return Err(open);
        }
        let how = self.options.how;
        let mut opened = self.open_here(name);
        if opened.as_ref().is_err_and(|error| self.makes_room_after(error)) {
            opened = self.open_here(name);
        }
        if let (Err(error), Some(opening)) = (&opened, &mut self.opening)
            && error.kind() == io::ErrorKind::WouldBlock
        {
            match opening.begin(&self.root, name, how, requester.key) {
                Ok(open) => {
                    context.counters.add(Tally::OpenedElsewhere, 1);
                    return Err(open);
                }
                Err(error) => opened = Err(error),
            }
        }
        Ok(self.outcome(name, opened, context))
    }

    /// Opens `name` on this thread: as far as that takes no disk, if other threads open the rest.
    fn open_here(&self, name: &[u8]) -> io::Result<OpenFile> {
        match &self.opening {
            Some(_) => self.root.open_at_once(name, self.options.how),
            None => self.root.open_as(name, self.options.how),
        }
    }

    /// Whether opening has failed for want of descriptors, and some that were kept are closed now.
    fn makes_room_after(&mut self, error: &io::Error) -> bool {
        // Of an opening at once, the same error says that a disk is needed.
        error.kind() != io::ErrorKind::WouldBlock
            && Cause::of(error) == Cause::Exhausted
            && self.give_back_descriptors()
    }

    /// What it means for a request that `name` was opened, or could not be.
    fn outcome(
        &mut self,
        name: &[u8],
        opened: io::Result<OpenFile>,
        context: &LookupContext<'_>,
    ) -> Outcome {
        let open = match opened {
            Ok(open) => open,
            Err(error) => return Outcome::Refused(self.refusal(name, &error, context.net.now())),
        };
        if open.noatime_refused {
            context.counters.add(Tally::NoatimeRefused, 1);
        }
        match open.kind {
            FileKind::Regular => {
                let mut entry = Entry::new(open, name, context.net.now());
                if self.options.cache > 0 {
                    self.watch(&mut entry);
                    entry.prepare(context.clock);
                }
                Outcome::File(Rc::new(entry))
            }
            FileKind::Directory => Outcome::Directory,
            FileKind::Other => Outcome::Refused(Refusal {
                status: Status::Forbidden,
                reason: "not a regular file",
            }),
        }
    }

    /// What the kernel's refusal to open `name` means for the client; the log hears of it if the fault
    /// is not the client's.
    fn refusal(&mut self, name: &[u8], error: &io::Error, now: Instant) -> Refusal {
        let (status, reason) = match Cause::of(error) {
            Cause::Missing => return Refusal { status: Status::NotFound, reason: "" },
            Cause::Forbidden => return Refusal { status: Status::Forbidden, reason: "" },
            Cause::Exhausted => (Status::ServiceUnavailable, "try again later"),
            Cause::Broken => (Status::InternalServerError, ""),
        };
        if let Some(others) = self.complaints.ask(now) {
            let name = name.escape_ascii();
            warn!("cannot open {name}: {error} ({others} like this were not logged)");
        }
        Refusal { status, reason }
    }

    /// Keeps an entry for the next request with this path.
    fn keep(&mut self, path: &[u8], entry: &Rc<Entry>, now: Instant) {
        if self.options.cache == 0 {
            return;
        }
        let mut cost = entry.cost;
        if entry.keeps_descriptor() {
            cost += self.descriptor_cost;
            self.keeps_descriptors = true;
        }
        self.cache.insert(without_query(path), Rc::clone(entry), cost, now);
    }

    /// Looks where the root's path leads, unless it was looked at not long ago. If that takes a disk,
    /// another thread looks, and [`Files::complete`] hears of it.
    fn root_is_replaced(&mut self, now: Instant) -> bool {
        let after = self.options.revalidate.after;
        if self.root_checked.is_some_and(|checked| now < checked + after) {
            return false;
        }
        self.root_checked = Some(now);
        let replaced = match &self.opening {
            Some(_) => self.root.replaced_at_once(),
            None => self.root.replaced(),
        };
        match (replaced, &mut self.opening) {
            (Ok(Some(root)), _) => {
                self.replace_root(root);
                return true;
            }
            (Err(error), Some(opening)) if error.kind() == io::ErrorKind::WouldBlock => {
                // If no thread can look now, one does after the next interval.
                let _ = opening.look_at_root(&self.root);
            }
            // A path that leads nowhere is no reason to give up the directory that is open.
            (Ok(None) | Err(_), _) => {}
        }
        false
    }

    /// Serves another directory from now on; what is kept was found beneath the one before.
    fn replace_root(&mut self, root: Root) {
        info!("{} is another directory now", root.name());
        self.root = Arc::new(root);
        self.cache.remove_where(|_| true);
        self.keeps_descriptors = false;
        if let Some(watcher) = &mut self.watcher {
            watcher.forget_everything();
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

/// Files do not depend on the query.
fn without_query(path: &[u8]) -> &[u8] {
    path.iter().position(|&byte| byte == b'?').map_or(path, |end| &path[..end])
}

#[cfg(test)]
mod tests {
    use mech::net::NetOptions;

    use super::super::stats::Board;
    use super::*;

    /// A directory whose names the kernel never has at hand: it asks procfs each time.
    const NEVER_AT_HAND: &str = "/proc/sys/kernel";

    const KEY: Key = Key { slot: 0, generation: 1 };

    /// What `work` makes of the files beneath that directory, which one thread opens.
    fn with_files(work: impl FnOnce(&mut Files, &OpenResults, &LookupContext<'_>)) {
        let mechanism = mech::dispatch::auto_of_readiness().unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let options = FileOptions {
            cache: 1 << 20,
            descriptors: 10,
            revalidate: Revalidate { after: Duration::ZERO, watched_after: None },
            how: How::default(),
            hidden: false,
        };
        let root = Arc::new(Root::open(NEVER_AT_HAND.as_ref()).unwrap());
        let mut files = Files::new(root, options, net.now()).unwrap();
        let results = OpenResults::new(net.remote(), KEY);
        files.open_elsewhere(Arc::new(OpenPool::new(1)), Arc::clone(&results));
        let (clock, counters) = (Clock::new(net.now()), Board::new(1).unwrap().of(0));
        work(
            &mut files,
            &results,
            &LookupContext { net: &net, clock: &clock, counters: &counters },
        );
    }

    /// Asks for `path`, which another thread has to open.
    #[track_caller]
    fn begin(files: &mut Files, path: &[u8], context: &LookupContext<'_>) -> Rc<PendingOpen> {
        let mut requester = Requester { key: KEY, awaited: None };
        match files.look_up(path, &mut requester, context) {
            Lookup::Pending(open) => open,
            _ => panic!("it is at hand"),
        }
    }

    #[test]
    fn one_thread_looks_at_the_root_however_many_requests_want_it() {
        with_files(|files, results, context| {
            let names = [&b"/ostype"[..], b"/osrelease", b"/hostname"];
            let opens = names.map(|name| begin(files, name, context));
            // Its one thread does what it is asked for in that order.
            let (mut looks, mut opened) = (0, 0);
            while opened < opens.len() {
                for result in results.take() {
                    match result {
                        Opened::Root { .. } => looks += 1,
                        Opened::File { .. } => opened += 1,
                    }
                }
                std::thread::yield_now();
            }
            assert_eq!(looks, 1);
        });
    }

    #[test]
    fn what_was_opened_beneath_another_root_answers_nobody() {
        let other = tempfile::tempdir().unwrap();
        with_files(|files, results, context| {
            for is_replaced in [false, true] {
                let open = begin(files, b"/ostype", context);
                while !open.is_done() {
                    while results.is_empty() {
                        std::thread::yield_now();
                    }
                    files.complete(context);
                }
                if is_replaced {
                    files.replace_root(Root::open(other.path()).unwrap());
                }
                let mut requester = Requester { key: KEY, awaited: Some(open) };
                let found = files.look_up(b"/ostype", &mut requester, context);
                assert_eq!(matches!(found, Lookup::Ready(_)), !is_replaced);
            }
        });
    }
}
