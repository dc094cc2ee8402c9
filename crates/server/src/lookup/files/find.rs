//! Finding what a path means: a place that it has moved to, or the first of its candidates that there is.

use std::rc::Rc;
use std::sync::Arc;

use drover_http1::conditional::ListField;
use drover_http1::path::{self, Resolved};
use drover_http1::{Refusal, Status};

use super::{Lookup, LookupContext, SiteFiles, WantedFile, without_query};
use crate::lookup::candidates::{NameCandidate, RequestedName};
use crate::lookup::entry::FileEntry;
use crate::lookup::pending::{LookupOutcome, MISSING, PendingAnswer, Requester};
use crate::rules::ErrorPage;

impl SiteFiles {
    /// Finds what is wanted beneath the root, and keeps it if it is a file.
    pub(super) fn find<'a>(
        &'a mut self,
        wanted: WantedFile<'a>,
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Lookup<'a> {
        let resolved = match path::resolve(wanted.path, &mut self.name) {
            Ok(resolved) => resolved,
            Err(refusal) => return Lookup::Refused(refusal),
        };
        if let Some((status, location)) = self.moved(&resolved) {
            return Lookup::Moved(status, location);
        }
        let (base, mut name) =
            (std::mem::take(&mut self.name), std::mem::take(&mut self.candidate));
        let mut found = Ok(LookupOutcome::MISSING);
        let is_withheld = resolved.hidden && !self.options.hidden;
        let options = Arc::clone(&self.options.names);
        let requested = RequestedName {
            base: &base,
            resolved: &resolved,
            is_page: wanted.is_page,
            list: wanted.list,
            options: &options,
        };
        let first = self.awaited(requested, requester, &mut name);
        let was_directory = |open: &Rc<PendingAnswer>| open.is_beside_directory();
        let mut is_directory = first > 0 && requester.awaited.as_ref().is_some_and(was_directory);
        for &candidate in &NameCandidate::ALL[first..] {
            if !is_withheld && requested.candidate(candidate, &mut name) {
                found = self.try_candidate(candidate, &name, &wanted, requester, context);
            }
            let is_missing = match &found {
                Ok(LookupOutcome::Directory) if candidate == NameCandidate::Named => {
                    is_directory = !resolved.directory;
                    resolved.directory || options.html_suffix
                }
                Ok(LookupOutcome::Directory) => true,
                Ok(outcome) => outcome.is_missing(),
                Err(open) => {
                    if is_directory {
                        open.stands_beside_directory();
                    }
                    false
                }
            };
            if !is_missing {
                break;
            }
            found = Ok(LookupOutcome::MISSING);
            if is_directory && candidate == NameCandidate::Suffixed {
                // The page that would come before the directory is missing.
                found = Ok(LookupOutcome::Directory);
                break;
            }
        }
        (self.name, self.candidate) = (base, name);
        match found {
            Err(open) => Lookup::Pending(open),
            Ok(LookupOutcome::File(entry)) => Lookup::Ready(entry),
            Ok(LookupOutcome::Listing(listing)) => Lookup::Listing(listing),
            Ok(LookupOutcome::Directory) => {
                Lookup::Redirect { name: &self.name, query: resolved.query }
            }
            Ok(LookupOutcome::Refused(refusal)) => Lookup::Refused(self.explained(refusal)),
        }
    }

    /// Where the path whose name is in `self.name` has moved. Files of moved paths are never kept, so that this is asked
    /// for each request for such a path.
    fn moved(&self, resolved: &Resolved<'_>) -> Option<(Status, Vec<u8>)> {
        if self.options.redirects.is_empty() {
            return None;
        }
        let slash = if resolved.directory && !self.name.is_empty() { "/" } else { "" };
        let path = [b"/", &self.name[..], slash.as_bytes()].concat();
        self.options.redirects.iter().find_map(|it| it.location(&path, resolved.query))
    }

    /// Which candidate the connection has waited for: those before it have turned out to be missing.
    fn awaited(
        &self,
        requested: RequestedName<'_>,
        requester: &Requester,
        name: &mut Vec<u8>,
    ) -> usize {
        let Some(open) = &requester.awaited else { return 0 };
        let is_awaited = |candidate: &NameCandidate| {
            requested.candidate(*candidate, name)
                && (open.outcome_of(&self.root, name).is_some() || open.is_same(&self.root, name))
        };
        NameCandidate::ALL.iter().position(is_awaited).unwrap_or(0)
    }

    /// Looks for one name, and keeps it if it is a file: the name of the path itself under the path, any other under
    /// the name, since the path may come to lead to a file of its own.
    fn try_candidate(
        &mut self,
        candidate: NameCandidate,
        name: &[u8],
        wanted: &WantedFile<'_>,
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Result<LookupOutcome, Rc<PendingAnswer>> {
        match candidate {
            NameCandidate::Named => {
                let key = without_query(wanted.path);
                self.open_and_keep(key, name, wanted.codings, requester, context)
            }
            _ => self.by_name(name, wanted.codings, requester, context),
        }
    }

    /// The file with a name beneath the root, kept under it.
    fn by_name(
        &mut self,
        name: &[u8],
        codings: Option<ListField<'_>>,
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Result<LookupOutcome, Rc<PendingAnswer>> {
        if let Some(entry) = self.recall(name, codings, requester, context.net.now())? {
            return Ok(LookupOutcome::File(entry));
        }
        self.open_and_keep(name, name, codings, requester, context)
    }

    /// Opens the file with a name beneath the root, and keeps it under `key`.
    fn open_and_keep(
        &mut self,
        key: &[u8],
        name: &[u8],
        codings: Option<ListField<'_>>,
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Result<LookupOutcome, Rc<PendingAnswer>> {
        let found = self.open(name, requester, context)?;
        if let LookupOutcome::File(entry) = &found {
            self.kept.borrow_mut().keep(self.site, key, entry, context.net.now());
            return Ok(LookupOutcome::File(Rc::clone(FileEntry::form_for(entry, codings))));
        }
        Ok(found)
    }

    /// The page that is sent to a request that is refused, if there is one. `Err`: another thread opens it, and the
    /// requester is refused when that is done.
    pub(crate) fn error_page(
        &mut self,
        refusal: Refusal,
        codings: Option<ListField<'_>>,
        requester: &mut Requester,
        context: &LookupContext<'_>,
    ) -> Result<Option<Rc<FileEntry>>, Rc<PendingAnswer>> {
        let pages = Arc::clone(&self.options.error_pages);
        let Some(name) = ErrorPage::of(&pages, refusal.status) else { return Ok(None) };
        match self.by_name(name, codings, requester, context) {
            Ok(LookupOutcome::File(entry)) => Ok(Some(entry)),
            Ok(_) => Ok(None),
            Err(open) => {
                open.refuse(requester.key, refusal);
                Err(open)
            }
        }
    }

    /// Tells whoever opens a site without an index what would show its files.
    fn explained(&self, refusal: Refusal) -> Refusal {
        let at_root = self.name.is_empty() && refusal == MISSING;
        let reason = "this site has no index.html; drover serve --listing shows what it has";
        if at_root { Refusal { reason, ..refusal } } else { refusal }
    }
}
