//! What other threads are finding out for a worker, above all files that they open, and the connections that wait for it.
//!
//! A name is opened once, however many connections ask for it: [`PendingOpens`] has one [`PendingAnswer`]
//! per name. Its outcome can be had for that name and that root only, so the bytes of one file can never
//! be sent under the name of another.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use drover_http1::{Refusal, Status};
use drover_mech::Key;
use drover_mech::files::open_pool::{OpenPool, OpenResults};
use drover_mech::files::root::{Listing, OpenOptions, Root};
use drover_mech::net::Net;

use crate::lookup::entry::FileEntry;

/// What a name leads to.
#[derive(Clone)]
pub(crate) enum LookupOutcome {
    /// A regular file, open.
    File(Rc<FileEntry>),
    Directory,
    /// What a directory holds, if that was asked for.
    Listing(Rc<Listing>),
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

/// A name that is being opened, or credentials that are being verified. A table has it until the outcome is known; the
/// connections that have waited keep it until they have asked again.
pub(crate) struct PendingAnswer {
    /// The name, or the tag of the credentials.
    asked: Box<[u8]>,
    /// The connections that wait for the outcome; with why their request is refused, if that is known.
    waiters: RefCell<BTreeMap<Key, Option<Refusal>>>,
    /// The outcome, and the root beneath which the name was opened; `None` within: it was no name.
    outcome: OnceCell<Option<(Arc<Root>, LookupOutcome)>>,
    /// Whether the name is `posts.html` and was asked for in place of a directory `posts`, which is served if there is no such
    /// file.
    beside_directory: Cell<bool>,
}

/// What other threads are opening for one worker.
pub(crate) struct PendingOpens {
    pool: Arc<OpenPool>,
    results: Arc<OpenResults>,
    by_name: HashMap<Box<[u8]>, Rc<PendingAnswer>>,
    /// Whether a look where the root's path leads is under way, or queued.
    looks_at_root: bool,
}

impl PendingAnswer {
    /// Something that was just asked for, for the connection `key`.
    pub(crate) fn new(asked: &[u8], key: Key) -> Rc<PendingAnswer> {
        let waiters = RefCell::new(BTreeMap::from([(key, None)]));
        let (outcome, beside_directory) = (OnceCell::new(), Cell::new(false));
        Rc::new(PendingAnswer { asked: asked.into(), waiters, outcome, beside_directory })
    }

    /// Notes that there is a directory whose name lacks the suffix of this one.
    pub(crate) fn stands_beside_directory(&self) {
        self.beside_directory.set(true);
    }

    /// Whether there was a directory whose name lacks the suffix of this one.
    pub(crate) fn is_beside_directory(&self) -> bool {
        self.beside_directory.get()
    }

    /// Adds the connection `key` to those that wait.
    pub(crate) fn join(&self, key: Key) {
        self.waiters.borrow_mut().insert(key, None);
    }

    /// The name that is being opened, or the tag of the credentials.
    pub(crate) fn asked(&self) -> &[u8] {
        &self.asked
    }

    /// Whether the outcome is known.
    pub(crate) fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// The outcome, if it is known and of `name` beneath `root`. The site may have another root since
    /// the name was given to the pool.
    pub(crate) fn outcome_of(&self, root: &Arc<Root>, name: &[u8]) -> Option<LookupOutcome> {
        let (opened_beneath, outcome) = self.outcome.get()?.as_ref()?;
        let is_asked_for = Arc::ptr_eq(opened_beneath, root) && *self.asked == *name;
        is_asked_for.then(|| outcome.clone())
    }

    /// Notes that the request of the connection `key`, which waits, is refused.
    pub(crate) fn refuse(&self, key: Key, refusal: Refusal) {
        self.waiters.borrow_mut().insert(key, Some(refusal));
    }

    /// Why the request of the connection `key` is refused, if that was known before it waited.
    pub(crate) fn refusal_of(&self, key: Key) -> Option<Refusal> {
        self.waiters.borrow().get(&key).copied().flatten()
    }

    /// Forgets the connection `key`, which has given up waiting.
    pub(crate) fn leave(&self, key: Key) {
        self.waiters.borrow_mut().remove(&key);
    }

    /// Sets the outcome, and resumes the connections that wait. Each then looks its path up again, and
    /// finds the outcome by [`PendingAnswer::outcome_of`].
    pub(crate) fn finish(&self, root: Arc<Root>, outcome: LookupOutcome, net: &Net) {
        // The outcome is set once only: the caller has just taken this out of the table.
        let _ = self.outcome.set(Some((root, outcome)));
        self.resume(net);
    }

    /// Resumes the connections that wait for something that is no file; `refusal`: why their requests are refused.
    pub(crate) fn finish_without_file(&self, refusal: Option<Refusal>, net: &Net) {
        let _ = self.outcome.set(None);
        self.waiters.borrow_mut().values_mut().for_each(|it| *it = refusal);
        self.resume(net);
    }

    fn resume(&self, net: &Net) {
        for key in self.waiters.borrow().keys() {
            net.wake(*key);
        }
    }
}

impl PendingOpens {
    pub(crate) fn new(pool: Arc<OpenPool>, results: Arc<OpenResults>) -> PendingOpens {
        PendingOpens { pool, results, by_name: HashMap::new(), looks_at_root: false }
    }

    /// Adds the connection `key` to those that wait for `name`; `None`: `name` is not being opened.
    pub(crate) fn join(&self, name: &[u8], key: Key) -> Option<Rc<PendingAnswer>> {
        let open = self.by_name.get(name)?;
        open.join(key);
        Some(Rc::clone(open))
    }

    /// Has a thread open `name`, which is not being opened yet, for the connection `key`.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full.
    pub(crate) fn begin(
        &mut self,
        root: &Arc<Root>,
        name: &[u8],
        how: OpenOptions,
        key: Key,
    ) -> io::Result<Rc<PendingAnswer>> {
        self.begin_again(root, name, how)?;
        let open = PendingAnswer::new(name, key);
        self.by_name.insert(name.into(), Rc::clone(&open));
        Ok(open)
    }

    /// Has a thread open `name` anew, for the connections that wait for it already: what the first
    /// opening returned is of no use.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full.
    pub(crate) fn begin_again(
        &self,
        root: &Arc<Root>,
        name: &[u8],
        how: OpenOptions,
    ) -> io::Result<()> {
        self.pool.open(root, name, how, &self.results)
    }

    /// Has a thread look where the root's path leads now, unless such a look is under way: looks that
    /// hang would otherwise take all the threads that files need.
    ///
    /// # Errors
    /// `WouldBlock` when no thread can be started, or the queue of the pool is full.
    pub(crate) fn look_at_root(&mut self, root: &Arc<Root>) -> io::Result<()> {
        if !self.looks_at_root {
            self.pool.look_at_root(root, &self.results)?;
            self.looks_at_root = true;
        }
        Ok(())
    }

    /// The result of the look at the root has come.
    pub(crate) fn looked_at_root(&mut self) {
        self.looks_at_root = false;
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
        let key = |generation| Key { slot: 3, generation };
        let results = OpenResults::new(net.remote(), key(0));
        let mut pending = PendingOpens::new(Arc::new(OpenPool::new(1)), results);
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
