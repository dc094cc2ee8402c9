//! File backends: how a file's bytes reach the socket.
//!
//! One file per backend, one contract ([`FileIo`]), one record each in [`ALL`].
//!
//! Some backends move the bytes at once, in the thread that asks: a disk that
//! is slow then stops everything that this thread serves. The others have the
//! bytes read elsewhere and answer [`Sent::Later`]; what they share is in
//! `support/reads.rs`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use crate::key::Key;
use sys::process::on_own_thread;
use sys::waker::Waker;

mod auto;
mod linux_aio;
mod linux_aio_sendfile;
mod mmap;
mod posix_aio;
mod sendfile;
mod splice;
pub(crate) mod support;
mod threads;
mod uring;
mod writev;

pub use support::memory::ReadMemory;
pub(crate) use support::page_cache::probe as can_ask_for_cached;
pub use support::readers::ReadPool;
pub use support::times::Times;

/// The contract of a file backend. One value per worker.
pub trait FileIo {
    /// Sends as much of `transfer` as the socket takes at once. The caller asks
    /// again for what is left: when the socket is writable, or after
    /// [`Sent::Later`] when [`FileIo::reap`] has named the connection.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing; `UnexpectedEof` when the
    /// file ends before the transfer does (it was truncated: the caller has to
    /// cut the connection, because the length it promised cannot be kept);
    /// otherwise what the kernel says of either descriptor.
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent>;

    /// Takes in the reads that have ended, and names whose they are. Called
    /// after every wait; the worker's [`Waker`] has ended one when there is
    /// something to take in.
    ///
    /// # Errors
    /// What the kernel says of the backend itself, for good.
    fn reap(&mut self, _ready: &mut Vec<Key>) -> io::Result<()> {
        Ok(())
    }

    /// The connection is closed: what is being read for it, or was, is given up.
    fn forget(&mut self, _key: Key) {}

    /// What was found in the page cache may have gone since: it is asked anew. Called about once a
    /// second, by a worker that has something to do.
    fn forget_cached(&mut self) {}

    /// What the reads for this connection took since the last call, if that is measured
    /// ([`Options::timed`]).
    fn take_times(&mut self, _key: Key) -> Times {
        Times::default()
    }
}

/// What is to be sent to one connection: `head` (which may be empty), then
/// `len` bytes of `file` (at least one) from `offset` on.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'t> {
    /// Whose it is.
    pub key: Key,
    /// Where the bytes go; non-blocking.
    pub socket: BorrowedFd<'t>,
    /// What goes before them.
    pub head: &'t [u8],
    /// Where they come from.
    pub file: &'t Rc<OwnedFd>,
    /// The first of them.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
    /// How many of them may be handed to the socket before it is other connections' turn; at least one.
    /// More may be read ahead.
    pub at_once: u64,
}

/// What became of a [`Transfer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The socket took so many bytes of head and file, at least one.
    Bytes(usize),
    /// The bytes are being read.
    Later,
}

/// How a backend works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Bytes that are read at a time by backends that read.
    pub read_ahead: usize,
    /// How many threads of the process read for `threads` and `auto`.
    pub read_threads: usize,
    /// Whether the stages of each read are timed ([`FileIo::take_times`]).
    pub timed: bool,
    /// Whether backends that have bytes read elsewhere read those at once that are in the page cache.
    /// Not asked by those that always do or never.
    pub cached_at_once: bool,
    /// Whether the kernel is told of the step after the one that is read (posix_fadvise(2)), by
    /// backends that read through the page cache.
    pub advise_next: bool,
    /// The memory that bytes are read into, over all connections; clones of these options share it.
    pub read_memory: Arc<ReadMemory>,
    /// What the backends count; clones of these options count together.
    pub counts: Arc<Counts>,
    /// The process' readers: clones of these options share them.
    pool: Arc<OnceLock<Arc<ReadPool>>>,
}

/// [`Options::read_memory`] by default, in bytes.
const READ_MEMORY: u64 = 64 << 20;

impl Default for Options {
    fn default() -> Options {
        Options::new(128 * 1024, 16)
    }
}

impl Options {
    /// Options for backends that read `read_ahead` bytes at a time, by `read_threads` threads.
    #[must_use]
    pub fn new(read_ahead: usize, read_threads: usize) -> Options {
        Options {
            read_ahead,
            read_threads,
            timed: false,
            cached_at_once: true,
            advise_next: false,
            read_memory: ReadMemory::of(READ_MEMORY),
            counts: Arc::default(),
            pool: Arc::default(),
        }
    }

    /// Checks every setting; [`crate::net::Net::open`] does so by itself.
    ///
    /// # Errors
    /// `InvalidInput`, with the name of the setting and what it may be.
    pub fn check(&self) -> io::Result<()> {
        let must_not_be_zero = [
            ("Options::read_ahead", self.read_ahead),
            ("Options::read_threads", self.read_threads),
        ];
        match must_not_be_zero.iter().find(|(_, value)| *value == 0) {
            Some((setting, _)) => Err(crate::mechanism::invalid(setting, 0, "at least 1")),
            None => Ok(()),
        }
    }

    /// Sets whether the stages of each read are timed.
    #[must_use]
    pub fn with_timed(self, timed: bool) -> Options {
        Options { timed, ..self }
    }

    /// Sets whether bytes in the page cache are read at once by backends that have bytes read elsewhere.
    #[must_use]
    pub fn with_cached_at_once(self, cached_at_once: bool) -> Options {
        Options { cached_at_once, ..self }
    }

    /// Sets whether the kernel is told of the step after the one that is read.
    #[must_use]
    pub fn with_advise_next(self, advise_next: bool) -> Options {
        Options { advise_next, ..self }
    }

    /// Sets the memory that bytes are read into.
    #[must_use]
    pub fn with_read_memory(self, read_memory: Arc<ReadMemory>) -> Options {
        Options { read_memory, ..self }
    }

    /// The readers that everyone with a clone of these options shares; they are
    /// started when they are first asked for.
    ///
    /// # Errors
    /// `EAGAIN` when there are too many threads.
    pub fn pool(&self) -> io::Result<Arc<ReadPool>> {
        if let Some(pool) = self.pool.get() {
            return Ok(Arc::clone(pool));
        }
        let started = ReadPool::start(self.read_threads)?;
        Ok(Arc::clone(self.pool.get_or_init(|| started)))
    }
}

/// What backends have done.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads apart from sending.
    pub reads: AtomicU64,
    /// Of these: reads by the worker itself, because the bytes were in the page cache.
    pub at_once: AtomicU64,
    /// Of all: reads that should have gone past the page cache, and could not; the worker has
    /// waited for them.
    pub not_direct: AtomicU64,
    /// Steps of which the kernel was told before they were read.
    pub advised: AtomicU64,
}

/// A new backend, or what the kernel says instead.
type Opened = io::Result<Box<dyn FileIo>>;

/// One backend as data.
pub struct Backend {
    /// The one spelling: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it reads past the page cache: nothing can be advised about it.
    pub past_cache: bool,
    /// Whether it has bytes read elsewhere, and can be told to have it so with all
    /// ([`Options::cached_at_once`]).
    pub reads_apart: bool,
    /// Makes one for a worker whose waits `waker` ends.
    open: fn(&Options, &Arc<Waker>) -> Opened,
}

impl Backend {
    /// Makes one for the worker whose waits `waker` ends.
    ///
    /// # Errors
    /// What the kernel says when it is set up.
    pub fn open(&self, options: &Options, waker: &Arc<Waker>) -> Opened {
        (self.open)(options, waker)
    }

    /// Whether this kernel offers it: tries, on a thread of its own, which alone a ring that has
    /// been closed then disturbs.
    ///
    /// # Errors
    /// The reason why not, in words for people.
    pub fn probe(&self) -> Result<(), String> {
        let trial = || {
            let waker = Arc::new(Waker::eventfd()?);
            self.open(&Options::new(1, 1), &waker).map(drop)
        };
        on_own_thread(trial)
            .and_then(|tried| tried)
            .map_err(|error| format!("cannot be set up: {error}"))
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend").field("name", &self.name).finish()
    }
}

/// Every file backend, in the order that people list them.
pub static ALL: &[&Backend] = &[
    &writev::WRITEV,
    &mmap::MMAP,
    &sendfile::SENDFILE,
    &splice::SPLICE,
    &threads::THREADS,
    &posix_aio::POSIX_AIO,
    &linux_aio::LINUX_AIO,
    &linux_aio_sendfile::LINUX_AIO_SENDFILE,
    &uring::URING,
];

/// The backend with that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Backend> {
    ALL.iter().copied().find(|backend| backend.name == name)
}

/// The backends whose ways [`auto`] takes: for bytes in the page cache, for many of them, and for
/// others.
pub static AUTO_TAKES: &[&Backend] = &[&sendfile::SENDFILE, &splice::SPLICE, &threads::THREADS];

/// What to take when there is no reason to take another: what is in the page
/// cache is sent at once, and what is not is read by other threads.
#[must_use]
pub fn auto() -> &'static Backend {
    &auto::AUTO
}

/// The error of a file that is shorter than it was when its length was sent.
fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated while it was sent")
}

/// Sends `head` with the promise that more follows (`MSG_MORE`), so that it
/// shares a segment with the first bytes of the file; returns how much of it
/// was taken.
fn send_head(socket: BorrowedFd<'_>, head: &[u8]) -> Result<usize, Errno> {
    use rustix::net::SendFlags;
    if head.is_empty() {
        return Ok(0);
    }
    rustix::net::send(socket, head, SendFlags::NOSIGNAL | SendFlags::MORE)
}
