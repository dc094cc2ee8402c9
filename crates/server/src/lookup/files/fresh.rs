//! What other threads find out of the root and of kept files, when a worker cannot without waiting.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use drover_http1::{Refusal, Status};
use drover_mech::files::root::Root;
use drover_mech::net::Net;

use super::{Lookup, SiteFiles};
use crate::lookup::entry::FileEntry;
use crate::lookup::pending::{PendingAnswer, PendingOutcome, RequestKey, Requester};

/// The queue of the threads is full, because a disk hangs.
const BUSY: Refusal = Refusal { status: Status::ServiceUnavailable, reason: "try again later" };

impl SiteFiles {
    /// Whether the root's path is to be looked at before the request is answered.
    #[inline]
    pub(super) fn root_is_due(&self, requester: &Requester, now: Instant) -> bool {
        now >= self.root_checked + self.options.revalidate.after && !requester.has_root()
    }

    /// Looks where the root's path leads, and serves what is found there from now on. `Some`: another thread looks, and the
    /// request waits; or none can.
    #[cold]
    pub(super) fn look_at_root(
        &mut self,
        requester: RequestKey,
        now: Instant,
    ) -> Option<Lookup<'static>> {
        let Some(pending) = &mut self.pending else {
            self.root_checked = now;
            // If the path leads nowhere, the directory that is open is served on.
            if let Ok(Some(root)) = self.root.replaced() {
                self.replace_root(root);
            }
            return None;
        };
        match self.root.try_is_replaced_cached() {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(false) | Err(_) => {
                self.root_checked = now;
                return None;
            }
        }
        Some(match pending.look_at_root(&self.root, requester, now) {
            Ok(look) => Lookup::Pending(look),
            Err(_) => Lookup::Refused(BUSY),
        })
    }

    /// Another thread has looked where the path of the root leads.
    pub(super) fn looked_at_root(
        &mut self,
        before: &Arc<Root>,
        now: io::Result<Option<Root>>,
        net: &Net,
    ) {
        let ended = self.pending.as_mut().and_then(|pending| pending.end_look_at_root());
        let Some((look, began)) = ended else { return };
        self.root_checked = began;
        // If the path leads nowhere (`Err`), the directory that is open is served on.
        if let Ok(Some(root)) = now
            && Arc::ptr_eq(before, &self.root)
        {
            self.replace_root(root);
        }
        look.finish(PendingOutcome::LookAgain, net);
    }

    /// Has another thread check an entry, for a connection.
    #[cold]
    pub(super) fn check_elsewhere(
        &mut self,
        key: &[u8],
        entry: &FileEntry,
        requester: RequestKey,
    ) -> Result<Option<Rc<FileEntry>>, Rc<PendingAnswer>> {
        let names = || entry.expected_names();
        if let Some(pending) = &mut self.pending
            && let Ok(check) = pending.check(&self.root, key, names, requester)
        {
            return Err(check);
        }
        // Nothing is known of the entry. What opens its file anew says what is in the way.
        self.kept.borrow_mut().remove(self.site, key);
        Ok(None)
    }

    /// Another thread has looked whether what is kept under `key` is right.
    pub(super) fn checked(&mut self, root: &Arc<Root>, key: &[u8], is_same: bool, net: &Net) {
        let ended = self.pending.as_mut().and_then(|pending| pending.end_check(key));
        let Some(check) = ended else { return };
        let is_right = is_same && Arc::ptr_eq(root, &self.root);
        let mut kept = self.kept.borrow_mut();
        if is_right {
            if let Some((_, checked)) = kept.get(self.site, key) {
                *checked = net.now();
            }
            check.finish(PendingOutcome::Same(Arc::clone(root)), net);
        } else {
            kept.remove(self.site, key);
            check.finish(PendingOutcome::LookAgain, net);
        }
    }
}
