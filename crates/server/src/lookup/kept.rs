//! What a worker keeps of the files that it has served, of all its sites: one cache, within one limit.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::lookup::cache::Cache;
use crate::lookup::entry::FileEntry;

/// How many bytes of the cache an open descriptor counts as at least, beside its memory. So the limit
/// in bytes bounds the number of descriptors too.
const DESCRIPTOR_COST: usize = 64 * 1024;

/// A kept descriptor that no request has used for so long is closed: if its file was removed, the
/// descriptor keeps the blocks of the file from being freed.
const UNUSED_FOR: Duration = Duration::from_secs(60);

/// One [`KeptFiles::sweep`] looks at 128 entries and a quarter of all, so that four of them come to every
/// entry of a large cache.
const SWEPT_LEAST: usize = 128;
const SWEPT_PART: usize = 4;

/// The kept files of a worker.
pub(crate) struct KeptFiles {
    cache: Cache<FileEntry>,
    /// What the cache may hold, in bytes; 0: nothing.
    limit: usize,
    descriptor_cost: usize,
    /// Whether the cache may hold an entry with a descriptor.
    keeps_descriptors: bool,
}

impl KeptFiles {
    /// Room for `limit` bytes and about as many `descriptors`.
    pub(crate) fn new(limit: usize, descriptors: u64) -> Rc<RefCell<KeptFiles>> {
        let share = limit as u64 / descriptors.max(1);
        Rc::new(RefCell::new(KeptFiles {
            cache: Cache::new(limit),
            limit,
            descriptor_cost: DESCRIPTOR_COST.max(share as usize),
            keeps_descriptors: false,
        }))
    }

    /// Whether anything is kept at all.
    pub(crate) fn keeps(&self) -> bool {
        self.limit > 0
    }

    /// The entry that a site has under a key, and when its name was last looked at: the caller may move that.
    #[inline]
    pub(crate) fn get(&mut self, site: u32, key: &[u8]) -> Option<(&Rc<FileEntry>, &mut Instant)> {
        self.cache.get(site, key)
    }

    /// Keeps an entry of a site under a key: a request's path, or a file's name. The bytes of a file without a length of
    /// its own are not kept.
    pub(crate) fn keep(&mut self, site: u32, key: &[u8], entry: &Rc<FileEntry>, now: Instant) {
        if !self.keeps() || entry.unmeasured {
            return;
        }
        let descriptors = entry.descriptors();
        self.keeps_descriptors |= descriptors > 0;
        let memory: usize = entry.with_forms().map(|it| it.cost).sum();
        let cost = memory + descriptors * self.descriptor_cost;
        self.cache.insert(site, key, Rc::clone(entry), cost, now);
    }

    /// Drops what a site has under a key.
    pub(crate) fn remove(&mut self, site: u32, key: &[u8]) {
        self.cache.remove(site, key);
    }

    /// Drops everything of a site.
    pub(crate) fn forget_site(&mut self, site: u32) {
        self.cache.remove_where(|of, _| of == site);
    }

    /// Drops everything.
    pub(crate) fn forget_everything(&mut self) {
        self.cache = Cache::new(self.limit);
    }

    /// Closes all kept descriptors; to be called when the process has none left. `false`: none was
    /// kept.
    pub(crate) fn give_back_descriptors(&mut self) -> bool {
        std::mem::take(&mut self.keeps_descriptors)
            && self.cache.remove_where(|_, entry| entry.descriptors() > 0)
    }

    /// Looks at some of the kept descriptors, as far as that cannot wait. Closes a descriptor if its file has changed or was
    /// removed, or if no request has used it for [`UNUSED_FOR`]. Called every two seconds; each call continues
    /// where the last one ended.
    pub(crate) fn sweep(&mut self, now: Instant) {
        if self.keeps_descriptors {
            let some = SWEPT_LEAST + self.cache.len() / SWEPT_PART;
            let unused =
                |it: &FileEntry| now.saturating_duration_since(it.looked.get()) > UNUSED_FOR;
            self.cache.sweep(some, |entry| {
                entry.descriptors() > 0
                    && (entry.with_forms().all(unused)
                        // What cannot be known here is found out when the entry is asked for.
                        || !entry.with_forms().all(|it| it.try_is_as_it_was().unwrap_or(true)))
            });
        }
    }
}
