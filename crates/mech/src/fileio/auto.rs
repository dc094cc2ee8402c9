//! What Drover takes by itself: bytes that are in the page cache are sent at
//! once by sendfile(2), and the others are read by the process' threads, so that
//! a cold disk never stalls a worker.
//!
//! Whether they are is asked in two ways (`cached.rs`). A page whose read is
//! still under way counts as being there, and sendfile(2) would wait for it; so
//! the last byte, which read-ahead brings in last, is read without waiting.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use super::cached::{has_pages, is_read};
use super::reads::Reads;
use super::sendfile::Sendfile;
use super::threads::{self, Threads};
use super::{Backend, FileIo, Options, Sent, Times, Transfer};
use crate::key::Key;
use crate::waker::Waker;

/// The backend behind `auto`.
pub(super) static AUTO: Backend = Backend {
    name: "auto",
    summary: "sendfile(2) for what is in the page cache; a pool of threads reads the rest",
    past_cache: false,
    reads_apart: false,
    open: |options, waker| {
        Ok(Box::new(Auto {
            cached: Sendfile,
            cold: None,
            // Whoever comes to them has asked already.
            options: Options { cached_at_once: false, ..options.clone() },
            waker: Arc::clone(waker),
            known: Vec::new(),
        }))
    },
};

/// What is looked at, and sent, at once of a body that is in the page cache.
const WINDOW: u64 = 16 << 20;

/// How often what was found in the page cache is sent without asking again. The pages of a file that
/// is sent so often are the last that the kernel would take.
const TRUSTED: u8 = 63;

/// Descriptors about which something is remembered.
const KNOWN_MOST: usize = 64 * 1024;

struct Auto {
    cached: Sendfile,
    /// Started with the first cold file.
    cold: Option<Reads<Threads>>,
    options: Options,
    waker: Arc<Waker>,
    /// By descriptor.
    known: Vec<Known>,
}

/// A part of an open file that was in the page cache. That another file has come to have its number
/// and its place is no harm: it may be waited for.
#[derive(Clone, Copy)]
struct Known {
    file: *const OwnedFd,
    start: u64,
    end: u64,
    /// How often that is trusted yet.
    left: u8,
}

const UNKNOWN: Known = Known { file: std::ptr::null(), start: 0, end: 0, left: 0 };

impl FileIo for Auto {
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        if let Some(cold) = &mut self.cold
            && cold.has(transfer.key)
        {
            return cold.send(transfer);
        }
        if let Some(len) = self.cached_len(transfer.file, transfer.offset, transfer.len) {
            return self.cached.send(Transfer { len, ..transfer });
        }
        let cold = match &mut self.cold {
            Some(cold) => cold,
            none => none.insert(threads::open(&self.options, &self.waker)?),
        };
        cold.send(transfer)
    }

    fn reap(&mut self, ready: &mut Vec<Key>) -> io::Result<()> {
        self.cold.as_mut().map_or(Ok(()), |cold| cold.reap(ready))
    }

    fn forget(&mut self, key: Key) {
        if let Some(cold) = &mut self.cold {
            cold.forget(key);
        }
    }

    fn take_times(&mut self, key: Key) -> Times {
        self.cold.as_mut().map_or_else(Times::default, |cold| cold.take_times(key))
    }
}

impl Auto {
    /// How many of these bytes are in the page cache from the first on, at most; `None`: some are
    /// not.
    fn cached_len(&mut self, file: &Rc<OwnedFd>, offset: u64, len: u64) -> Option<u64> {
        let number = file.as_raw_fd() as usize;
        let identity = Rc::as_ptr(file);
        if let Some(known) = self.known.get_mut(number)
            && known.file == identity
            && known.left > 0
            && (known.start..known.end).contains(&offset)
        {
            known.left -= 1;
            return Some(len.min(known.end - offset));
        }
        let len = len.min(WINDOW);
        let end = offset + len;
        if !has_pages(file.as_fd(), offset, len) || !is_read(file.as_fd(), end - 1) {
            return None;
        }
        if number < KNOWN_MOST {
            if self.known.len() <= number {
                self.known.resize(number + 1, UNKNOWN);
            }
            self.known[number] = Known { file: identity, start: offset, end, left: TRUSTED };
        }
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use rustix::fs::Advice;

    use super::*;

    const LEN: usize = 300_000;

    /// Sends the whole file over a socket, and says how often it had to be read elsewhere.
    fn send(auto: &mut dyn FileIo, waker: &Waker, file: &Rc<OwnedFd>) -> (usize, Vec<u8>) {
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
            match auto.send(Transfer { key, socket, head, file, offset: sent, len }).unwrap() {
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
        let file = Rc::new(OwnedFd::from(file));
        let waker = Arc::new(Waker::eventfd().unwrap());
        let mut auto = AUTO.open(&Options::default(), &waker).unwrap();

        let (later, bytes) = send(auto.as_mut(), &waker, &file);
        assert!((later, bytes.as_slice() == content) == (0, true));

        // Another open file: what was found of the first one is trusted for a while.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = Rc::new(OwnedFd::from(std::fs::File::open(path).unwrap()));
        rustix::fs::fadvise(&again, 0, None, Advice::DontNeed).unwrap();
        if has_pages(again.as_fd(), 0, LEN as u64) {
            println!("skipped: the file system keeps the file's pages, or the kernel cannot say");
            return;
        }
        let (later, bytes) = send(auto.as_mut(), &waker, &again);
        assert!(later > 0 && bytes == content);
    }

    #[test]
    fn what_is_on_a_file_system_without_a_disk_is_sent_at_once() {
        let fd = rustix::fs::memfd_create("auto", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let content: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
        let mut file = std::fs::File::from(fd);
        file.write_all(&content).unwrap();
        let file = Rc::new(OwnedFd::from(file));
        assert!(crate::fs::is_in_memory(file.as_fd()));
        let waker = Arc::new(Waker::eventfd().unwrap());
        let mut auto = AUTO.open(&Options::default(), &waker).unwrap();
        let (later, bytes) = send(auto.as_mut(), &waker, &file);
        assert!((later, bytes == content) == (0, true));
    }
}
