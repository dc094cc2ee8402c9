//! From a request's path to an open file beneath the root.
//!
//! [`SiteFiles::look_up`] first asks the worker's cache. An [`FileEntry`] in the cache is made of one open file,
//! so its validators, its head and its bytes (or the descriptor that they are sent from) always belong
//! together. Before an entry answers a request, it is checked:
//!
//! - once per `--revalidate`, that its name still leads to the same file (one stat), beneath the directory that the root's
//!   path leads to;
//! - if it is sent from a descriptor, once per turn of the worker, that the file has not changed (one
//!   fstat);
//! - if its directories are watched ([`super::watch`]), that no change was reported. Then the name is
//!   looked at more rarely.
//!
//! What the kernel can find out without a disk, or another machine, the worker asks at once. Otherwise another thread opens
//! the file, or checks it ([`super::pending`]); the connection waits and looks its path up again. Nothing is sent unchecked
//! because a look would have to wait.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use drover_http1::conditional::ListField;
use drover_http1::{FieldList, Refusal, Status};
use drover_mech::files::open_pool::{OpenPool, OpenResults, Opened};
use drover_mech::files::root::{Cause, FileKind, OpenFile, OpenOptions, Root};
use drover_mech::net::Net;
use tracing::{info, warn};

use crate::clock::{DateClock, Throttle};
use crate::lookup::candidates::NameOptions;
use crate::lookup::entry::{EntryContext, EntrySource, FileEntry};
use crate::lookup::kept::KeptFiles;
use crate::lookup::listings::form::WantedList;
use crate::lookup::listings::{FoundListing, SiteListings};
use crate::lookup::pending::{
    LookupOutcome, MISSING, PendingAnswer, PendingOpens, PendingOutcome, Requester,
};
use crate::lookup::revalidate::{Revalidate, RootWatch};
use crate::lookup::watch::{DIRECTORIES_MOST, Watcher};
use crate::private_files::OwnFiles;
use crate::rules::{AddedFields, Cors, ErrorPage, EtagSource, HeaderRule, Redirect};
use crate::status::statistics::{Counter, WorkerCounters};

mod find;
mod fresh;
mod list;

use list::listed;

/// How files are found and kept.
#[derive(Clone, Debug)]
pub(crate) struct FileOptions {
    /// For how long an entry is trusted without a look at its name, and the root without a look at its
    /// path.
    pub(crate) revalidate: Revalidate,
    /// Who is told that the root is another directory, which this process may not read.
    pub(crate) root_watch: RootWatch,
    /// The files that no root may hold.
    pub(crate) own_files: OwnFiles,
    /// How files are opened.
    pub(crate) how: OpenOptions,
    /// What lists directories, if they are shown.
    pub(crate) listings: Option<SiteListings>,
    /// What entity tags are made of.
    pub(crate) etag: EtagSource,
    /// Whether names that begin with a dot are served ([`drover_http1::path::Resolved::hidden`]).
    pub(crate) hidden: bool,
    /// What else a path may mean than the file of its name.
    pub(crate) names: Arc<NameOptions>,
    /// Files that are sent with errors.
    pub(crate) error_pages: Arc<[ErrorPage]>,
    /// Fields that responses have in addition.
    pub(crate) headers: Arc<[HeaderRule]>,
    /// Those of them that go ahead, while a file is opened elsewhere.
    pub(crate) early_hints: Arc<[HeaderRule]>,
    /// Which pages of other sites may read responses.
    pub(crate) cors: Option<Arc<Cors>>,
    /// Paths that have moved.
    pub(crate) redirects: Arc<[Redirect]>,
}

/// What a request asks for, as far as it decides what is sent.
#[derive(Clone, Copy)]
pub(crate) struct WantedFile<'r> {
    /// Path and query.
    pub(crate) path: &'r [u8],
    /// `Accept-Encoding`, if the file may be sent in a stored form.
    pub(crate) codings: Option<ListField<'r>>,
    /// Whether a browser asks for a page to show.
    pub(crate) is_page: bool,
    /// Which list of a directory is asked for, if a directory is.
    pub(crate) list: WantedList,
}

/// The worker that looks files up.
pub(crate) struct LookupContext<'a> {
    pub(crate) net: &'a Net,
    pub(crate) clock: &'a DateClock,
    pub(crate) counters: &'a WorkerCounters,
}

/// The files of a site, as one worker finds them.
pub(crate) struct SiteFiles {
    root: Arc<Root>,
    /// When the last look at the root's path was begun that has ended.
    root_checked: Instant,
    options: FileOptions,
    /// What is kept, of this site and of the worker's other ones.
    kept: Rc<RefCell<KeptFiles>>,
    /// The number of this site among them.
    site: u32,
    /// What other threads are opening; `None`: the worker opens files itself, and waits for the disk.
    pending: Option<PendingOpens>,
    watcher: Option<Watcher>,
    /// Whether the log has said already that the root is out of reach.
    out_of_reach: bool,
    /// Whether the log has said already that the root would hold a file of the server.
    holds_own_file: bool,
    /// Whether the log has said already that a file could not be watched.
    unwatched: bool,
    /// The name that the last request's path means, and the last name that was looked for; kept between requests for
    /// their memory.
    name: Vec<u8>,
    candidate: Vec<u8>,
    complaints: Throttle,
}

/// What a request's path leads to.
pub(crate) enum Lookup<'a> {
    Ready(Rc<FileEntry>),
    /// A directory whose path lacks the slash at its end, without which a browser would resolve relative
    /// links on its page wrongly.
    Redirect {
        name: &'a [u8],
        query: Option<&'a [u8]>,
    },
    /// The path has moved there.
    Moved(Status, Vec<u8>),
    /// A directory without an index.
    Listing(FoundListing),
    Refused(Refusal),
    /// Another thread opens or checks a file, or looks where the root is: wait until that is done, then look up again.
    Pending(Rc<PendingAnswer>),
}

impl SiteFiles {
    /// # Errors
    /// If files are to be watched: the error of inotify_init1(2).
    pub(crate) fn new(
        root: Arc<Root>,
        options: FileOptions,
        (kept, site): (Rc<RefCell<KeptFiles>>, u32),
        now: Instant,
    ) -> io::Result<SiteFiles> {
        let watches = kept.borrow().keeps() && options.revalidate.watched_after.is_some();
        let watcher = watches.then(|| Watcher::new(DIRECTORIES_MOST)).transpose()?;
        Ok(SiteFiles {
            root,
            root_checked: now,
            kept,
            site,
            options,
            pending: None,
            watcher,
            unwatched: false,
            out_of_reach: false,
            holds_own_file: false,
            name: Vec::new(),
            candidate: Vec::new(),
            complaints: Throttle::default(),
        })
    }

    /// From now on, has `pool` open the files that may need a disk. Their results come in `results`;
    /// [`SiteFiles::complete`] has to be called then.
    pub(crate) fn open_elsewhere(&mut self, pool: Arc<OpenPool>, results: Arc<OpenResults>) {
        // Without a thread, this one closes files.
        let _ = pool.look_after(&self.root);
        self.pending = Some(PendingOpens::new(pool, results, self.options.listings.clone()));
    }

    /// What watches the files, if they are watched.
    pub(crate) fn watcher(&mut self) -> Option<&mut Watcher> {
        self.watcher.as_mut()
    }

    /// Looks up what is wanted.
    #[inline]
    pub(crate) fn look_up<'a>(
        &'a mut self,
        wanted: WantedFile<'a>,
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Lookup<'a> {
        let (path, now) = (without_query(wanted.path), context.net.now());
        if self.root_is_due(requester, now)
            && let Some(other) = self.look_at_root(requester.key, now)
        {
            return other;
        }
        let recalled = self.recall(path, wanted.codings, requester, now);
        // Counted once, when it is looked up first.
        if !requester.was_looked_up() {
            let is_hit = matches!(recalled, Ok(Some(_)));
            context.counters.add(if is_hit { Counter::CacheHits } else { Counter::CacheMisses }, 1);
        }
        match recalled {
            Ok(Some(entry)) => Lookup::Ready(entry),
            Ok(None) => self.find(wanted, requester, context),
            Err(check) => Lookup::Pending(check),
        }
    }

    /// Whether [`WantedFile::list`] decides anything for this path.
    pub(crate) fn may_list(&self, path: &[u8]) -> bool {
        self.options.names.listing && without_query(path).ends_with(b"/")
    }

    /// Whether [`WantedFile::is_page`] decides anything.
    pub(crate) fn tells_pages_apart(&self) -> bool {
        self.options.names.fallback.is_some()
    }

    /// The fields that may go ahead of a file while another thread opens it.
    pub(crate) fn early_hints(&self, open: &PendingAnswer) -> FieldList {
        let hints = |name| AddedFields::of(&self.options.early_hints, name).fields;
        open.name().map(hints).unwrap_or_default()
    }

    /// Takes the results of other threads, makes an entry of each file, and resumes the connections that
    /// wait for its name.
    pub(crate) fn complete(&mut self, context: &LookupContext<'_>) {
        let results = self.pending.as_ref().map(|pending| pending.results().take());
        for opened in results.unwrap_or_default() {
            match opened {
                Opened::Root { before, now } => self.looked_at_root(&before, now, context.net),
                Opened::Checked { root, key, is_same } => {
                    self.checked(&root, &key, is_same, context.net);
                }
                Opened::File { root, name, result } => {
                    if let Some(open) = self.end_pending(&root, &name, result.as_ref().err()) {
                        let outcome = self.outcome(&name, result, context);
                        open.finish(PendingOutcome::Opened(root, outcome), context.net);
                    }
                }
                Opened::Listed { root, name, result } => {
                    if let Some(open) = self.end_pending(&root, &name, result.as_ref().err()) {
                        let outcome = self.list_outcome(&name, result, context);
                        open.finish(PendingOutcome::Opened(root, outcome), context.net);
                    }
                }
            }
        }
    }

    /// Takes what waits for `name` out of the table, whose result has come; `None`: another thread looks once more.
    fn end_pending(
        &mut self,
        root: &Arc<Root>,
        name: &[u8],
        error: Option<&io::Error>,
    ) -> Option<Rc<PendingAnswer>> {
        let makes_room = error.is_some_and(|error| self.makes_room_after(error));
        let pending = self.pending.as_mut()?;
        let gave_up = error.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted);
        let again =
            makes_room || !Arc::ptr_eq(root, &self.root) || (gave_up && pending.is_awaited(name));
        if again && pending.begin_again(&self.root, name, self.options.how).is_ok() {
            return None;
        }
        pending.remove(name)
    }

    /// The kept entry with this key, in the form that `codings` asks for, if it is still right. `Err`: another thread finds
    /// that out.
    fn recall(
        &mut self,
        key: &[u8],
        codings: Option<ListField<'_>>,
        requester: &Requester,
        now: Instant,
    ) -> Result<Option<Rc<FileEntry>>, Rc<PendingAnswer>> {
        let mut kept = self.kept.borrow_mut();
        let Some((entry, checked)) = kept.get(self.site, key) else { return Ok(None) };
        let form = FileEntry::form_for(entry, codings);
        let Revalidate { after, watched_after } = self.options.revalidate;
        let (after, holds) = match (&entry.watched, &self.watcher) {
            (Some(watched), Some(watcher)) => {
                (watched_after.unwrap_or(after), watcher.holds(watched))
            }
            _ => (after, true),
        };
        let is_checked = requester.has_checked(&self.root, key);
        let in_time = is_checked || now < *checked + after;
        let file_as_it_was = match &form.source {
            EntrySource::Memory(_) => Ok(true),
            // Once per turn: all responses of one turn count as simultaneous.
            EntrySource::File(..) if is_checked || form.looked.get() == now => Ok(true),
            EntrySource::File(..) => form.try_is_as_it_was(),
        };
        let is_right = match (holds, file_as_it_was) {
            (false, _) | (true, Ok(false)) => Ok(false),
            (true, Ok(true)) if in_time => Ok(true),
            // A tag that has become a strong one is made anew.
            (true, Ok(true)) if !entry.tags_are_current(now) => Ok(false),
            (true, _) if self.pending.is_none() => Ok(self.root.still_has(entry.names())),
            (true, Ok(true)) => self.root.try_still_has(entry.names()),
            (true, Err(error)) => Err(error),
        };
        match is_right {
            Ok(true) => {
                if !in_time {
                    *checked = now;
                }
                form.looked.set(now);
                Ok(Some(Rc::clone(form)))
            }
            Ok(false) => {
                kept.remove(self.site, key);
                Ok(None)
            }
            Err(_) => {
                let entry = Rc::clone(entry);
                drop(kept);
                self.check_elsewhere(key, &entry, requester.key)
            }
        }
    }

    /// Opens `name`, or takes what was opened for this connection; `Err`: another thread opens it.
    fn open(
        &mut self,
        name: &[u8],
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Result<LookupOutcome, Rc<PendingAnswer>> {
        let awaited = requester.awaited.take();
        if let Some(outcome) = awaited.and_then(|open| open.outcome_of(&self.root, name)) {
            return Ok(outcome);
        }
        if let Some(open) = self.pending.as_ref().and_then(|it| it.join(name, requester.key)) {
            return Err(open);
        }
        let how = self.options.how;
        let mut opened = self.open_here(name);
        if let Err(error) = &opened
            && Cause::of(error) == Cause::Exhausted
        {
            if self.pending.is_some() {
                // Another thread opens the file once those that are being closed are. If that does not help,
                // [`SiteFiles::complete`] makes room.
                opened = Err(io::ErrorKind::WouldBlock.into());
            } else if self.makes_room_after(error) {
                opened = self.open_here(name);
            }
        }
        if let Ok(directory) = &opened
            && let Some(wanted) = self.list_of_get(name)
            && directory.kind == FileKind::Directory
        {
            match self.listed_at_hand(name, &directory.stamp, context.net.now()) {
                Some(bytes) => return Ok(listed(wanted, Some(bytes))),
                None if self.pending.is_none() => {
                    return Ok(self.list_here(name, directory, context));
                }
                None => opened = Err(io::ErrorKind::WouldBlock.into()),
            }
        }
        if let (Err(error), Some(pending)) = (&opened, &mut self.pending)
            && error.kind() == io::ErrorKind::WouldBlock
        {
            match pending.begin(&self.root, name, how, requester.key) {
                Ok(open) => {
                    context.counters.add(Counter::OpenedElsewhere, 1);
                    return Err(open);
                }
                Err(error) => opened = Err(error),
            }
        }
        Ok(self.outcome(name, opened, context))
    }

    /// Opens `name` on the worker's thread. If other threads can open files, this one does not wait for
    /// a disk: `WouldBlock` then.
    fn open_here(&self, name: &[u8]) -> io::Result<OpenFile> {
        match &self.pending {
            Some(_) => self.root.try_open_cached(name, self.options.how),
            None => self.root.open_as(name, self.options.how),
        }
    }

    /// Has the kept descriptors closed if `error` says that descriptors or memory have run out. Returns
    /// whether some were closed: then another attempt may succeed.
    fn makes_room_after(&mut self, error: &io::Error) -> bool {
        // `WouldBlock` says that a disk is needed ([`Root::try_open_cached`]).
        error.kind() != io::ErrorKind::WouldBlock
            && Cause::of(error) == Cause::Exhausted
            && self.kept.borrow_mut().give_back_descriptors()
    }

    /// What the result of opening `name` means for a request.
    fn outcome(
        &mut self,
        name: &[u8],
        opened: io::Result<OpenFile>,
        context: &LookupContext<'_>,
    ) -> LookupOutcome {
        let open = match opened {
            Ok(open) => open,
            Err(error) => {
                return LookupOutcome::Refused(self.refusal(name, &error, context.net.now()));
            }
        };
        if open.noatime_refused {
            context.counters.add(Counter::NoatimeRefused, 1);
        }
        match open.kind {
            FileKind::Regular => {
                let added = AddedFields::of(&self.options.headers, name);
                let (now, second) = (context.net.now(), context.clock.seconds());
                let made = EntryContext { now, second, etag: self.options.etag };
                let mut entry = FileEntry::new(open, name, added, made);
                let keeps = self.kept.borrow().keeps();
                if keeps && !entry.unmeasured {
                    self.watch(&mut entry);
                }
                if keeps || entry.unmeasured {
                    let cors = self.options.cors.as_deref();
                    entry.prepare(context.clock, cors.map(Cors::always));
                }
                LookupOutcome::File(Rc::new(entry))
            }
            FileKind::Directory => self.directory(name, &open.stamp, context.net.now()),
            FileKind::Other => LookupOutcome::Refused(Refusal {
                status: Status::Forbidden,
                reason: "not a regular file",
            }),
        }
    }

    /// The response if the requested file, `name`, could not be opened. Logged unless the client is at
    /// fault.
    fn refusal(&mut self, name: &[u8], error: &io::Error, now: Instant) -> Refusal {
        let (status, reason) = match Cause::of(error) {
            Cause::Missing => return MISSING,
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

    /// Serves another directory from now on, and empties the cache: its entries were found beneath the
    /// root before. `false`: this process may not read the other directory, or must not serve it, and serves the root before on.
    fn replace_root(&mut self, root: Root) -> bool {
        if let Err(reason) = self.options.own_files.refuse_root(&root) {
            if !std::mem::replace(&mut self.holds_own_file, true) {
                warn!("{} is another directory now, and not served: {reason:#}", root.name());
            }
            return false;
        }
        self.holds_own_file = false;
        if root.is_out_of_reach() {
            if self.options.root_watch.tell() {
                return false;
            }
            if !std::mem::replace(&mut self.out_of_reach, true) {
                warn!(
                    "{} is another directory now, which the sandbox keeps from this server: the one before is \
                     served on. Start the server again; or make ROOT a symbolic link, which may lead to \
                     other directories beside the first; or use --no-sandbox",
                    root.name()
                );
            }
            return false;
        }
        self.out_of_reach = false;
        info!("{} is another directory now", root.name());
        self.root = Arc::new(root);
        self.kept.borrow_mut().forget_site(self.site);
        if let Some(watcher) = &mut self.watcher {
            watcher.forget_everything();
        }
        true
    }

    /// Watches the way to the entry's file from now on. To be called before [`FileEntry::prepare`], which
    /// checks the bytes. A change between the opening and the watch was not reported, so the name is
    /// looked at once more.
    fn watch(&mut self, entry: &mut FileEntry) {
        let Some(watcher) = &mut self.watcher else { return };
        let forms = entry.forms.iter().map(|form| &form.name);
        let watched = watcher.follow(&self.root, &entry.name).and_then(|watched| {
            forms.into_iter().try_fold(watched, |watched, name| {
                Ok(watched.and(watcher.follow(&self.root, name)?))
            })
        });
        match watched {
            Ok(watched) => {
                let same = self.root.still_has(entry.names());
                entry.watched = same.then_some(watched);
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
    use std::time::Duration;

    use drover_mech::Key;
    use drover_mech::net::NetOptions;

    use super::*;
    use crate::lookup::pending::RequestKey;
    use crate::status::statistics::CounterTable;

    /// A directory whose names the kernel never has at hand: it asks procfs each time.
    const NEVER_AT_HAND: &str = "/proc/sys/kernel";

    const KEY: Key = Key { slot: 0, generation: 1 };
    const REQUEST: RequestKey = RequestKey { connection: KEY, stream: 0 };

    /// What `work` makes of the files beneath that directory, which one thread opens.
    fn with_files(work: impl FnOnce(&mut SiteFiles, &OpenResults, &LookupContext<'_>)) {
        let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let options = FileOptions {
            revalidate: Revalidate { after: Duration::ZERO, watched_after: None },
            root_watch: RootWatch::default(),
            own_files: OwnFiles::default(),
            how: OpenOptions::default(),
            listings: None,
            etag: EtagSource::default(),
            hidden: false,
            names: Arc::default(),
            error_pages: [].into(),
            headers: [].into(),
            early_hints: [].into(),
            cors: None,
            redirects: [].into(),
        };
        let root = Arc::new(Root::open(NEVER_AT_HAND.as_ref()).unwrap());
        let mut files =
            SiteFiles::new(root, options, (KeptFiles::new(1 << 20, 10), 0), net.now()).unwrap();
        let results = OpenResults::new(net.remote(), KEY);
        files.open_elsewhere(Arc::new(OpenPool::new(1)), Arc::clone(&results));
        let (clock, counters) = (DateClock::new(net.now()), CounterTable::new(1).unwrap().of(0));
        work(
            &mut files,
            &results,
            &LookupContext { net: &net, clock: &clock, counters: &counters },
        );
    }

    fn wanted(path: &[u8]) -> WantedFile<'_> {
        WantedFile { path, codings: None, is_page: false, list: WantedList::default() }
    }

    /// Takes results until the answer is there.
    fn complete(
        files: &mut SiteFiles,
        answer: &PendingAnswer,
        results: &OpenResults,
        context: &LookupContext<'_>,
    ) {
        while !answer.is_done() {
            while results.is_empty() {
                std::thread::yield_now();
            }
            files.complete(context);
        }
    }

    /// Asks for `path` when `awaited` is there; another thread has to find something out.
    #[track_caller]
    fn ask(
        files: &mut SiteFiles,
        path: &[u8],
        awaited: Option<Rc<PendingAnswer>>,
        context: &LookupContext<'_>,
    ) -> Rc<PendingAnswer> {
        let mut requester = Requester { key: REQUEST, awaited };
        match files.look_up(wanted(path), &mut requester, context) {
            Lookup::Pending(open) => open,
            _ => panic!("it is at hand"),
        }
    }

    #[test]
    fn one_thread_looks_at_the_root_however_many_requests_want_it() {
        with_files(|files, results, context| {
            let names = [&b"/ostype"[..], b"/osrelease", b"/hostname"];
            let looks = names.map(|name| ask(files, name, None, context));
            assert!(looks.iter().all(|look| Rc::ptr_eq(look, &looks[0]) && look.name().is_none()));
            complete(files, &looks[0], results, context);
            // Whoever has waited for the root waits for the file now, and not for the root again.
            for (name, look) in names.into_iter().zip(looks) {
                let open = ask(files, name, Some(look), context);
                assert_eq!(open.name(), Some(&name[1..]));
                complete(files, &open, results, context);
            }
        });
    }

    #[test]
    fn what_was_opened_beneath_another_root_answers_nobody() {
        let other = tempfile::tempdir().unwrap();
        with_files(|files, results, context| {
            for is_replaced in [false, true] {
                let look = ask(files, b"/ostype", None, context);
                complete(files, &look, results, context);
                let open = ask(files, b"/ostype", Some(look), context);
                complete(files, &open, results, context);
                if is_replaced {
                    files.replace_root(Root::open(other.path()).unwrap());
                }
                let mut requester = Requester { key: REQUEST, awaited: Some(open) };
                let found = files.look_up(wanted(b"/ostype"), &mut requester, context);
                assert_eq!(matches!(found, Lookup::Ready(_)), !is_replaced);
            }
        });
    }
}
