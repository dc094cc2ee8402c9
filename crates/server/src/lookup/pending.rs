//! What other threads are finding out for a worker, above all files that they open and check, and the connections that wait for it.
//!
//! A name is opened once, however many connections ask for it: [`PendingOpens`] has one [`PendingAnswer`]
//! per name. Its outcome can be had for that name and that root only, so the bytes of one file can never
//! be sent under the name of another.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use drover_http1::{Refusal, Status};
use drover_mech::Key;
use drover_mech::files::open_pool::{OpenPool, OpenResults};
use drover_mech::files::root::{ExpectedName, OpenOptions, Root};
use drover_mech::net::Net;

use crate::lookup::entry::FileEntry;
use crate::lookup::listings::form::WantedList;
use crate::lookup::listings::{FoundListing, ListQuery, SiteListings};

/// Whose request it is, and which of that connection's. HTTP/1 answers one request of a connection at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    pub(crate) connection: Key,
    /// Which of the connection's streams; 0 where a connection has one.
    pub(crate) stream: u32,
}

/// A request that something is looked up for.
#[derive(Clone)]
pub(crate) struct Requester {
    pub(crate) key: RequestKey,
    /// What it has waited for, if it has. Its outcome is for the first look-up that needs a file opened.
    pub(crate) awaited: Option<Rc<PendingAnswer>>,
}

impl Requester {
    /// Whether it was looked up before, and has waited for what that needed.
    #[inline]
    pub(crate) fn was_looked_up(&self) -> bool {
        let kind = self.awaited.as_ref().map(|it| it.kind);
        matches!(kind, Some(PendingKind::Opening | PendingKind::Check))
    }

    /// Whether the root's path was looked at for it, or need not have been. One that has waited for its credentials was not
    /// looked up yet.
    #[inline]
    pub(crate) fn has_root(&self) -> bool {
        self.awaited.as_ref().is_some_and(|it| it.kind != PendingKind::Credentials)
    }

    /// Why the request is refused, if that was decided before it waited for the error page, or is what it has waited for: wrong
    /// credentials.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.awaited.as_ref().and_then(|open| open.refusal_of(self.key))
    }

    /// Whether another thread has just found right, for this request, what is kept under `key`.
    pub(crate) fn has_checked(&self, root: &Arc<Root>, key: &[u8]) -> bool {
        self.awaited.as_ref().is_some_and(|check| check.is_same(root, key))
    }
}

/// What a name leads to.
#[derive(Clone)]
pub(crate) enum LookupOutcome {
    /// A regular file, open.
    File(Rc<FileEntry>),
    Directory,
    /// The list of a directory, if that was asked for.
    Listing(FoundListing),
    /// Nothing that can be served, or it could not be opened.
    Refused(Refusal),
}

/// There is no such file.
pub(crate) const MISSING: Refusal = Refusal { status: Status::NotFound, reason: "" };

impl LookupOutcome {
    pub(crate) const MISSING: LookupOutcome = LookupOutcome::Refused(MISSING);

    /// Whether there is nothing with this name.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, LookupOutcome::Refused(refusal) if *refusal == MISSING)
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingKind {
    /// A file of a name is being opened.
    Opening,
    /// A kept file is being checked.
    Check,
    /// Where the root's path leads.
    Root,
    /// Credentials are being verified, before anything is looked up.
    Credentials,
}

/// A name that is being opened, a kept file or the root's path that is being checked, or credentials that are being
/// verified. A table has it until the outcome is known; the connections that have waited keep it until they have asked again.
pub(crate) struct PendingAnswer {
    /// The name, the key of the kept file, or the tag of the credentials.
    asked: Box<[u8]>,
    kind: PendingKind,
    /// Who waits for the outcome; with why their request is refused, if that is known.
    waiters: RefCell<BTreeMap<RequestKey, Option<Refusal>>>,
    outcome: OnceCell<PendingOutcome>,
    /// Whether the name is `posts.html` and was asked for in place of a directory `posts`, which is served if there is no such
    /// file.
    beside_directory: Cell<bool>,
    /// Shows the threads that make a list whether anybody waits for it.
    is_wanted: OnceCell<Arc<AtomicBool>>,
}

/// What was found out.
pub(crate) enum PendingOutcome {
    /// What the name leads to, beneath the root.
    Opened(Arc<Root>, LookupOutcome),
    /// What is kept under the key is still right, beneath the root.
    Same(Arc<Root>),
    /// Something that concerns no single file, or that what is kept is no longer right. Whoever has waited looks again.
    LookAgain,
}

/// What other threads are opening for one worker.
pub(crate) struct PendingOpens {
    pool: Arc<OpenPool>,
    results: Arc<OpenResults>,
    /// What lists directories, if they are shown.
    listings: Option<SiteListings>,
    by_name: HashMap<Box<[u8]>, Rc<PendingAnswer>>,
    /// The kept files that are being checked, by the keys they are kept under.
    checks: HashMap<Box<[u8]>, Rc<PendingAnswer>>,
    /// The look where the root's path leads that is under way, and since when.
    look_at_root: Option<(Rc<PendingAnswer>, Instant)>,
}

impl PendingAnswer {
    /// Something that was just asked for, for the request `key`.
    pub(crate) fn new(asked: &[u8], kind: PendingKind, key: RequestKey) -> Rc<PendingAnswer> {
        let waiters = RefCell::new(BTreeMap::from([(key, None)]));
        let (outcome, beside_directory) = (OnceCell::new(), Cell::new(false));
        let (asked, is_wanted) = (asked.into(), OnceCell::new());
        Rc::new(PendingAnswer { asked, kind, waiters, outcome, beside_directory, is_wanted })
    }

    /// Notes that there is a directory whose name lacks the suffix of this one.
    pub(crate) fn stands_beside_directory(&self) {
        self.beside_directory.set(true);
    }

    /// Whether there was a directory whose name lacks the suffix of this one.
    pub(crate) fn is_beside_directory(&self) -> bool {
        self.beside_directory.get()
    }

    /// Adds the request `key` to those that wait.
    pub(crate) fn join(&self, key: RequestKey) {
        self.waiters.borrow_mut().insert(key, None);
        self.set_wanted(true);
    }

    fn set_wanted(&self, is_wanted: bool) {
        if let Some(flag) = self.is_wanted.get() {
            flag.store(is_wanted, Ordering::SeqCst);
        }
    }

    /// Whether a connection waits for the outcome.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }

    /// The name that is being opened, if one is.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        (self.kind == PendingKind::Opening).then_some(&*self.asked)
    }

    /// Whether the outcome is known.
    pub(crate) fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// The outcome, if it is known and of `name` beneath `root`. The site may have another root since
    /// the name was given to the pool.
    pub(crate) fn outcome_of(&self, root: &Arc<Root>, name: &[u8]) -> Option<LookupOutcome> {
        let Some(PendingOutcome::Opened(beneath, outcome)) = self.outcome.get() else {
            return None;
        };
        let is_asked_for = Arc::ptr_eq(beneath, root) && *self.asked == *name;
        is_asked_for.then(|| outcome.clone())
    }

    /// Whether what is kept under `key` was found right, beneath `root`.
    pub(crate) fn is_same(&self, root: &Arc<Root>, key: &[u8]) -> bool {
        let outcome = self.outcome.get();
        let beneath =
            |it: &PendingOutcome| matches!(it, PendingOutcome::Same(it) if Arc::ptr_eq(it, root));
        outcome.is_some_and(beneath) && *self.asked == *key
    }

    /// Notes that the request `key`, which waits, is refused.
    pub(crate) fn refuse(&self, key: RequestKey, refusal: Refusal) {
        self.waiters.borrow_mut().insert(key, Some(refusal));
    }

    /// Why the request `key` is refused, if that is known.
    pub(crate) fn refusal_of(&self, key: RequestKey) -> Option<Refusal> {
        self.waiters.borrow().get(&key).copied().flatten()
    }

    /// Forgets the request `key`, which has given up waiting.
    pub(crate) fn leave(&self, key: RequestKey) {
        self.waiters.borrow_mut().remove(&key);
        self.set_wanted(self.has_waiters());
    }

    /// Sets the outcome, and resumes the connections whose requests wait. Each then looks its path up again, and
    /// finds the outcome by [`PendingAnswer::outcome_of`].
    pub(crate) fn finish(&self, outcome: PendingOutcome, net: &Net) {
        // The outcome is set once only: the caller has just taken this out of the table.
        let _ = self.outcome.set(outcome);
        for key in self.waiters.borrow().keys() {
            net.wake(key.connection);
        }
    }

    /// Resumes the connections that wait for something that is no file; `refusal`: why their requests are refused.
    pub(crate) fn finish_without_file(&self, refusal: Option<Refusal>, net: &Net) {
        self.waiters.borrow_mut().values_mut().for_each(|it| *it = refusal);
        self.finish(PendingOutcome::LookAgain, net);
    }
}

impl PendingOpens {
    pub(crate) fn new(
        pool: Arc<OpenPool>,
        results: Arc<OpenResults>,
        listings: Option<SiteListings>,
    ) -> PendingOpens {
        let (by_name, checks) = (HashMap::new(), HashMap::new());
        PendingOpens { pool, results, listings, by_name, checks, look_at_root: None }
    }

    /// Adds the request `key` to those that wait for `name`; `None`: `name` is not being opened.
    pub(crate) fn join(&self, name: &[u8], key: RequestKey) -> Option<Rc<PendingAnswer>> {
        let open = self.by_name.get(name)?;
        open.join(key);
        Some(Rc::clone(open))
    }

    /// Has a thread open `name`, which is not being opened yet, for the request `key`. If it is the name of a list, the list
    /// is made.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full.
    pub(crate) fn begin(
        &mut self,
        root: &Arc<Root>,
        name: &[u8],
        how: OpenOptions,
        key: RequestKey,
    ) -> io::Result<Rc<PendingAnswer>> {
        let open = PendingAnswer::new(name, PendingKind::Opening, key);
        self.ask(root, &open, how)?;
        self.by_name.insert(name.into(), Rc::clone(&open));
        Ok(open)
    }

    /// Has a thread open `name` anew, for the connections that wait for it already: what the first
    /// opening returned is of no use.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full. `NotFound`: no connection has asked for it.
    pub(crate) fn begin_again(
        &self,
        root: &Arc<Root>,
        name: &[u8],
        how: OpenOptions,
    ) -> io::Result<()> {
        let open = self.by_name.get(name).ok_or(io::ErrorKind::NotFound)?;
        self.ask(root, open, how)
    }

    fn ask(&self, root: &Arc<Root>, open: &PendingAnswer, how: OpenOptions) -> io::Result<()> {
        let name = &open.asked;
        let is_list = WantedList::of_name(name).is_some_and(|(wanted, _)| !wanted.is_head);
        let Some(SiteListings { listings, options }) = self.listings.as_ref().filter(|_| is_list)
        else {
            return self.pool.open(root, name, how, &self.results);
        };
        let is_wanted = open.is_wanted.get_or_init(|| Arc::new(AtomicBool::new(true)));
        listings.begin(ListQuery {
            root: Arc::clone(root),
            name: name.clone(),
            options: *options,
            results: Arc::clone(&self.results),
            is_wanted: Arc::clone(is_wanted),
        })
    }

    /// Whether connections wait for `name`.
    pub(crate) fn is_awaited(&self, name: &[u8]) -> bool {
        self.by_name.get(name).is_some_and(|open| open.has_waiters())
    }

    /// Has a thread look, for the request `requester`, whether what is kept under `key` is still right, unless such a
    /// look is under way. `names`: the names it depends on.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full.
    pub(crate) fn check(
        &mut self,
        root: &Arc<Root>,
        key: &[u8],
        names: impl FnOnce() -> Vec<ExpectedName>,
        requester: RequestKey,
    ) -> io::Result<Rc<PendingAnswer>> {
        if let Some(check) = self.checks.get(key) {
            check.join(requester);
            return Ok(Rc::clone(check));
        }
        self.pool.check(root, key, names(), &self.results)?;
        let check = PendingAnswer::new(key, PendingKind::Check, requester);
        self.checks.insert(key.into(), Rc::clone(&check));
        Ok(check)
    }

    /// Takes the check of what is kept under `key`, whose result has come, out of the table.
    pub(crate) fn end_check(&mut self, key: &[u8]) -> Option<Rc<PendingAnswer>> {
        self.checks.remove(key)
    }

    /// Has a thread look, for the request `requester`, where the root's path leads now, unless such a look is under
    /// way: looks that hang would otherwise take all the threads that files need.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full.
    pub(crate) fn look_at_root(
        &mut self,
        root: &Arc<Root>,
        requester: RequestKey,
        now: Instant,
    ) -> io::Result<Rc<PendingAnswer>> {
        if let Some((look, _)) = &self.look_at_root {
            look.join(requester);
            return Ok(Rc::clone(look));
        }
        self.pool.look_at_root(root, &self.results)?;
        let look = PendingAnswer::new(b"", PendingKind::Root, requester);
        self.look_at_root = Some((Rc::clone(&look), now));
        Ok(look)
    }

    /// Takes the look at the root, whose result has come; with when it was asked for.
    pub(crate) fn end_look_at_root(&mut self) -> Option<(Rc<PendingAnswer>, Instant)> {
        self.look_at_root.take()
    }

    /// Takes `name`, whose result has come, out of the table.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Rc<PendingAnswer>> {
        self.by_name.remove(name)
    }

    /// Where the results come in.
    pub(crate) fn results(&self) -> &Arc<OpenResults> {
        &self.results
    }
}

#[cfg(test)]
mod tests {
    use drover_mech::net::NetOptions;

    use super::*;

    /// A directory whose names the kernel never has at hand: it asks procfs each time.
    const NEVER_AT_HAND: &str = "/proc/sys/kernel";

    #[test]
    fn who_waits_no_longer_leaves_nothing_behind() {
        let mechanism = drover_mech::mechanisms::auto_of_readiness().unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let of = |generation| Key { slot: 3, generation };
        let key = |generation| RequestKey { connection: of(generation), stream: 0 };
        let results = OpenResults::new(net.remote(), of(0));
        let mut pending = PendingOpens::new(Arc::new(OpenPool::new(1)), results, None);
        let root = Arc::new(Root::open(NEVER_AT_HAND.as_ref()).unwrap());
        let open = pending.begin(&root, b"ostype", OpenOptions::default(), key(1)).unwrap();
        for generation in 2..100 {
            let joined = pending.join(b"ostype", key(generation)).unwrap();
            assert!(Rc::ptr_eq(&joined, &open));
            joined.leave(key(generation));
        }
        assert_eq!(open.waiters.take(), BTreeMap::from([(key(1), None)]));
    }
}
