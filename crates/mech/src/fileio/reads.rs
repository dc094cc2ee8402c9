//! What backends share that have the bytes read elsewhere: one operation per
//! connection, with a buffer that the reader fills and the socket empties.
//!
//! A connection has at most one read under way, so that a reader that takes
//! them in turn is fair between connections, and a slow client holds one buffer.
//!
//! What is in the page cache need not wait behind what is not: if the options say
//! so, the worker reads it at once ([`Options::cached_at_once`]), as io_uring does
//! by itself.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::buffer::Buffer;
use super::times::{Span, Times};
use super::{Counts, FileIo, Options, Sent, Transfer, cached, truncated};
use crate::key::Key;
use crate::socket::send_vectored;

/// Who reads.
pub(super) trait Reader {
    /// Offsets and lengths are multiples of it.
    const ALIGNMENT: u64 = 1;
    /// A read of what is in the page cache has ended by the first [`Reader::finished`] behind its
    /// beginning, unless it was told to be elsewhere. That call is needed for all reads to go on.
    const MAY_END_AT_ONCE: bool = false;

    /// Begins to read.
    ///
    /// # Errors
    /// `WouldBlock`: as many reads as there can be are under way; otherwise the
    /// read's own error. In either case it has not begun.
    ///
    /// # Safety
    /// The descriptor stays open, and nobody touches the buffer, until
    /// [`Reader::finished`] has named the read.
    unsafe fn begin(&mut self, read: Read) -> io::Result<()>;

    /// Names the reads that have ended since the last call.
    ///
    /// # Errors
    /// What the kernel says of the reader itself. The reads that are named have ended all the same,
    /// and no others.
    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()>;

    /// Ends the worker's wait, because there is something for [`FileIo::reap`]. Needed where
    /// [`Reader::MAY_END_AT_ONCE`].
    ///
    /// # Errors
    /// What the kernel says.
    fn ring(&self) -> io::Result<()> {
        Ok(())
    }

    /// Waits until a read has ended.
    ///
    /// # Errors
    /// As [`Reader::finished`].
    fn wait(&mut self) -> io::Result<()>;
}

/// What to read, into which memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// What it is called when it has ended.
    pub(super) id: u32,
    pub(super) file: RawFd,
    pub(super) offset: u64,
    pub(super) buffer: *mut u8,
    pub(super) len: usize,
    /// Whether its end should tell its [`Span`], as far as the reader knows it.
    pub(super) timed: bool,
    /// How many bytes behind these the kernel should be told of; 0: none.
    pub(super) next: usize,
}

/// How a read ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) id: u32,
    /// Bytes read; 0 at the end of the file.
    pub(super) result: io::Result<usize>,
    /// `None`: from when it was passed on until the worker took in its end.
    pub(super) span: Option<Span>,
}

/// Free operations that keep their buffer.
const KEPT: usize = 64;

/// No operation.
const NONE: u32 = u32::MAX;

pub(super) struct Reads<R: Reader> {
    reader: R,
    /// The backend's name.
    name: &'static str,
    /// Whether reads are timed.
    timed: bool,
    /// Whether what is in the page cache is read at once: here, before the reader is asked, or by it.
    cached_at_once: bool,
    advises: bool,
    counts: Arc<Counts>,
    /// What reads took, by slot; empty if they are not timed.
    times: Vec<Times>,
    /// Bytes per read.
    size: usize,
    operations: Vec<Operation>,
    free: Vec<u32>,
    /// The operation of each slot.
    of_slot: Vec<u32>,
    /// Operations that the reader has no room for yet.
    waiting: VecDeque<u32>,
    under_way: usize,
    ended: Vec<Ended>,
    /// Whose reads have ended since the last `reap`.
    ready: Vec<Key>,
}

struct Operation {
    /// Whose it is; [`Key::WAKER`]: nobody's any more.
    key: Key,
    /// Kept open for the reader.
    file: Option<Rc<OwnedFd>>,
    /// Where in the file the buffer begins.
    offset: u64,
    buffer: Buffer,
    /// How many bytes behind the buffer's the connection will want next.
    next: usize,
    state: State,
    /// When it was wanted and passed on to the reader, if it is timed and not accounted for yet.
    asked: Option<Instant>,
    span: Option<Span>,
}

enum State {
    Free,
    Waiting,
    Reading,
    /// The buffer holds so many bytes.
    Read(usize),
    Failed(io::Error),
}

impl<R: Reader> Reads<R> {
    pub(super) fn new(reader: R, options: &Options, name: &'static str) -> Reads<R> {
        let size = options.read_ahead.max(1).next_multiple_of(R::ALIGNMENT as usize);
        Reads {
            reader,
            name,
            timed: options.timed,
            cached_at_once: options.cached_at_once,
            advises: options.advise_next,
            counts: Arc::clone(&options.counts),
            times: Vec::new(),
            size,
            operations: Vec::new(),
            free: Vec::new(),
            of_slot: Vec::new(),
            waiting: VecDeque::new(),
            under_way: 0,
            ended: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Whether something is being read, or was, for this connection.
    pub(super) fn has(&self, key: Key) -> bool {
        self.of(key) != NONE
    }

    /// Who reads.
    #[cfg(test)]
    pub(super) fn reader(&self) -> &R {
        &self.reader
    }

    fn of(&self, key: Key) -> u32 {
        self.of_slot.get(key.slot as usize).copied().unwrap_or(NONE)
    }

    /// Begins to read what `transfer` wants, for its connection.
    fn begin(&mut self, transfer: &Transfer<'_>) -> io::Result<()> {
        let id = self.free.pop().unwrap_or_else(|| {
            self.operations.push(Operation::vacant());
            (self.operations.len() - 1) as u32
        });
        let operation = &mut self.operations[id as usize];
        operation.key = transfer.key;
        operation.file = Some(Rc::clone(transfer.file));
        operation.offset = transfer.offset - transfer.offset % R::ALIGNMENT;
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        operation.state = State::Waiting;
        operation.asked = self.timed.then(Instant::now);
        let slot = transfer.key.slot as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, NONE);
        }
        self.of_slot[slot] = id;
        let end = transfer.offset + transfer.len;
        let len = (end - operation.offset).min(self.size as u64) as usize;
        let behind = (end - operation.offset) - len as u64;
        operation.next = if self.advises { behind.min(self.size as u64) as usize } else { 0 };
        operation.buffer.prepare(len.next_multiple_of(R::ALIGNMENT as usize));
        let looks = self.cached_at_once && !R::MAY_END_AT_ONCE;
        if looks && operation.read_at_once(transfer.offset) {
            self.counts.at_once.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let passed_on =
            self.waiting.is_empty() && self.pass_on(id).inspect_err(|_| self.retire(id))?;
        if !passed_on {
            self.waiting.push_back(id);
        }
        Ok(())
    }

    /// Gives an operation to the reader; `false`: it has no room.
    fn pass_on(&mut self, id: u32) -> io::Result<bool> {
        let operation = &mut self.operations[id as usize];
        let Some(file) = &operation.file else { return Ok(true) };
        let read = Read {
            id,
            file: file.as_raw_fd(),
            offset: operation.offset,
            buffer: operation.buffer.start(),
            len: operation.buffer.len(),
            timed: self.timed,
            next: operation.next,
        };
        let begun = self.timed.then(Instant::now);
        // SAFETY: the operation holds the file and the buffer, and neither is touched before its
        // state changes, which `reap` does when the reader has named it; `drop` waits for that.
        match unsafe { self.reader.begin(read) } {
            Ok(()) => {
                operation.state = State::Reading;
                operation.span = begun.map(|begun| Span { begun, ended: begun });
                self.under_way += 1;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.under_way > 0 => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes down which reads have ended, and how.
    fn take_ended(&mut self) -> io::Result<()> {
        let mut ended = mem::take(&mut self.ended);
        let finished = self.reader.finished(&mut ended);
        let now = (self.timed && !ended.is_empty()).then(Instant::now);
        for Ended { id, result, span } in ended.drain(..) {
            self.under_way -= 1;
            let operation = &mut self.operations[id as usize];
            operation.file = None;
            let ended = |begun: Span| Some(Span { ended: now?, ..begun });
            operation.span = span.or_else(|| operation.span.and_then(ended));
            if operation.key == Key::WAKER {
                self.retire(id);
                continue;
            }
            operation.state = match result {
                Ok(count) => State::Read(count),
                // The caller would take it for the socket's.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    State::Failed(io::Error::other("the file cannot be read without waiting"))
                }
                Err(error) => State::Failed(error),
            };
            self.ready.push(operation.key);
        }
        self.ended = ended;
        finished
    }

    /// Takes down what a timed read took, if its bytes are taken up now for the first time.
    fn account_if_ended(&mut self, id: u32) {
        let operation = &mut self.operations[id as usize];
        if matches!(operation.state, State::Waiting | State::Reading) {
            return;
        }
        if let (Some(asked), Some(span)) = (operation.asked.take(), operation.span.take()) {
            let slot = operation.key.slot as usize;
            if self.times.len() <= slot {
                self.times.resize(slot + 1, Times::default());
            }
            self.times[slot].add(self.name, asked, span);
        }
    }

    /// Ends an operation that the reader does not have.
    fn retire(&mut self, id: u32) {
        let operation = &mut self.operations[id as usize];
        if let Some(place) = self.of_slot.get_mut(operation.key.slot as usize)
            && *place == id
        {
            *place = NONE;
        }
        operation.file = None;
        operation.state = State::Free;
        if self.free.len() >= KEPT {
            operation.buffer = Buffer::default();
        }
        self.free.push(id);
    }

    /// Sends from the buffer of operation `id`, which holds `filled` bytes.
    fn send_read(&mut self, id: u32, filled: usize, transfer: &Transfer<'_>) -> io::Result<Sent> {
        let operation = &self.operations[id as usize];
        let from = (transfer.offset - operation.offset) as usize;
        let to = filled.min(from.saturating_add(usize::try_from(transfer.len).unwrap_or(filled)));
        if from >= to {
            self.retire(id);
            return Err(truncated());
        }
        let bytes = &operation.buffer.bytes(filled)[from..to];
        let count = send_vectored(transfer.socket, &[transfer.head, bytes])?;
        if count == transfer.head.len() + bytes.len() {
            self.retire(id);
        }
        Ok(Sent::Bytes(count))
    }
}

impl<R: Reader> FileIo for Reads<R> {
    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        let mut id = self.of(transfer.key);
        if id == NONE {
            self.begin(&transfer)?;
            id = self.of(transfer.key);
            if R::MAY_END_AT_ONCE {
                self.take_ended()?;
                let over = matches!(self.operations[id as usize].state, State::Read(_));
                if over && self.cached_at_once {
                    self.counts.at_once.fetch_add(1, Ordering::Relaxed);
                }
                // Those of others that ended meanwhile have been taken from the kernel, which has no
                // reason any more to end the wait for them.
                self.ready.retain(|&key| key != transfer.key);
                if !self.ready.is_empty() {
                    self.reader.ring()?;
                }
            }
        }
        if self.timed {
            self.account_if_ended(id);
        }
        match &mut self.operations[id as usize].state {
            State::Waiting | State::Reading => Ok(Sent::Later),
            State::Read(filled) => {
                let filled = *filled;
                self.send_read(id, filled, &transfer)
            }
            State::Failed(error) => {
                let error = mem::replace(error, io::ErrorKind::Other.into());
                self.retire(id);
                Err(error)
            }
            State::Free => unreachable!("a slot's operation is in use"),
        }
    }

    fn reap(&mut self, ready: &mut Vec<Key>) -> io::Result<()> {
        if self.under_way > 0 {
            self.take_ended()?;
        }
        let waited = !self.waiting.is_empty();
        while let Some(id) = self.waiting.pop_front() {
            match self.pass_on(id) {
                Ok(true) => {}
                Ok(false) => {
                    self.waiting.push_front(id);
                    break;
                }
                Err(error) => {
                    let operation = &mut self.operations[id as usize];
                    operation.state = State::Failed(error);
                    self.ready.push(operation.key);
                }
            }
        }
        if R::MAY_END_AT_ONCE && waited {
            self.take_ended()?;
        }
        ready.append(&mut self.ready);
        Ok(())
    }

    fn take_times(&mut self, key: Key) -> Times {
        self.times.get_mut(key.slot as usize).map(mem::take).unwrap_or_default()
    }

    fn forget(&mut self, key: Key) {
        self.take_times(key);
        let id = self.of(key);
        if id == NONE {
            return;
        }
        self.of_slot[key.slot as usize] = NONE;
        match self.operations[id as usize].state {
            State::Reading => self.operations[id as usize].key = Key::WAKER,
            _ => {
                self.waiting.retain(|&waiting| waiting != id);
                self.retire(id);
            }
        }
    }
}

impl<R: Reader> Drop for Reads<R> {
    fn drop(&mut self) {
        while self.under_way > 0 {
            let waited = self.reader.wait().and_then(|()| self.reader.finished(&mut self.ended));
            self.under_way -= self.ended.len();
            self.ended.clear();
            if waited.is_err() {
                // The reader cannot say when it is done with the buffers: they are left to it.
                mem::forget(mem::take(&mut self.operations));
                return;
            }
        }
    }
}

impl Operation {
    fn vacant() -> Operation {
        Operation {
            key: Key::WAKER,
            file: None,
            offset: 0,
            buffer: Buffer::default(),
            next: 0,
            state: State::Free,
            asked: None,
            span: None,
        }
    }

    /// Fills the buffer with what the page cache has, if that has all that is wanted; at least the
    /// byte at `wanted`.
    fn read_at_once(&mut self, wanted: u64) -> bool {
        let Some(file) = &self.file else { return false };
        let (offset, len) = (self.offset, self.buffer.len());
        if !cached::has_pages(file.as_fd(), offset, len as u64) {
            return false;
        }
        let count = match cached::read(file.as_fd(), self.buffer.bytes_mut(), offset) {
            Ok(count) if offset + count as u64 > wanted => count,
            // Whoever reads it now finds out why.
            _ => return false,
        };
        self.span = self.asked.map(|begun| Span { begun, ended: Instant::now() });
        self.state = State::Read(count);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Has room for one read at a time, and ends it when the test says how.
    #[derive(Default)]
    struct OneByOne {
        current: Option<Read>,
        ended: Vec<Ended>,
        /// The offsets of all reads that have begun.
        begun: Vec<u64>,
        /// Whether the next look at the ended ones fails, once they are named.
        fails: bool,
    }

    struct Reader1(Rc<RefCell<OneByOne>>);

    impl Reader for Reader1 {
        unsafe fn begin(&mut self, read: Read) -> io::Result<()> {
            let mut reader = self.0.borrow_mut();
            if read.offset == 13 {
                return Err(io::Error::other("unlucky"));
            }
            if reader.current.is_some() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            reader.begun.push(read.offset);
            reader.current = Some(read);
            Ok(())
        }

        fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
            let mut reader = self.0.borrow_mut();
            ended.append(&mut reader.ended);
            match mem::take(&mut reader.fails) {
                true => Err(io::Error::other("broken")),
                false => Ok(()),
            }
        }

        fn wait(&mut self) -> io::Result<()> {
            end(&self.0, b"late");
            Ok(())
        }
    }

    /// Ends the current read with these bytes.
    fn end(reader: &RefCell<OneByOne>, bytes: &[u8]) {
        let mut reader = reader.borrow_mut();
        let read = reader.current.take().unwrap();
        assert!(bytes.len() <= read.len);
        // SAFETY: the buffer is the reader's until `finished` names the read.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), read.buffer, bytes.len()) };
        reader.ended.push(Ended { id: read.id, result: Ok(bytes.len()), span: None });
    }

    struct Case {
        reader: Rc<RefCell<OneByOne>>,
        reads: Reads<Reader1>,
        socket: UnixStream,
        peer: UnixStream,
        file: Rc<OwnedFd>,
    }

    fn case() -> Case {
        case_with(Options { timed: true, cached_at_once: false, ..Options::new(16, 1) })
    }

    fn case_with(options: Options) -> Case {
        let reader: Rc<RefCell<OneByOne>> = Rc::default();
        let (socket, peer) = UnixStream::pair().unwrap();
        let file = Rc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        Case {
            reads: Reads::new(Reader1(Rc::clone(&reader)), &options, "one by one"),
            reader,
            socket,
            peer,
            file,
        }
    }

    fn key(slot: u32) -> Key {
        Key { slot, generation: 1 }
    }

    impl Case {
        fn send(&mut self, slot: u32, offset: u64) -> io::Result<Sent> {
            let (socket, file) = (self.socket.as_fd(), &self.file);
            let transfer = Transfer { key: key(slot), socket, head: b"", file, offset, len: 4 };
            self.reads.send(transfer)
        }

        fn reap(&mut self) -> Vec<u32> {
            let mut ready = Vec::new();
            self.reads.reap(&mut ready).unwrap();
            ready.into_iter().map(|key| key.slot).collect()
        }

        fn received(&mut self) -> Vec<u8> {
            let mut bytes = [0; 4];
            self.peer.read_exact(&mut bytes).unwrap();
            bytes.to_vec()
        }
    }

    #[test]
    fn reads_that_find_no_room_follow_in_their_order() {
        let mut case = case();
        for slot in 0..3 {
            assert_eq!(case.send(slot, u64::from(slot)).unwrap(), Sent::Later);
        }
        for slot in 0..3 {
            end(&case.reader, &[b'a' + slot as u8; 4]);
            assert_eq!(case.reap(), [slot]);
            assert_eq!(case.send(slot, u64::from(slot)).unwrap(), Sent::Bytes(4));
            assert_eq!(case.received(), [b'a' + slot as u8; 4]);
        }
        assert_eq!(case.reader.borrow().begun, [0, 1, 2]);
        assert!((0..3).all(|slot| !case.reads.has(key(slot))));
    }

    #[test]
    fn an_error_reaches_its_connection_and_no_other() {
        let mut case = case();
        assert_eq!(case.send(5, 13).unwrap_err().to_string(), "unlucky");
        // Once more behind a read that keeps it waiting.
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        assert_eq!(case.send(6, 6).unwrap(), Sent::Later);
        assert_eq!(case.send(5, 13).unwrap(), Sent::Later);
        end(&case.reader, b"good");
        assert_eq!(case.reap(), [0, 5]);
        end(&case.reader, b"next");
        assert_eq!(case.reap(), [6]);
        assert_eq!(case.send(5, 13).unwrap_err().to_string(), "unlucky");
        assert_eq!(case.send(6, 6).unwrap(), Sent::Bytes(4));
    }

    #[test]
    fn what_ended_before_the_reader_failed_has_ended() {
        let mut case = case();
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        end(&case.reader, b"done");
        case.reader.borrow_mut().fails = true;
        assert_eq!(case.reads.reap(&mut Vec::new()).unwrap_err().to_string(), "broken");
        assert_eq!(case.reap(), [0]);
        assert_eq!(case.send(0, 0).unwrap(), Sent::Bytes(4));
        assert_eq!(case.received(), b"done");
    }

    #[test]
    fn a_connection_that_is_gone_is_not_named_and_its_buffer_stays_until_the_end() {
        let mut case = case();
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        assert_eq!(case.send(1, 1).unwrap(), Sent::Later);
        case.reads.forget(key(0));
        case.reads.forget(key(1));
        // The slot has another owner by now.
        assert_eq!(case.send(0, 7).unwrap(), Sent::Later);
        end(&case.reader, b"gone");
        assert_eq!(case.reap(), [0; 0]);
        assert_eq!(case.reader.borrow().begun, [0, 7]);
        end(&case.reader, b"mine");
        assert_eq!(case.reap(), [0]);
        assert_eq!(case.send(0, 7).unwrap(), Sent::Bytes(4));
        assert_eq!(case.received(), b"mine");
    }

    #[test]
    fn the_end_of_the_file_before_the_transfer_s_is_an_error() {
        let mut case = case();
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        end(&case.reader, b"");
        assert_eq!(case.reap(), [0]);
        assert_eq!(case.send(0, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn times_are_those_of_the_connection_and_told_once() {
        let mut case = case();
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        assert_eq!(case.send(1, 1).unwrap(), Sent::Later);
        end(&case.reader, b"zero");
        assert_eq!(case.reap(), [0]);
        assert_eq!(case.reads.take_times(key(0)).reads, 0);
        assert_eq!(case.send(0, 0).unwrap(), Sent::Bytes(4));
        let times = case.reads.take_times(key(0));
        assert_eq!((times.backend, times.reads), (Some("one by one"), 1));
        assert_eq!(times.longest, times.queue + times.read + times.back);
        assert_eq!(case.reads.take_times(key(0)), Times::default());
        // The second waited for the first to end.
        end(&case.reader, b"ones");
        assert_eq!(case.reap(), [1]);
        assert_eq!(case.send(1, 1).unwrap(), Sent::Bytes(4));
        assert!(!case.reads.take_times(key(1)).queue.is_zero());
        // What a connection that is gone has left is not its successor's.
        assert_eq!(case.send(2, 2).unwrap(), Sent::Later);
        end(&case.reader, b"twos");
        assert_eq!(case.reap(), [2]);
        assert_eq!(case.send(2, 2).unwrap(), Sent::Bytes(4));
        case.reads.forget(key(2));
        assert_eq!(case.reads.take_times(key(2)), Times::default());
    }

    #[test]
    fn what_is_in_the_page_cache_is_read_at_once_behind_what_is_not() {
        // Not in /tmp, which may have no disk behind it.
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(b"0123456789").unwrap();
        file.sync_all().unwrap();
        let options = Options { timed: true, ..Options::new(16, 1) };
        let counts = Arc::clone(&options.counts);
        let counted =
            || (counts.reads.load(Ordering::Relaxed), counts.at_once.load(Ordering::Relaxed));
        let mut case = case_with(options);
        // What cannot say is not waited for.
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        assert_eq!(counted(), (1, 0));
        case.file = Rc::new(OwnedFd::from(file));
        assert_eq!(case.send(1, 2).unwrap(), Sent::Bytes(4));
        assert_eq!(case.received(), b"2345");
        // As much as there is of what was promised.
        assert_eq!(case.send(1, 7).unwrap(), Sent::Bytes(3));
        assert_eq!(counted(), (3, 2));
        assert_eq!(case.reads.take_times(key(1)).reads, 2);
        assert!(!case.reads.has(key(1)) && case.reader.borrow().begun == [0]);
        // Behind the end: the reader finds out.
        assert_eq!(case.send(1, 10).unwrap(), Sent::Later);
        rustix::fs::fadvise(&case.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if cached::has_pages(case.file.as_fd(), 0, 10) {
            return testing::skip!("the file system keeps the pages, or the kernel cannot say");
        }
        assert_eq!(case.send(2, 0).unwrap(), Sent::Later);
        assert_eq!(counted(), (5, 2));
    }

    #[test]
    fn dropping_waits_for_what_is_under_way() {
        let mut case = case();
        assert_eq!(case.send(0, 0).unwrap(), Sent::Later);
        drop(case.reads);
        assert!(case.reader.borrow().current.is_none());
    }
}
