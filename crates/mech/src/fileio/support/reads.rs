//! What backends share that have the bytes read elsewhere: one operation per
//! connection, with a buffer that the reader fills and the socket empties.
//!
//! A connection has at most one read under way, so that a reader that takes
//! them in turn is fair between connections, and a slow client holds one buffer;
//! none while memory is short (`memory.rs`): what it did not take is read again.
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

use crate::fileio::support::buffer::Buffer;
use crate::fileio::support::memory::ReadMemory;
use crate::fileio::support::page_cache;
use crate::fileio::support::times::{Span, Times};
use crate::fileio::{Counts, FileIo, Options, Sent, Transfer, sendfile, truncated};
use crate::key::Key;
use sys::socket::send_vectored;
use sys::waker::Waker;

/// Who reads.
pub(crate) trait Reader {
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
    fn notify(&self) -> io::Result<()> {
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
pub(crate) struct Read {
    /// What it is called when it has ended.
    pub(crate) id: u32,
    pub(crate) file: RawFd,
    pub(crate) offset: u64,
    pub(crate) buffer: *mut u8,
    pub(crate) len: usize,
    /// Whether its end should tell its [`Span`], as far as the reader knows it.
    pub(crate) timed: bool,
    /// How many bytes behind these the kernel should be told of; 0: none.
    pub(crate) next: usize,
}

/// How a read ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: u32,
    /// Bytes read; 0 at the end of the file.
    pub(crate) result: io::Result<usize>,
    /// `None`: from when it was passed on until the worker took in its end.
    pub(crate) span: Option<Span>,
}

/// Buffers that are kept for the next reads.
const KEPT: usize = 32;

/// No operation.
const NONE: u32 = u32::MAX;

pub(crate) struct Reads<R: Reader> {
    reader: R,
    /// The backend's name.
    name: &'static str,
    /// Whether reads are timed.
    timed: bool,
    /// Whether what is in the page cache is read at once: here, before the reader is asked, or by it.
    cached_at_once: bool,
    advises: bool,
    /// Whether buffers are memory files that sendfile(2) lends to the socket.
    lends: bool,
    counts: Arc<Counts>,
    /// What reads took, by slot; empty if they are not timed.
    times: Vec<Times>,
    /// Bytes per read.
    size: usize,
    memory: Arc<ReadMemory>,
    /// Ends the worker's wait when there is memory again.
    waker: Arc<Waker>,
    /// Buffers of `capacity` bytes.
    spare: Vec<Buffer>,
    capacity: usize,
    operations: Vec<Operation>,
    free: Vec<u32>,
    /// The operation of each slot.
    of_slot: Vec<u32>,
    /// Operations that there is no memory for yet, or no room at the reader. Only the first may have a
    /// buffer.
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
    /// Where in the file the buffer begins, and how many bytes of it are read.
    offset: u64,
    len: usize,
    /// The first byte that the connection wants.
    wanted: u64,
    buffer: Option<Buffer>,
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
    pub(crate) fn new(
        reader: R,
        options: &Options,
        name: &'static str,
        waker: &Arc<Waker>,
    ) -> Reads<R> {
        let memory = Arc::clone(&options.read_memory);
        let most = usize::try_from(memory.most_of_one()).unwrap_or(usize::MAX);
        let size = options.read_ahead.clamp(1, most).next_multiple_of(R::ALIGNMENT as usize);
        let capacity = size.next_multiple_of(crate::files::root::page_size() as usize);
        Reads {
            reader,
            name,
            timed: options.timed,
            cached_at_once: options.cached_at_once,
            advises: options.advise_next,
            lends: false,
            counts: Arc::clone(&options.counts),
            times: Vec::new(),
            size,
            memory,
            waker: Arc::clone(waker),
            spare: Vec::new(),
            capacity,
            operations: Vec::new(),
            free: Vec::new(),
            of_slot: Vec::new(),
            waiting: VecDeque::new(),
            under_way: 0,
            ended: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// The same, with buffers whose pages are lent to the socket (sendfile(2)) instead of copied.
    pub(crate) fn lending(mut self) -> Reads<R> {
        self.lends = true;
        self
    }

    /// Whether something is being read, or was, for this connection.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.of(key) != NONE
    }

    /// Who reads.
    #[cfg(test)]
    pub(crate) fn reader(&self) -> &R {
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
        operation.len = len.next_multiple_of(R::ALIGNMENT as usize);
        operation.wanted = transfer.offset;
        let started = self.waiting.is_empty() && self.start(id).inspect_err(|_| self.retire(id))?;
        if !started {
            self.waiting.push_back(id);
        }
        Ok(())
    }

    /// Gives an operation a buffer, and to the reader unless its bytes are at hand; `false`: there is
    /// no memory, or the reader has no room.
    fn start(&mut self, id: u32) -> io::Result<bool> {
        if self.operations[id as usize].buffer.is_none() {
            let Some(buffer) = self.take_buffer()? else { return Ok(false) };
            let operation = &mut self.operations[id as usize];
            operation.buffer = Some(buffer);
            let looks = self.cached_at_once && !R::MAY_END_AT_ONCE;
            if looks && operation.read_at_once() {
                self.counts.at_once.fetch_add(1, Ordering::Relaxed);
                return Ok(true);
            }
        }
        self.pass_on(id)
    }

    fn take_buffer(&mut self) -> io::Result<Option<Buffer>> {
        if let Some(buffer) = self.spare.pop() {
            return Ok(Some(buffer));
        }
        if !self.memory.take(self.capacity as u64, &self.waker) {
            return Ok(None);
        }
        let make = if self.lends { Buffer::in_file } else { Buffer::new };
        make(self.capacity, &self.memory).map(Some)
    }

    /// Where in the file the bytes end that are held for that connection, if there are any.
    pub(crate) fn end_of_rest(&self, key: Key) -> Option<u64> {
        let operation = self.operations.get(self.of(key) as usize)?;
        match operation.state {
            State::Read(filled) => Some(operation.offset + filled as u64),
            _ => None,
        }
    }

    /// The connection does not need the bytes that are held for it.
    pub(crate) fn give_back(&mut self, key: Key) {
        let id = self.of(key);
        if id != NONE && self.is_read(id) {
            self.retire(id);
        }
    }

    fn is_read(&self, id: u32) -> bool {
        matches!(self.operations[id as usize].state, State::Read(_))
    }

    /// Gives an operation to the reader; `false`: it has no room.
    fn pass_on(&mut self, id: u32) -> io::Result<bool> {
        let operation = &mut self.operations[id as usize];
        let (Some(file), Some(buffer)) = (&operation.file, &mut operation.buffer) else {
            return Ok(true);
        };
        let read = Read {
            id,
            file: file.as_raw_fd(),
            offset: operation.offset,
            buffer: buffer.start(),
            len: operation.len,
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
        if let Some(buffer) = operation.buffer.take()
            && !self.lends
            && self.spare.len() < KEPT
            && self.memory.may_keep()
        {
            self.spare.push(buffer);
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
        let sent = match operation.buffer.as_ref().map(|buffer| (buffer, buffer.file())) {
            Some((_, Some(file))) => sendfile::send(transfer, file, from as u64, to - from),
            Some((buffer, None)) => {
                let bytes = &buffer.bytes(filled)[from..to];
                send_vectored(transfer.socket, &[transfer.head, bytes])
            }
            None => unreachable!("what was read has a buffer"),
        };
        let all = transfer.head.len() + (to - from);
        if sent.as_ref().is_ok_and(|count| *count == all) || !self.memory.may_keep() {
            self.retire(id);
        }
        sent.map(Sent::Bytes)
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
                    self.reader.notify()?;
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
            match self.start(id) {
                Ok(true) if self.is_read(id) => self.ready.push(self.operations[id as usize].key),
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
            len: 0,
            wanted: 0,
            buffer: None,
            next: 0,
            state: State::Free,
            asked: None,
            span: None,
        }
    }

    /// Fills the buffer with what the page cache has, if that has all that is wanted; at least the
    /// first byte that the connection wants.
    fn read_at_once(&mut self) -> bool {
        let (Some(file), Some(buffer)) = (&self.file, &mut self.buffer) else { return false };
        let (offset, len) = (self.offset, self.len);
        if !page_cache::has_pages(file.as_fd(), offset, len as u64) {
            return false;
        }
        let count = match page_cache::read(file.as_fd(), buffer.bytes_mut(len), offset) {
            Ok(count) if offset + count as u64 > self.wanted => count,
            // Whoever reads it now finds out why.
            _ => return false,
        };
        self.span = self.asked.map(|begun| Span { begun, ended: Instant::now() });
        self.state = State::Read(count);
        true
    }
}

#[cfg(test)]
mod tests;
