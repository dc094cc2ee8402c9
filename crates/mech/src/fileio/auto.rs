//! `auto`, the default backend: sends bytes that are in the page cache at once by sendfile(2), and reads
//! all others on the process' threads, so that a slow disk never stops a worker.
//!
//! Large parts go through a pipe of the backend's own (splice(2)). sendfile(2) itself splices through an
//! internal pipe of 64 KiB (`splice_direct_to_actor`). With a pipe of 1 MiB, sending a file of 10 MiB
//! costs about 4 % less processor time (docs/performance.md).
//!
//! Two questions tell whether bytes are in the page cache (`support/page_cache.rs`). cachestat(2) counts
//! the pages, but also counts a page that is still being read, for which sendfile(2) would wait.
//! Read-ahead reads the last byte last, so preadv2(2) with `RWF_NOWAIT` tries to read that byte.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;

use super::sendfile::{SENDFILE, Sendfile};
use super::splice::{PIPE_SIZE, SPLICE, Splice};
use super::threads::{self, THREADS, Threads};
use super::writev::WRITEV;
use crate::fileio::support::page_cache::{has_pages, is_read};
use crate::fileio::support::reads::Reads;
use crate::fileio::{Backend, FileIo, FileIoOptions, ReadTimes, Sent, Transfer, read_here};
use crate::files::served::ServedFile;
use crate::key::Key;
use drover_sys::waker::Waker;

/// The backend behind `auto`.
pub(crate) static AUTO: Backend = Backend {
    // Never counted: what it takes is.
    place: 0,
    name: "auto",
    summary: "sendfile(2), or splice(2), for what is in the page cache; threads read the rest",
    past_cache: false,
    sends_unread: false,
    reads_apart: false,
    calls: &[libc::SYS_sendfile, libc::SYS_splice, libc::SYS_pipe2],
    open: |options, waker| Ok(Box::new(Auto::new(options, waker))),
};

/// How many bytes one look at the page cache covers at most.
const WINDOW: u64 = 16 << 20;

/// How many sends may follow one look at the page cache before the next look. [`FileIo::forget_cached`]
/// ends this trust after about a second. The kernel evicts the least recently used pages first, and so
/// hardly those of a file that is sent this often.
const TRUSTED: u8 = 63;

/// A worker remembers nothing of files with this descriptor number or a higher one, to bound its memory.
const KNOWN_MOST: usize = 64 * 1024;

struct Auto {
    /// Sends bytes in the page cache.
    cached: Sendfile,
    /// Sends large parts in the page cache.
    large: Splice,
    /// The connections for which `large` has sent since the last [`FileIo::take_times`]. Empty unless
    /// [`FileIoOptions::timed`].
    spliced: HashSet<Key>,
    /// Reads bytes that are not in the page cache. `None` until the first such read.
    cold: Option<Reads<Threads>>,
    options: FileIoOptions,
    waker: Arc<Waker>,
    /// The cached part of each file that is remembered, by descriptor number.
    known: Vec<Known>,
    /// The backend that was asked to send or to read last.
    sender: &'static Backend,
    /// The number of calls of [`FileIo::forget_cached`]. An entry of `known` with another period is void.
    period: u32,
}

/// A part of an open file that was in the page cache. The entry may describe a file that was closed
/// since, if another file now has the same descriptor number and address. The only consequence is that
/// sendfile(2) may wait for a disk.
#[derive(Clone, Copy)]
struct Known {
    /// The address of the file's [`Rc`].
    file: *const ServedFile,
    /// The first byte of the cached part, and the byte behind its last.
    start: u64,
    end: u64,
    /// How many more sends may trust this entry.
    left: u8,
    /// The value of [`Auto::period`] when the page cache was asked.
    period: u32,
}

const UNKNOWN: Known = Known { file: std::ptr::null(), start: 0, end: 0, left: 0, period: 0 };

impl FileIo for Auto {
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        if let Some(cold) = &mut self.cold
            && cold.has(transfer.key)
        {
            self.sender = &THREADS;
            let sent = cold.send(transfer);
            self.give_back_what_is_cached(&transfer, &sent);
            return sent;
        }
        // Bytes of this connection are in a pipe: they must be sent before any others.
        if self.large.has(transfer.key) {
            self.sender = &SPLICE;
            return self.large.send(transfer);
        }
        if let Some(len) = self.cached_len(transfer.file, transfer.offset, transfer.len) {
            let transfer = Transfer { len, ..transfer };
            if len.min(transfer.at_once) < PIPE_SIZE as u64
                || !self.large.has_pipe(self.options.pipes)
            {
                self.sender = &SENDFILE;
                return self.cached.send(transfer);
            }
            self.sender = &SPLICE;
            if self.options.timed {
                self.spliced.insert(transfer.key);
            }
            return self.large.send(transfer);
        }
        match self.cold() {
            Some(cold) => {
                let sent = cold.send(transfer);
                self.sender = &THREADS;
                sent
            }
            None => {
                self.sender = &SENDFILE;
                self.cached.send(transfer)
            }
        }
    }

    fn sender(&self) -> &'static Backend {
        self.sender
    }

    /// Reads what is in the page cache at once, as `writev` does, and has the threads read all else.
    fn read(&mut self, transfer: Transfer<'_>, into: &mut Vec<u8>) -> io::Result<Sent> {
        let is_cold = self.cold.as_ref().is_some_and(|cold| cold.has(transfer.key));
        if !is_cold && let Some(len) = self.cached_len(transfer.file, transfer.offset, transfer.len)
        {
            self.sender = &WRITEV;
            return read_here(&Transfer { len, ..transfer }, into);
        }
        match self.cold() {
            Some(cold) => {
                let read = cold.read(transfer, into);
                self.sender = &THREADS;
                read
            }
            None => {
                self.sender = &WRITEV;
                read_here(&transfer, into)
            }
        }
    }

    fn reader(&self) -> &'static Backend {
        self.sender
    }

    fn reap(&mut self, ready: &mut Vec<Key>) -> io::Result<()> {
        self.cold.as_mut().map_or(Ok(()), |cold| cold.reap(ready))
    }

    fn forget(&mut self, key: Key) {
        self.large.forget(key);
        self.was_spliced(key);
        if let Some(cold) = &mut self.cold {
            cold.forget(key);
        }
    }

    fn forget_cached(&mut self) {
        self.period = self.period.wrapping_add(1);
    }

    fn take_times(&mut self, key: Key) -> ReadTimes {
        let spliced = self.was_spliced(key).then_some(SPLICE.name);
        let read = self.cold.as_mut().map_or_else(ReadTimes::default, |cold| cold.take_times(key));
        ReadTimes { backend: read.backend.or(spliced), ..read }
    }
}

impl Auto {
    fn new(options: &FileIoOptions, waker: &Arc<Waker>) -> Auto {
        Auto {
            cached: Sendfile,
            large: Splice::default(),
            spliced: HashSet::new(),
            cold: None,
            // `Auto` has asked the page cache before it uses the reading threads.
            options: FileIoOptions { cached_at_once: false, ..options.clone() },
            waker: Arc::clone(waker),
            known: Vec::new(),
            sender: &SENDFILE,
            period: 0,
        }
    }

    /// What reads bytes that are not in the page cache. `None`: no thread can be started, and whoever reads waits for the disk on the
    /// worker's thread.
    fn cold(&mut self) -> Option<&mut Reads<Threads>> {
        if self.cold.is_none() {
            self.cold = threads::open(&self.options, &self.waker).ok();
        }
        self.cold.as_mut()
    }

    /// Frees the buffer of a connection if the bytes that were not sent yet are in the page cache. A slow
    /// client then gets these bytes by sendfile(2), and occupies no memory of [`FileIoOptions::read_memory`].
    fn give_back_what_is_cached(&mut self, transfer: &Transfer<'_>, sent: &io::Result<Sent>) {
        let Some(cold) = &mut self.cold else { return };
        let Some(end) = cold.end_of_rest(transfer.key) else { return };
        let sent = if let Ok(Sent::Bytes(count)) = sent { *count } else { 0 };
        let offset = transfer.offset + sent.saturating_sub(transfer.head.len()) as u64;
        let len = end.saturating_sub(offset);
        if len > 0 && is_cached(transfer.file, offset, len) {
            cold.give_back(transfer.key);
        }
    }

    /// Whether `large` has sent for that connection since the last call.
    fn was_spliced(&mut self, key: Key) -> bool {
        !self.spliced.is_empty() && self.spliced.remove(&key)
    }

    /// How many bytes from `offset` on are known to be in the page cache, at most `len`. `None`: a disk
    /// must be asked for bytes of the first step.
    fn cached_len(&mut self, file: &Rc<ServedFile>, offset: u64, len: u64) -> Option<u64> {
        let number = file.as_raw_fd() as usize;
        let identity = Rc::as_ptr(file);
        if let Some(known) = self.known.get_mut(number)
            && known.file == identity
            && known.left > 0
            && known.period == self.period
            && (known.start..known.end).contains(&offset)
        {
            known.left -= 1;
            return Some(len.min(known.end - offset));
        }
        // Asks for the whole window first. If a page is missing there, asks for one step of reading.
        let step = self.options.read_ahead.max(1) as u64;
        let len = [len.min(WINDOW), len.min(step)]
            .into_iter()
            .find(|len| is_cached(file, offset, *len))?;
        let end = offset + len;
        if number < KNOWN_MOST {
            if self.known.len() <= number {
                self.known.resize(number + 1, UNKNOWN);
            }
            self.known[number] =
                Known { file: identity, start: offset, end, left: TRUSTED, period: self.period };
        }
        Some(len)
    }
}

/// Whether the `len` bytes from `offset` on can be sent without waiting for a disk.
fn is_cached(file: &ServedFile, offset: u64, len: u64) -> bool {
    has_pages(file.as_fd(), offset, len) && is_read(file.as_fd(), offset + len - 1)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use rustix::fs::Advice;

    use super::*;
    use crate::fileio::PIPES;

    const LEN: usize = 300_000;

    /// Sends the whole file over a socket. Returns how often `send` answered `Later`, and the bytes that
    /// arrived.
    fn send(auto: &mut dyn FileIo, waker: &Waker, file: &Rc<ServedFile>) -> (usize, Vec<u8>) {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let key = Key { slot: 3, generation: 1 };
        let (mut later, mut sent) = (0, 0);
        while sent < LEN as u64 {
            let len = LEN as u64 - sent;
            let (socket, head) = (socket.as_fd(), &b""[..]);
            match auto
                .send(Transfer { key, socket, head, file, offset: sent, len, at_once: len })
                .unwrap()
            {
                Sent::Bytes(count) => sent += count as u64,
                Sent::Later => {
                    later += 1;
                    wait(waker);
                    let mut ready = Vec::new();
                    auto.reap(&mut ready).unwrap();
                    assert_eq!(ready, [key]);
                }
            }
        }
        drop(socket);
        (later, reader.join().unwrap())
    }

    fn wait(waker: &Waker) {
        use rustix::event::{PollFd, PollFlags, poll};
        let fd = waker.as_eventfd().unwrap();
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).unwrap();
        waker.drain().unwrap();
    }

    #[test]
    fn what_is_in_the_page_cache_is_sent_at_once_and_what_is_not_later() {
        // Not in /tmp, which may have no disk behind it.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let content: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        let file = Rc::new(ServedFile::from(file));
        let waker = Arc::new(Waker::eventfd().unwrap());
        let mut auto = AUTO.open(&FileIoOptions::default(), &waker).unwrap();

        let (later, bytes) = send(auto.as_mut(), &waker, &file);
        assert!((later, bytes.as_slice() == content) == (0, true));

        // The file is opened again, because `auto` trusts for a while what it found of the first open
        // file.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = Rc::new(ServedFile::from(std::fs::File::open(path).unwrap()));
        rustix::fs::fadvise(&again, 0, None, Advice::DontNeed).unwrap();
        if has_pages(again.as_fd(), 0, LEN as u64) {
            drover_testing::skip!(
                "the file system keeps the file's pages, or the kernel cannot say"
            );
            return;
        }
        let (later, bytes) = send(auto.as_mut(), &waker, &again);
        assert!(later > 0 && bytes == content);
    }

    fn in_memory(content: &[u8]) -> Rc<ServedFile> {
        let fd = rustix::fs::memfd_create("auto", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(content).unwrap();
        Rc::new(ServedFile::from(file))
    }

    #[test]
    fn what_is_on_a_file_system_without_a_disk_is_sent_at_once() {
        let content: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
        let file = in_memory(&content);
        assert!(crate::files::bytes::is_in_memory(file.as_fd()));
        let waker = Arc::new(Waker::eventfd().unwrap());
        let mut auto = AUTO.open(&FileIoOptions::default(), &waker).unwrap();
        let (later, bytes) = send(auto.as_mut(), &waker, &file);
        assert!((later, bytes == content) == (0, true));
    }

    #[test]
    fn large_parts_have_few_pipes_and_what_finds_none_is_sent_without() {
        let file = in_memory(&vec![7; 2 * PIPE_SIZE]);
        let waker = Arc::new(Waker::eventfd().unwrap());
        let options = FileIoOptions { timed: true, ..FileIoOptions::default() };
        let mut auto = Auto::new(&options, &waker);
        if !auto.large.has_pipe(1) {
            drover_testing::skip!("no pipe of {PIPE_SIZE} bytes here");
            return;
        }
        let key = |slot| Key { slot, generation: 1 };
        let mut peers = Vec::new();
        for slot in 0..PIPES as u32 + 2 {
            let (socket, peer) = UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            let len = 2 * PIPE_SIZE as u64;
            let (socket, head) = (socket.as_fd(), &b""[..]);
            let transfer = Transfer {
                key: key(slot),
                socket,
                head,
                file: &file,
                offset: 0,
                len,
                at_once: len,
            };
            // The peer does not read: bytes that the socket does not take stay in the pipe, if the
            // connection has one.
            assert!(matches!(auto.send(transfer), Ok(Sent::Bytes(1..))));
            assert_eq!(auto.large.has(key(slot)), (slot as usize) < PIPES);
            peers.push(peer);
        }
        let sender = |auto: &mut Auto, slot| auto.take_times(key(slot)).backend;
        assert_eq!(sender(&mut auto, 0), Some(SPLICE.name));
        assert_eq!(sender(&mut auto, 0), None, "once");
        assert_eq!(sender(&mut auto, PIPES as u32), None);
        assert!(!auto.large.has_pipe(PIPES));
        auto.forget(key(1));
        assert!(auto.large.has_pipe(PIPES) && sender(&mut auto, 1).is_none());
    }
}
