//! What one worker serves, and how it is looked after: files that other threads open, changes, memory and descriptors that run out.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use drover_mech::files::open_pool::{OpenPool, OpenResults};
use drover_mech::net::Net;
use drover_sys::process::give_back_memory;
use tracing::warn;

use crate::auth::VerifiedTags;
use crate::clock::Throttle;
use crate::lookup::files::{LookupContext, SiteFiles};
#[cfg(doc)]
use crate::lookup::kept::KeptFiles;
use crate::lookup::watch::Watcher;
use crate::respond::answer::SiteState;

/// A worker's sites.
pub(crate) struct Site<'w> {
    pub(crate) state: RefCell<SiteState<'w>>,
    complaints: RefCell<Throttle>,
    out_of_memory: RefCell<Throttle>,
}

impl<'w> Site<'w> {
    pub(crate) fn new(state: SiteState<'w>) -> Site<'w> {
        let (complaints, out_of_memory) = Default::default();
        Site { state: RefCell::new(state), complaints, out_of_memory }
    }

    /// How many sites there are: their numbers count from 0.
    pub(crate) fn count(&self) -> usize {
        self.state.borrow().sites.all.len()
    }

    /// Whether a site has files.
    pub(crate) fn has_files(&self, number: usize) -> bool {
        self.with_files(number, |_| ()).is_some()
    }

    /// Has `pool` open what may need a disk for a site, and tell the coroutine `key`, which is to call
    /// [`Site::complete`] then.
    pub(crate) fn open_elsewhere(
        &self,
        number: usize,
        pool: &Arc<OpenPool>,
        results: &Arc<OpenResults>,
    ) {
        self.with_files(number, |files| {
            files.open_elsewhere(Arc::clone(pool), Arc::clone(results));
        });
    }

    /// Receives the files of a site that other threads have opened.
    pub(crate) fn complete(&self, number: usize, net: &Net) {
        let SiteState { clock, sites, counters } = &mut *self.state.borrow_mut();
        if let Some(files) = sites.all[number].files() {
            files.complete(&LookupContext { net, clock, counters });
        }
    }

    /// Whether a site is for users alone.
    pub(crate) fn has_users(&self, number: usize) -> bool {
        self.state.borrow().sites.all[number].auth.is_some()
    }

    /// Has passwords of a site's users verified by other threads, whose results come in `results`. [`Site::verified`] has to
    /// be called then.
    pub(crate) fn verify_by(&self, number: usize, results: &Arc<VerifiedTags>) {
        if let Some(auth) = &mut self.state.borrow_mut().sites.all[number].auth {
            auth.verify_by(Arc::clone(results));
        }
    }

    /// Receives what other threads have found out of passwords for a site.
    pub(crate) fn verified(&self, number: usize, net: &Net) {
        if let Some(auth) = &mut self.state.borrow_mut().sites.all[number].auth {
            auth.complete(net);
        }
    }

    /// Closes kept files that no request has used ([`KeptFiles::sweep`]), and forgets old lists of directories.
    pub(crate) fn sweep(&self, now: Instant) {
        let state = self.state.borrow();
        state.sites.kept.borrow_mut().sweep(now);
        state.sites.listings.sweep(now);
    }

    /// What is readable when there are changes of a site's files to [`Site::hear`], if any are heard of.
    pub(crate) fn changes(&self, number: usize) -> io::Result<Option<OwnedFd>> {
        let watched = self.with_files(number, |it| it.watcher().map(|it| it.descriptor()));
        watched.flatten().transpose()
    }

    /// Handles reported changes of a site's files.
    pub(crate) fn hear(&self, number: usize) -> io::Result<()> {
        let heard = self.with_files(number, |it| it.watcher().map(Watcher::hear));
        heard.flatten().unwrap_or(Ok(()))
    }

    fn with_files<R>(&self, number: usize, work: impl FnOnce(&mut SiteFiles) -> R) -> Option<R> {
        self.state.borrow_mut().sites.all[number].files().map(work)
    }

    /// Whether one more message may be logged: `Some` with the number of messages held back.
    pub(crate) fn may_complain(&self, now: Instant) -> Option<u64> {
        self.complaints.borrow_mut().ask(now)
    }

    /// Memory has run out: frees what is kept for requests to come.
    #[cold]
    pub(crate) fn free_memory(&self, net: &Net) {
        // Some of it may be in the reserve, which must not stay there.
        self.state.borrow().sites.kept.borrow_mut().forget_everything();
        net.shrink_to_used();
        let Some(others) = self.out_of_memory.borrow_mut().ask(net.now()) else { return };
        give_back_memory();
        warn!(
            "memory has run out: the cache is emptied, and connections that need more are closed; allow more memory \
             (ulimit -v, ulimit -d), or lower --cache or --max-connections ({others} like this not logged)"
        );
    }

    /// Closes kept descriptors to make room; `false`: none was kept.
    pub(crate) fn give_back_descriptors(&self) -> bool {
        self.state.borrow().sites.kept.borrow_mut().give_back_descriptors()
    }
}
