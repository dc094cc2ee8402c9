//! Directories that are shown as lists: what is at hand, what other threads have made, what has to be made here.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use drover_http1::{Refusal, Status};
use drover_mech::files::root::{OpenFile, Stamp};
use drover_mech::net::SharedBytes;
use tracing::warn;

use super::{LookupContext, SiteFiles};
use crate::lookup::listings::FoundListing;
use crate::lookup::listings::form::WantedList;
use crate::lookup::pending::LookupOutcome;
use crate::status::statistics::Counter;

/// Another list has no room, or the queue of the threads is full.
const NO_ROOM: Refusal = Refusal { status: Status::ServiceUnavailable, reason: "try again later" };

/// What a request for a list gets.
pub(super) fn listed(wanted: WantedList, bytes: Option<Arc<SharedBytes>>) -> LookupOutcome {
    LookupOutcome::Listing(FoundListing { form: wanted.form, bytes })
}

impl SiteFiles {
    /// Which list a GET request wants, if `name` is that of a list.
    pub(super) fn list_of_get(&self, name: &[u8]) -> Option<WantedList> {
        self.options.listings.as_ref()?;
        WantedList::of_name(name).map(|(wanted, _)| wanted).filter(|wanted| !wanted.is_head)
    }

    /// The list with a name, if it was made a short while ago. `stamp`: that of the directory now.
    pub(super) fn listed_at_hand(
        &self,
        name: &[u8],
        stamp: &Stamp,
        now: Instant,
    ) -> Option<Arc<SharedBytes>> {
        self.options.listings.as_ref()?.at_hand(&self.root, name, stamp, now)
    }

    /// What a directory means for a request: for HEAD, perhaps the list that GET would get.
    pub(super) fn directory(&self, name: &[u8], stamp: &Stamp, now: Instant) -> LookupOutcome {
        let is_shown = self.options.listings.is_some();
        let wanted = WantedList::of_name(name).filter(|(wanted, _)| is_shown && wanted.is_head);
        let Some((wanted, _)) = wanted else { return LookupOutcome::Directory };
        let of_get = name.strip_suffix(b".").unwrap_or(name);
        listed(wanted, self.listed_at_hand(of_get, stamp, now))
    }

    /// Makes a list on the worker's thread, which waits for the disk (`--stat-threads 0`).
    #[cold]
    pub(super) fn list_here(
        &mut self,
        name: &[u8],
        directory: &OpenFile,
        context: &LookupContext<'_>,
    ) -> LookupOutcome {
        let Some(listings) = &self.options.listings else { return LookupOutcome::Directory };
        let result = listings.list_now(&self.root, name, directory).map(|bytes| (bytes, true));
        self.list_outcome(name, result, context)
    }

    /// What the result of making a list means for a request.
    pub(super) fn list_outcome(
        &mut self,
        name: &[u8],
        result: io::Result<(Arc<SharedBytes>, bool)>,
        context: &LookupContext<'_>,
    ) -> LookupOutcome {
        let wanted = WantedList::of_name(name).map(|(wanted, _)| wanted).unwrap_or_default();
        match result {
            Ok((bytes, is_new)) => {
                context.counters.add(Counter::DirectoriesListed, u64::from(is_new));
                listed(wanted, Some(bytes))
            }
            // Interrupted: a thread left it out, and is not free to make it now that somebody wants it.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                if let Some(others) = self.complaints.ask(context.net.now()) {
                    let name = name.escape_ascii();
                    warn!(
                        "cannot list {name}: no memory is left for lists of directories, or too many wait; raise \
                         --memory ({others} like this were not logged)"
                    );
                }
                LookupOutcome::Refused(NO_ROOM)
            }
            Err(error) => LookupOutcome::Refused(self.refusal(name, &error, context.net.now())),
        }
    }
}
