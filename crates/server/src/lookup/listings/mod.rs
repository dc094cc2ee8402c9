//! Lists of directories: each is made once for all who ask for it at the same time, by threads that may wait for a disk.
//!
//! A list of 10,000 names has a megabyte. If each of 400 clients had one of its own, they would take 400, and a worker that
//! wrote them would serve nobody else meanwhile. So all workers of a process share one [`Listings`]:
//!
//! - One of its threads reads a directory and writes the list, once for all who wait for it. They send the same bytes.
//! - A list may be sent for one more second, but not for longer than `--revalidate` allows, and only while the directory
//!   has not changed. The time is short because a directory does not show that a file in it has grown.
//! - All lists that there are, those that slow clients have not received yet included, have a share of the memory
//!   ([`crate::MemoryUse::Listings`]). Where there is no room, clients wait until there is.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use drover_mech::files::open_pool::{OpenPool, OpenResults, Opened};
use drover_mech::files::root::{ListedNames, OpenFile, OpenOptions, Root, Stamp, Symlinks};
use drover_mech::net::SharedBytes;
use rustix::io::Errno;

pub(crate) mod form;
mod memory;
pub(crate) mod page;
mod waiting;

use form::{ListForm, WantedList};
use page::ByteCount;
use waiting::WaitingLists;

/// For how long a list is sent after its directory was read, at most.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// A directory that was changed less than this long ago may change again without another time of change: the kernel's
/// clock for files ticks every 1 to 10 ms. Its list is sent to those who have waited for it, and to nobody else.
const CHANGE_SHOWS_AFTER: Duration = Duration::from_millis(50);

/// How many lists are kept, so that to look through them does not take long.
const KEPT_LISTS_MOST: usize = 1024;

/// How many directories are read at the same time, those whose disk hangs not counted.
const THREADS: usize = 2;

/// How many bytes the questions may take that no thread has begun with.
const QUEUED_MOST: usize = 256 << 10;

/// What a list takes besides its bytes and its name, in bytes: its place in tables, and what the allocator adds.
const OVERHEAD: usize = 512;

/// The lists of directories of all workers of a process.
pub struct Listings {
    pool: OpenPool,
    /// How many bytes all lists may have together. A single one may have more.
    limit: u64,
    /// How many bytes they have.
    held: AtomicU64,
    /// Nothing that gives memory back is dropped while this is locked.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: HashMap<ListKey, KeptList>,
    /// What the threads are making: few at a time.
    under_way: Vec<ListUnderWay>,
    waiting: WaitingLists,
}

/// What a list is of.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ListKey {
    root: (u64, u64),
    symlinks: Symlinks,
    names: ListedNames,
    /// As in [`WantedList::of_name`].
    name: Box<[u8]>,
}

struct KeptList {
    /// The directory, before it was read.
    stamp: Stamp,
    until: Instant,
    bytes: Arc<SharedBytes>,
}

struct ListUnderWay {
    key: ListKey,
    stamp: Stamp,
    queries: Vec<ListQuery>,
}

/// How a site's directories are listed.
#[derive(Clone, Debug)]
pub(crate) struct SiteListings {
    pub(crate) listings: Arc<Listings>,
    pub(crate) options: ListOptions,
}

/// Which names lists have, how directories are read, and how long a list may be reused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListOptions {
    pub(crate) names: ListedNames,
    pub(crate) noatime: bool,
    pub(crate) valid_for: Duration,
}

/// A question of a worker.
#[derive(Clone)]
pub(crate) struct ListQuery {
    pub(crate) root: Arc<Root>,
    /// As in [`WantedList::of_name`]; no HEAD.
    pub(crate) name: Box<[u8]>,
    pub(crate) options: ListOptions,
    pub(crate) results: Arc<OpenResults>,
    /// Whether anybody waits for the answer.
    pub(crate) is_wanted: Arc<AtomicBool>,
}

/// What a request for a directory gets.
#[derive(Clone)]
pub(crate) struct FoundListing {
    pub(crate) form: ListForm,
    /// The list. `None`: HEAD has asked, and nobody has had the list made.
    pub(crate) bytes: Option<Arc<SharedBytes>>,
}

/// Why there is no list.
enum NotMade {
    /// The other lists leave no room for its bytes.
    NoRoom(u64),
    Failed(io::Error),
}

impl fmt::Debug for Listings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listings").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Listings {
    /// Lists that have at most `limit` bytes together.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Listings> {
        let pool = OpenPool::new(THREADS).with_queue(QUEUED_MOST);
        Arc::new(Listings { pool, limit, held: AtomicU64::new(0), state: Mutex::default() })
    }

    /// Starts the threads, which otherwise the first lists do ([`OpenPool::start`]).
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.pool.start()
    }

    /// Has a thread answer `query`, which gets [`Opened::Listed`].
    ///
    /// # Errors
    /// [`no_room`] when no thread can be started, or too many questions wait for one.
    pub(crate) fn begin(self: &Arc<Listings>, query: ListQuery) -> io::Result<()> {
        let (listings, bytes) = (Arc::clone(self), query.name.len());
        self.pool.run(bytes, move || listings.answer(query)).map_err(|_| no_room())
    }

    /// Forgets the lists that are sent to nobody any more, and the questions of clients who have given up. Called now and then.
    pub(crate) fn sweep(self: &Arc<Listings>, now: Instant) {
        let mut state = self.state();
        let old: Vec<_> = state.kept.extract_if(|_, it| it.until <= now).collect();
        let abandoned = state.waiting.take_abandoned();
        drop(state);
        drop(old);
        abandoned.into_iter().for_each(|query| query.send_result(Err(abandoned_error())));
    }

    /// Answers a question, on a thread that may wait.
    fn answer(self: &Arc<Listings>, query: ListQuery) {
        if !query.is_wanted.load(Ordering::SeqCst) {
            return query.send_result(Err(abandoned_error()));
        }
        let began = (Instant::now(), SystemTime::now());
        let (root, options) = (Arc::clone(&query.root), query.options);
        let directory = match open(&root, &query.name, options) {
            Ok(directory) => directory,
            Err(error) => return query.send_result(Err(error)),
        };
        let (key, stamp) = (ListKey::of(&root, &query.name, options.names), directory.stamp);
        let mut state = self.state();
        if let Some(bytes) = state.kept(&key, &stamp, began.0) {
            drop(state);
            return query.send_result(Ok((bytes, false)));
        }
        let same = state.under_way.iter_mut().find(|it| it.key == key && it.stamp == stamp);
        if let Some(same) = same {
            return same.queries.push(query);
        }
        state.under_way.push(ListUnderWay { key: key.clone(), stamp, queries: vec![query] });
        drop(state);
        let made = self.make(&root, &directory, &key);
        if let Ok(bytes) = &made {
            self.keep(key.clone(), stamp, bytes, options, began);
        }
        self.ended(&key, &stamp, made);
        // What has just ended may have made room, or none was needed.
        self.resume_waiting();
    }

    /// Answers those who have waited for a list, or has them wait on.
    fn ended(
        self: &Arc<Listings>,
        key: &ListKey,
        stamp: &Stamp,
        made: Result<Arc<SharedBytes>, NotMade>,
    ) {
        let mut state = self.state();
        let is_it = |it: &ListUnderWay| it.key == *key && it.stamp == *stamp;
        let Some(place) = state.under_way.iter().position(is_it) else { return };
        let queries = state.under_way.swap_remove(place).queries;
        match made {
            Ok(bytes) => {
                drop(state);
                for (number, query) in queries.into_iter().enumerate() {
                    query.send_result(Ok((Arc::clone(&bytes), number == 0)));
                }
            }
            Err(NotMade::Failed(error)) => {
                drop(state);
                queries.into_iter().for_each(|query| query.send_result(Err(copy_of(&error))));
            }
            Err(NotMade::NoRoom(cost)) => {
                let turned_away = state.waiting.push(key, cost, queries);
                // What is kept would stay although the last client has received it.
                let kept = std::mem::take(&mut state.kept);
                drop(state);
                drop(kept);
                for (query, error) in turned_away {
                    query.send_result(Err(error));
                }
            }
        }
    }

    /// Reads a directory, and writes its list.
    fn make(
        self: &Arc<Listings>,
        root: &Root,
        directory: &OpenFile,
        key: &ListKey,
    ) -> Result<Arc<SharedBytes>, NotMade> {
        let failed = NotMade::Failed;
        let (wanted, path) = WantedList::of_name(&key.name).ok_or_else(|| failed(no_room()))?;
        let listing = root.list(directory, path, key.names).map_err(failed)?;
        let mut measure = ByteCount::default();
        page::write(&listing, path, wanted.form, &mut measure).map_err(failed)?;
        let ByteCount(len) = measure;
        let (names, cost) = (listing.memory() as u64, (len + key.name.len() + OVERHEAD) as u64);
        let taken = self.take(names + cost).ok_or(NotMade::NoRoom(names + cost))?;
        let (_names, taken) = taken.split(names);
        SharedBytes::new(len, taken, |mut bytes| {
            page::write(&listing, path, wanted.form, &mut bytes)
        })
        .map_err(failed)
    }

    /// Keeps a list for those who ask next, if they may have it.
    fn keep(
        &self,
        key: ListKey,
        stamp: Stamp,
        bytes: &Arc<SharedBytes>,
        options: ListOptions,
        (began, began_at): (Instant, SystemTime),
    ) {
        if options.valid_for.is_zero() || !shows_changes(&stamp, began_at) {
            return;
        }
        let until = began + options.valid_for.min(SHARED_FOR);
        let kept = KeptList { stamp, until, bytes: Arc::clone(bytes) };
        let mut state = self.state();
        let may_keep = state.waiting.is_empty()
            && (state.kept.len() < KEPT_LISTS_MOST || state.kept.contains_key(&key));
        let before = if may_keep { state.kept.insert(key, kept) } else { None };
        drop(state);
        drop(before);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SiteListings {
    /// The list of a directory that has `stamp` now, if one was made a short while ago.
    pub(crate) fn at_hand(
        &self,
        root: &Root,
        name: &[u8],
        stamp: &Stamp,
        now: Instant,
    ) -> Option<Arc<SharedBytes>> {
        self.listings.state().kept(&ListKey::of(root, name, self.options.names), stamp, now)
    }

    /// Makes the list of `directory`. Waits for the disk.
    ///
    /// # Errors
    /// As [`Root::list`]; [`no_room`].
    pub(crate) fn list_now(
        &self,
        root: &Root,
        name: &[u8],
        directory: &OpenFile,
    ) -> io::Result<Arc<SharedBytes>> {
        let began = (Instant::now(), SystemTime::now());
        let (listings, key) = (&self.listings, ListKey::of(root, name, self.options.names));
        match listings.make(root, directory, &key) {
            Ok(bytes) => {
                listings.keep(key, directory.stamp, &bytes, self.options, began);
                Ok(bytes)
            }
            Err(NotMade::NoRoom(_)) => Err(no_room()),
            Err(NotMade::Failed(error)) => Err(error),
        }
    }
}

impl State {
    fn kept(&self, key: &ListKey, stamp: &Stamp, now: Instant) -> Option<Arc<SharedBytes>> {
        let kept = self.kept.get(key).filter(|it| it.stamp == *stamp && now < it.until)?;
        Some(Arc::clone(&kept.bytes))
    }
}

impl ListKey {
    fn of(root: &Root, name: &[u8], names: ListedNames) -> ListKey {
        ListKey { root: root.identity(), symlinks: root.symlinks(), names, name: name.into() }
    }
}

impl ListQuery {
    fn send_result(self, result: io::Result<(Arc<SharedBytes>, bool)>) {
        let ListQuery { root, name, results, .. } = self;
        results.post(Opened::Listed { root, name, result });
    }
}

fn open(root: &Root, name: &[u8], options: ListOptions) -> io::Result<OpenFile> {
    root.open_as(name, OpenOptions { noatime: options.noatime, ..OpenOptions::default() })
}

/// Whether the directory's times would show another change: the last one was long enough ago, by the clock of this machine.
fn shows_changes(stamp: &Stamp, now: SystemTime) -> bool {
    let (seconds, nanos) = stamp.changed;
    let Ok(seconds) = u64::try_from(seconds) else { return false };
    let changed = UNIX_EPOCH + Duration::new(seconds, nanos);
    now.duration_since(changed).is_ok_and(|since| since >= CHANGE_SHOWS_AFTER)
}

/// Says that no more lists can be made now.
pub(crate) fn no_room() -> io::Error {
    Errno::AGAIN.into()
}

/// Says that a list was not made because nobody waited for it.
fn abandoned_error() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests;
