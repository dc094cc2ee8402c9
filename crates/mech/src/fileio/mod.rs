//! File backends: how a file's bytes reach the socket.
//!
//! Each backend has a file in this folder, implements the contract [`FileIo`], and has a record in
//! [`ALL`].
//!
//! Some backends read and send within [`FileIo::send`], on the worker's thread. A slow disk then stops
//! all connections of this worker. The other backends read on other threads or in the kernel, and
//! [`FileIo::send`] returns [`Sent::Later`] meanwhile. `support/reads.rs` has the code that these
//! backends share.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;

use crate::files::served::ServedFile;
use crate::key::Key;
use drover_sys::process::on_own_thread;
use drover_sys::reserve::try_resize;
use drover_sys::waker::Waker;

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
pub use support::readers::{ReadPool, ReadThreads};
pub use support::times::ReadTimes;

/// The contract of a file backend. Each worker has a value of its own.
pub trait FileIo {
    /// Sends as much of `transfer` as the socket takes without blocking.
    ///
    /// The caller calls again with the rest: when the socket is writable, or, after [`Sent::Later`], when
    /// [`FileIo::reap`] has named the connection.
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing. `UnexpectedEof` when the file ends before the
    /// transfer, because it was truncated: the caller must close the connection, which can no longer
    /// get the promised length. Otherwise an error of the file or of the socket.
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent>;

    /// The backend that [`FileIo::send`] has used the last time: of [`auto()`] one of those that it combines.
    fn sender(&self) -> &'static Backend;

    /// Appends the next bytes of the file to `into`, in place of sending them: what is encrypted passes through memory. Of
    /// `transfer`, the head and the socket are left alone, and at most [`Transfer::at_once`] bytes are read. A backend that sends
    /// without reading (sendfile, splice, mmap) reads as `writev` does.
    ///
    /// # Errors
    /// As [`FileIo::send`], but for those of the socket; `ENOMEM`.
    fn read(&mut self, transfer: Transfer<'_>, into: &mut Vec<u8>) -> io::Result<Sent> {
        read_here(&transfer, into)
    }

    /// The backend that [`FileIo::read`] has used the last time.
    fn reader(&self) -> &'static Backend {
        &writev::WRITEV
    }

    /// Collects the reads that have ended, and appends the keys of their connections to `ready`. The
    /// worker calls this method after every wait. The end of a read ends the wait by the worker's
    /// [`Waker`].
    ///
    /// # Errors
    /// A permanent error of the backend itself.
    fn reap(&mut self, _ready: &mut Vec<Key>) -> io::Result<()> {
        Ok(())
    }

    /// Discards what is being read, or was read, for a connection. The caller has closed the connection.
    fn forget(&mut self, _key: Key) {}

    /// Discards what the backend remembers of the page cache, because the kernel may have evicted pages
    /// since. A worker that is not idle calls this method about once a second.
    fn forget_cached(&mut self) {}

    /// How long the reads for this connection took since the last call. All zero unless
    /// [`FileIoOptions::timed`].
    fn take_times(&mut self, _key: Key) -> ReadTimes {
        ReadTimes::default()
    }
}

/// What to send to one connection: `head`, then `len` bytes of `file` from `offset` on.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'t> {
    /// The connection.
    pub key: Key,
    /// The connection's socket, non-blocking.
    pub socket: BorrowedFd<'t>,
    /// The bytes to send before the file's bytes. May be empty.
    pub head: &'t [u8],
    /// The file.
    pub file: &'t Rc<ServedFile>,
    /// The offset of the first byte in the file.
    pub offset: u64,
    /// How many bytes of the file to send, at least 1.
    pub len: u64,
    /// How many bytes of the file one call may send, at least 1, so that other connections get their
    /// turn. The backend may read more bytes ahead.
    pub at_once: u64,
}

/// The result of [`FileIo::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The socket took this many bytes of head and file, at least 1.
    Bytes(usize),
    /// The file's bytes are being read. [`FileIo::reap`] names the connection when the read has ended.
    Later,
}

/// The settings of all backends. [`crate::net::Net::open`] checks them.
#[derive(Clone, Debug)]
pub struct FileIoOptions {
    /// How many bytes are read at a time on other threads or in the kernel: by backends with
    /// [`Backend::reads_apart`], and by `auto`.
    pub read_ahead: usize,
    /// How many threads of the process read for the backends `threads` and `auto`.
    pub read_threads: usize,
    /// Whether to measure the stages of each read ([`FileIo::take_times`]).
    pub timed: bool,
    /// Whether a backend with [`Backend::reads_apart`] reads bytes on the worker's thread if they are
    /// in the page cache. Other backends ignore this setting.
    pub cached_at_once: bool,
    /// Whether to announce the next step of a file to the kernel while the current one is read
    /// (posix_fadvise(2), `WILLNEED`). Backends that bypass the page cache ignore this setting.
    pub advise_next: bool,
    /// How many pipes of 1 MiB each worker may have for large parts of files in the page cache; 0: none is sent by a pipe.
    /// For `auto`.
    pub pipes: usize,
    /// The bound on the memory for reads of all connections. Clones of these options share the bound.
    pub read_memory: Arc<ReadMemory>,
    /// What the backends count. Clones of these options share the counters.
    pub counts: Arc<FileIoCounts>,
    /// The process' reading threads. Clones of these options share the threads.
    pub threads: Arc<ReadThreads>,
}

/// The default of [`FileIoOptions::pipes`]. Ten more pipes saved nothing more. All pipes of an unprivileged user together may
/// hold 64 MiB (pipe(7), `pipe-user-pages-soft`).
const PIPES: usize = 4;

/// The default of [`FileIoOptions::read_memory`], in bytes.
const READ_MEMORY: u64 = 64 << 20;

impl Default for FileIoOptions {
    fn default() -> FileIoOptions {
        FileIoOptions {
            read_ahead: 128 * 1024,
            read_threads: 16,
            timed: false,
            cached_at_once: true,
            advise_next: false,
            pipes: PIPES,
            read_memory: ReadMemory::of(READ_MEMORY),
            counts: Arc::default(),
            threads: Arc::default(),
        }
    }
}

impl FileIoOptions {
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

    /// Lets each worker have pipes of at most `bytes` bytes together, and no more pipes than it has otherwise.
    #[must_use]
    pub fn with_pipe_memory(self, bytes: u64) -> FileIoOptions {
        let fit = usize::try_from(bytes / splice::PIPE_SIZE as u64).unwrap_or(usize::MAX);
        FileIoOptions { pipes: self.pipes.min(fit), ..self }
    }

    /// The reading threads, which all clones of these options share. The first call starts the threads.
    ///
    /// # Errors
    /// `EAGAIN` when the process or the user has too many threads.
    pub fn pool(&self) -> io::Result<Arc<ReadPool>> {
        self.threads.pool(self.read_threads)
    }
}

/// How many backends there are in [`ALL`].
pub const BACKENDS: usize = 9;

/// Counters of what the backends have done.
#[derive(Debug, Default)]
pub struct FileIoCounts {
    /// Reads by backends with [`Backend::reads_apart`], and by `auto` on other threads.
    pub reads: AtomicU64,
    /// The part of `reads` that the worker's thread or io_uring_enter(2) did at once, because the bytes
    /// were in the page cache.
    pub at_once: AtomicU64,
    /// The part of `reads` that had to bypass the page cache (`O_DIRECT`) and could not. The worker has
    /// waited for these reads.
    pub not_direct: AtomicU64,
    /// Steps of files that were announced to the kernel ([`FileIoOptions::advise_next`]).
    pub advised: AtomicU64,
    /// Bytes of files that sockets took, of each backend in [`ALL`].
    pub sent: [AtomicU64; BACKENDS],
}

/// A new backend, or the error of setting it up.
type Opened = io::Result<Box<dyn FileIo>>;

/// A backend as data.
pub struct Backend {
    /// The backend's place in [`ALL`].
    pub(crate) place: usize,
    /// The backend's name: flag value, file name, test label, chart legend.
    pub name: &'static str,
    /// What the backend does, in one line.
    pub summary: &'static str,
    /// Whether the backend bypasses the page cache (`O_DIRECT`). [`FileIoOptions::advise_next`] then has no
    /// effect.
    pub past_cache: bool,
    /// Whether bytes reach the socket without being read into memory. For what is to be encrypted, the file is read by pread(2) in
    /// place of that.
    pub sends_unread: bool,
    /// Whether the backend reads on other threads or in the kernel. [`FileIoOptions::cached_at_once`] then
    /// says whether it also does so for bytes in the page cache.
    pub reads_apart: bool,
    /// The system calls that the backend makes after it was opened, beside those by which any program reads files, uses
    /// sockets and memory, and starts threads: their numbers. For a filter (seccomp(2)).
    pub calls: &'static [libc::c_long],
    /// See [`Backend::open`].
    open: fn(&FileIoOptions, &Arc<Waker>) -> Opened,
}

impl Backend {
    /// Makes a backend for one worker. `waker` must end the waits of this worker.
    ///
    /// # Errors
    /// What the kernel answers when the backend is set up.
    pub fn open(&self, options: &FileIoOptions, waker: &Arc<Waker>) -> Opened {
        (self.open)(options, waker)
    }

    /// Checks that this kernel lets this process use the backend, by opening and closing it.
    ///
    /// # Errors
    /// What the kernel answered, as a message for the user.
    pub fn probe(&self) -> Result<(), String> {
        let trial = || {
            let waker = Arc::new(Waker::eventfd()?);
            let options = FileIoOptions { read_ahead: 1, read_threads: 1, ..Default::default() };
            self.open(&options, &waker).map(drop)
        };
        // A ring that was just closed may still interrupt system calls of the thread that opened it, so
        // the trial has a thread of its own.
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

/// Every file backend, in the order in which help texts and charts list them. [`auto()`] is not in it.
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

/// The backend with that [`Backend::name`].
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Backend> {
    ALL.iter().copied().find(|backend| backend.name == name)
}

/// The backends that [`auto()`] combines: for bytes in the page cache, for large parts in the page cache,
/// and for bytes that a disk must be asked for.
pub static AUTO_TAKES: &[&Backend] = &[&sendfile::SENDFILE, &splice::SPLICE, &threads::THREADS];

/// The default backend. Sends bytes that are in the page cache at once, and reads all others on other
/// threads.
#[must_use]
pub fn auto() -> &'static Backend {
    &auto::AUTO
}

/// The error for a file that has become shorter since its length was sent to the client.
fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated while it was sent")
}

/// Appends the next bytes of the transfer's file to `into`, by pread(2) on this thread.
fn read_here(transfer: &Transfer<'_>, into: &mut Vec<u8>) -> io::Result<Sent> {
    let len = transfer.len.min(transfer.at_once) as usize;
    let before = into.len();
    try_resize(into, before + len, 0)?;
    let read = rustix::io::pread(transfer.file, &mut into[before..], transfer.offset);
    into.truncate(before + read.unwrap_or(0));
    match read? {
        0 => Err(truncated()),
        count => Ok(Sent::Bytes(count)),
    }
}

/// Sends `head` with `MSG_MORE`: the kernel waits for more bytes, so that the head and the file's first
/// bytes share a segment. Returns how many bytes the socket took; 0 for an empty head.
fn send_head(socket: BorrowedFd<'_>, head: &[u8]) -> Result<usize, Errno> {
    use rustix::net::SendFlags;
    if head.is_empty() {
        return Ok(0);
    }
    rustix::net::send(socket, head, SendFlags::NOSIGNAL | SendFlags::MORE)
}
