//! Files that are being opened by other threads, and the requests that wait for them.
//!
//! A look-up is keyed by its file's name from question to answer: there is one [`PendingOpen`] for each
//! name that is being opened, whoever asks, and what comes out stays with that name.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use http1::Refusal;
use mech::Key;
use mech::fs::{How, Root};
use mech::net::Net;
use mech::open_pool::{OpenPool, OpenResults};

use super::entry::Entry;

/// What a file's name leads to.
#[derive(Clone)]
pub(super) enum Outcome {
    /// A file that can be sent.
    File(Rc<Entry>),
    Directory,
    Refused(Refusal),
}

/// A name that is being opened.
pub(super) struct PendingOpen {
    name: Box<[u8]>,
    /// The connections that wait for it.
    waiters: RefCell<BTreeSet<Key>>,
    /// What has come out, and beneath which root.
    outcome: OnceCell<(Arc<Root>, Outcome)>,
}

/// The names that a worker has opened by other threads: each once, however many ask for it.
pub(super) struct Opening {
    pool: Arc<OpenPool>,
    results: Arc<OpenResults>,
    by_name: HashMap<Box<[u8]>, Rc<PendingOpen>>,
    /// Whether a thread looks where the root's path leads, or is about to.
    looks_at_root: bool,
}

impl PendingOpen {
    /// Whether the file is open, or cannot be opened.
    pub(super) fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// What has come out, if it was `name` beneath `root` that was opened: the site may have another
    /// root by now.
    pub(super) fn outcome_of(&self, root: &Arc<Root>, name: &[u8]) -> Option<Outcome> {
        let (opened_beneath, outcome) = self.outcome.get()?;
        let is_it = Arc::ptr_eq(opened_beneath, root) && *self.name == *name;
        is_it.then(|| outcome.clone())
    }

    /// The connection `key` waits no longer, although nothing has come out.
    pub(super) fn leave(&self, key: Key) {
        self.waiters.borrow_mut().remove(&key);
    }

    /// Says what has come out beneath `root`, and resumes the connections that wait: they ask again by
    /// name.
    pub(super) fn finish(&self, root: Arc<Root>, outcome: Outcome, net: &Net) {
        // `Opening::end` has taken the name out of the table, so this happens once.
        let _ = self.outcome.set((root, outcome));
        for key in self.waiters.take() {
            net.wake(key);
        }
    }
}

impl Opening {
    pub(super) fn new(pool: Arc<OpenPool>, results: Arc<OpenResults>) -> Opening {
        Opening { pool, results, by_name: HashMap::new(), looks_at_root: false }
    }

    /// Lets the connection `key` wait for `name`, which is being opened already; `None`: it is not.
    pub(super) fn join(&self, name: &[u8], key: Key) -> Option<Rc<PendingOpen>> {
        let open = self.by_name.get(name)?;
        open.waiters.borrow_mut().insert(key);
        Some(Rc::clone(open))
    }

    /// Has `name` opened for the connection `key`.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub(super) fn begin(
        &mut self,
        root: &Arc<Root>,
        name: &[u8],
        how: How,
        key: Key,
    ) -> io::Result<Rc<PendingOpen>> {
        self.open(root, name, how)?;
        let waiters = RefCell::new(BTreeSet::from([key]));
        let open = Rc::new(PendingOpen { name: name.into(), waiters, outcome: OnceCell::new() });
        self.by_name.insert(name.into(), Rc::clone(&open));
        Ok(open)
    }

    /// Has `name` opened again, for those who wait for it already.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub(super) fn open(&self, root: &Arc<Root>, name: &[u8], how: How) -> io::Result<()> {
        self.pool.open(root, name, how, &self.results)
    }

    /// Has a thread look where the root's path leads by now, unless one does already: looks that hang
    /// would take the threads that files need.
    ///
    /// # Errors
    /// As [`OpenPool::open`].
    pub(super) fn look_at_root(&mut self, root: &Arc<Root>) -> io::Result<()> {
        if !self.looks_at_root {
            self.pool.look_at_root(root, &self.results)?;
            self.looks_at_root = true;
        }
        Ok(())
    }

    /// The look at the root has ended.
    pub(super) fn looked_at_root(&mut self) {
        self.looks_at_root = false;
    }

    /// Takes out the name that has been opened.
    pub(super) fn end(&mut self, name: &[u8]) -> Option<Rc<PendingOpen>> {
        self.by_name.remove(name)
    }

    /// What other threads have opened since the last call.
    pub(super) fn results(&self) -> &Arc<OpenResults> {
        &self.results
    }
}

#[cfg(test)]
mod tests {
    use mech::net::NetOptions;

    use super::*;

    /// A directory whose names the kernel never has at hand: it asks procfs each time.
    const NEVER_AT_HAND: &str = "/proc/sys/kernel";

    #[test]
    fn who_waits_no_longer_leaves_nothing_behind() {
        let mechanism = mech::dispatch::auto_of_readiness().unwrap();
        let net = Net::open(&NetOptions::new(mechanism)).unwrap();
        let key = |generation| Key { slot: 3, generation };
        let results = OpenResults::new(net.remote(), key(0));
        let mut opening = Opening::new(Arc::new(OpenPool::new(1)), results);
        let root = Arc::new(Root::open(NEVER_AT_HAND.as_ref()).unwrap());
        let open = opening.begin(&root, b"ostype", How::default(), key(1)).unwrap();
        for generation in 2..100 {
            let joined = opening.join(b"ostype", key(generation)).unwrap();
            assert!(Rc::ptr_eq(&joined, &open));
            joined.leave(key(generation));
        }
        assert_eq!(open.waiters.take(), BTreeSet::from([key(1)]));
    }
}
