//! What a thread of the pool does at a time, and where the result goes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::files::root::{Cause, ExpectedName, OpenFile, OpenOptions, Root};
use crate::key::Key;
use crate::net::{Remote, SharedBytes};
use crate::thread_pool::lock;

/// How often an opening is tried while other threads close descriptors, of which the process has run out, and the pause
/// before each attempt.
const OPENED_AGAIN: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// The result of a job.
#[derive(Debug)]
pub enum Opened {
    /// The result of [`OpenPool::open`](super::OpenPool::open).
    File {
        /// The root beneath which the file was opened.
        root: Arc<Root>,
        /// The file's name, relative to the root.
        name: Box<[u8]>,
        /// The result of [`Root::open_as`].
        result: io::Result<OpenFile>,
    },
    /// The result of [`OpenPool::check`](super::OpenPool::check).
    Checked {
        /// The root beneath which the names were looked up.
        root: Arc<Root>,
        /// What the caller calls the names.
        key: Box<[u8]>,
        /// The result of [`Root::still_has`].
        is_same: bool,
    },
    /// The result of [`OpenPool::look_at_root`](super::OpenPool::look_at_root).
    Root {
        /// The root whose path was looked at.
        before: Arc<Root>,
        /// The result of [`Root::replaced`].
        now: io::Result<Option<Root>>,
    },
    /// What work that [`OpenPool::run`](super::OpenPool::run) did has made of a directory.
    Listed {
        /// The root beneath which the directory was opened.
        root: Arc<Root>,
        /// What the caller calls the list.
        name: Box<[u8]>,
        /// The list, ready to be sent; and whether the directory was read for it.
        result: io::Result<(Arc<SharedBytes>, bool)>,
    },
}

/// The results for one worker that it has not taken yet. The pool's threads put them here and resume the
/// worker's coroutine that takes them.
pub struct OpenResults {
    opened: Mutex<Vec<Opened>>,
    remote: Remote,
    key: Key,
}

impl std::fmt::Debug for OpenResults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenResults").field("key", &self.key).finish_non_exhaustive()
    }
}

impl OpenResults {
    /// Results for the worker that `remote` reaches. Its coroutine `key` takes them.
    #[must_use]
    pub fn new(remote: Remote, key: Key) -> Arc<OpenResults> {
        Arc::new(OpenResults { opened: Mutex::new(Vec::new()), remote, key })
    }

    /// Whether there is nothing to take.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        lock(&self.opened).is_empty()
    }

    /// Takes all results that have come since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Opened> {
        std::mem::take(&mut lock(&self.opened))
    }

    /// Adds a result, and resumes the worker's coroutine.
    pub fn post(&self, opened: Opened) {
        let mut waiting = lock(&self.opened);
        waiting.push(opened);
        if waiting.len() == 1 {
            // A worker takes all results at once, so only the first needs a wake. `wake` fails only when
            // the worker has ended.
            let _ = self.remote.wake(self.key);
        }
    }
}

/// A job of the pool.
pub(super) enum PoolJob {
    /// To close a descriptor.
    Close(OwnedFd),
    /// To find something out.
    Look(FileQuery),
    /// To do what the pool knows nothing of, and what that takes in the queue, in bytes.
    Run(Box<dyn FnOnce() + Send>, usize),
}

/// What is to be found out beneath a root, and for whom.
pub(super) struct FileQuery {
    pub(super) root: Arc<Root>,
    pub(super) subject: QuerySubject,
    pub(super) results: Arc<OpenResults>,
}

/// What is to be found out.
pub(super) enum QuerySubject {
    /// A file is to be opened.
    File(Box<[u8]>, OpenOptions),
    /// Whether names lead to what they led to; and what they are called together.
    Names(Box<[u8]>, Vec<ExpectedName>),
    /// Where the root's own path leads.
    RootPath,
}

impl PoolJob {
    /// What the job takes beside itself in the queue, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            PoolJob::Close(_)
            | PoolJob::Look(FileQuery { subject: QuerySubject::RootPath, .. }) => 0,
            PoolJob::Run(_, bytes) => *bytes,
            PoolJob::Look(FileQuery { subject: QuerySubject::File(name, _), .. }) => name.len(),
            PoolJob::Look(FileQuery { subject: QuerySubject::Names(key, names), .. }) => {
                let names = names.iter().map(|it| it.name.len() + size_of::<ExpectedName>());
                key.len() + names.sum::<usize>()
            }
        }
    }

    pub(super) fn is_close(&self) -> bool {
        matches!(self, PoolJob::Close(_))
    }

    /// Does the job. `is_closing` says whether descriptors are being closed.
    pub(super) fn run(self, is_closing: impl Fn() -> bool) {
        let FileQuery { root, subject, results } = match self {
            PoolJob::Close(file) => return drop(file),
            PoolJob::Run(work, _) => return work(),
            PoolJob::Look(query) => query,
        };
        results.post(match subject {
            QuerySubject::File(name, options) => {
                let result = open(&root, &name, options, is_closing);
                Opened::File { root, name, result }
            }
            QuerySubject::Names(key, names) => {
                let is_same = root.still_has(names.iter().map(ExpectedName::pair));
                Opened::Checked { root, key, is_same }
            }
            QuerySubject::RootPath => {
                let now = root.replaced();
                Opened::Root { before: root, now }
            }
        });
    }
}

/// Opens a file. If the process has no descriptor left, the thread waits for those that are being closed.
fn open(
    root: &Root,
    name: &[u8],
    options: OpenOptions,
    is_closing: impl Fn() -> bool,
) -> io::Result<OpenFile> {
    let mut opened = root.open_as(name, options);
    for _ in 0..OPENED_AGAIN {
        let is_short = opened.as_ref().is_err_and(|error| Cause::of(error) == Cause::Exhausted);
        if !is_short || !is_closing() {
            break;
        }
        thread::sleep(PAUSE);
        opened = root.open_as(name, options);
    }
    opened
}
