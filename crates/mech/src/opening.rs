//! Opening files away from the worker: looking a name up and asking for attributes can wait for a
//! disk just as reading can, and no system call of a static server does it without waiting.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::Advice;

use crate::fs::{How, OpenFile, Root};
use crate::key::Key;
use crate::net::Remote;
use crate::pool::{Pool, lock};

/// A way to spare work before the first byte is read, as data.
pub struct Preparation {
    /// The name of its flag.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it is taken unless we are told otherwise.
    pub auto: bool,
    probe: fn() -> Result<(), String>,
}

impl Preparation {
    /// Whether this kernel offers it: tries.
    ///
    /// # Errors
    /// The reason why not, in words for people.
    pub fn probe(&self) -> Result<(), String> {
        (self.probe)()
    }
}

impl std::fmt::Debug for Preparation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preparation").field("name", &self.name).finish()
    }
}

/// Everything that can be done before a read, in the order that people list it.
pub static PREPARATIONS: &[&Preparation] = &[
    &Preparation {
        name: "stat-threads",
        summary: "names and attributes not at hand (RESOLVE_CACHED) are asked for by other threads",
        auto: true,
        probe: || match crate::fs::Root::open("/".as_ref())
            .and_then(|root| root.open_at_once(b"", How::default()))
        {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("all go to the threads: RESOLVE_CACHED: {error}")),
        },
    },
    &Preparation {
        name: "noatime",
        summary: "reading leaves the access time as it is (O_NOATIME), for this user's own files",
        auto: false,
        probe: || Ok(()),
    },
    &Preparation {
        name: "advise",
        summary: "the kernel is told of reads to come (posix_fadvise): sequential, or willneed",
        auto: false,
        probe: || {
            let told = std::fs::File::open("/proc/self/exe")
                .and_then(|file| Ok(rustix::fs::fadvise(file, 0, None, Advice::Sequential)?));
            told.map_err(|error| format!("posix_fadvise(2): {error}"))
        },
    },
    &Preparation {
        name: "cached-reads",
        summary: "what backends read apart, workers read at once if it is cached (RWF_NOWAIT)",
        auto: true,
        probe: crate::fileio::can_ask_for_cached,
    },
];

/// The threads of a process that open files, in the order in which they were asked for. A connection
/// waits for at most one file, which bounds the queue and makes it fair.
pub struct Openers {
    threads: usize,
    /// Started when they are first needed.
    pool: OnceLock<Arc<Pool<Job>>>,
}

/// A file that is being opened. Dropping it gives the file up.
#[derive(Debug)]
pub struct Opening(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    done: AtomicBool,
    result: Mutex<Option<io::Result<OpenFile>>>,
}

struct Job {
    root: Arc<Root>,
    path: Box<[u8]>,
    how: How,
    shared: Arc<Shared>,
    remote: Remote,
    key: Key,
}

impl std::fmt::Debug for Openers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Openers").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Openers {
    /// `threads` threads (at least one), which start when they are first needed.
    #[must_use]
    pub fn new(threads: usize) -> Openers {
        Openers { threads, pool: OnceLock::new() }
    }

    /// How many threads there are, or will be.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Has `path` opened ([`Root::open_as`]), and then resumes the coroutine of `key`.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many threads to start these.
    pub fn open(
        &self,
        root: &Arc<Root>,
        path: &[u8],
        how: How,
        remote: Remote,
        key: Key,
    ) -> io::Result<Opening> {
        let pool = match self.pool.get() {
            Some(pool) => pool,
            None => {
                let started = Pool::start(self.threads, "opener", Job::run)?;
                self.pool.get_or_init(|| started)
            }
        };
        let shared = Arc::new(Shared { done: AtomicBool::new(false), result: Mutex::new(None) });
        let opening = Opening(Arc::clone(&shared));
        pool.push(Job { root: Arc::clone(root), path: path.into(), how, shared, remote, key });
        Ok(opening)
    }
}

impl Opening {
    /// Whether the file is open, or cannot be.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.done.load(Ordering::Acquire)
    }

    /// What came out; `None` before, and when it was taken.
    #[must_use]
    pub fn take(self) -> Option<io::Result<OpenFile>> {
        lock(&self.0.result).take()
    }
}

impl Job {
    fn run(self) {
        // Nobody waits any more: the connection is gone.
        if Arc::strong_count(&self.shared) == 1 {
            return;
        }
        let result = self.root.open_as(&self.path, self.how);
        *lock(&self.shared.result) = Some(result);
        self.shared.done.store(true, Ordering::Release);
        // It fails only when the worker has ended.
        let _ = self.remote.wake(self.key);
    }
}
