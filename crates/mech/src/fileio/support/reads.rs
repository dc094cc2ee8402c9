//! The part of [`FileIo`] that all backends share which read on other threads or in the kernel: one
//! operation per connection, with a buffer that a reader fills and the socket empties.
//!
//! A connection has at most one read under way. So a reader that takes reads in turn is fair to all
//! connections, and a slow client occupies one buffer. While memory is short (`memory.rs`), a slow client
//! occupies none: its buffer is freed, and the bytes that it did not take are read again.
//!
//! With [`FileIoOptions::cached_at_once`], the worker reads bytes that are in the page cache itself, so that
//! they do not wait behind reads of a disk. io_uring does this without the worker's help.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::fileio::support::advise::will_need;
use crate::fileio::support::buffer::Buffer;
use crate::fileio::support::memory::ReadMemory;
use crate::fileio::support::page_cache;
use crate::fileio::support::times::{ReadTimes, Span};
use crate::fileio::{
    Backend, FileIo, FileIoCounts, FileIoOptions, Sent, Transfer, sendfile, truncated,
};
use crate::files::served::ServedFile;
use crate::key::Key;
use drover_sys::reserve::make_room;
use drover_sys::socket::send_vectored;
use drover_sys::waker::Waker;

/// A way to read files on other threads or in the kernel. Each worker has a reader of its own.
pub(crate) trait Reader {
    /// Offsets and lengths of reads must be multiples of this number of bytes.
    const ALIGNMENT: u64 = 1;
    /// Whether a read of bytes in the page cache ends within the next [`Reader::finished`], if
    /// [`FileIoOptions::cached_at_once`]. If so, [`Reads`] calls [`Reader::finished`] after each
    /// [`Reader::begin`]; this call also submits the queued reads.
    const MAY_END_AT_ONCE: bool = false;

    /// Begins a read.
    ///
    /// # Errors
    /// `WouldBlock`: the reader has as many reads under way as it can. Otherwise the error of this read.
    /// After an error the read has not begun.
    ///
    /// # Safety
    /// Until [`Reader::finished`] has named the read, the descriptor stays open and nothing else uses
    /// the buffer.
    unsafe fn begin(&mut self, read: Read) -> io::Result<()>;

    /// Appends the reads that have ended since the last call to `ended`.
    ///
    /// # Errors
    /// An error of the reader itself. Even then, the reads that were appended have ended.
    fn finished(&mut self, ended: &mut Vec<Ended>) -> io::Result<()>;

    /// Ends the worker's wait, so that the worker calls [`FileIo::reap`]. Called only with
    /// [`Reader::MAY_END_AT_ONCE`].
    ///
    /// # Errors
    /// The error of write(2) to the eventfd.
    fn notify(&self) -> io::Result<()> {
        Ok(())
    }

    /// Blocks until a read has ended. Called only when a worker ends.
    ///
    /// # Errors
    /// As [`Reader::finished`].
    fn wait(&mut self) -> io::Result<()>;
}

/// A read: from which file, and into which memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// The number of the read. [`Ended::id`] repeats it.
    pub(crate) id: u32,
    pub(crate) file: RawFd,
    pub(crate) offset: u64,
    pub(crate) buffer: *mut u8,
    pub(crate) len: usize,
    /// Whether [`Ended::span`] is wanted.
    pub(crate) timed: bool,
    /// How many bytes behind this read to announce to the kernel ([`FileIoOptions::advise_next`]); 0: none.
    pub(crate) next: usize,
}

impl Read {
    /// Announces the bytes behind this read, if [`Read::next`] is not 0. Must be called before the read's
    /// end is reported, because the descriptor may be closed afterwards.
    pub(crate) fn advise_next(&self, counts: &FileIoCounts) {
        if self.next > 0 {
            // SAFETY: the descriptor is open until the read's end is reported (`Reader::begin`).
            let file = unsafe { BorrowedFd::borrow_raw(self.file) };
            will_need(file, self.offset + self.len as u64, self.next as u64, counts);
        }
    }
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The number of the read ([`Read::id`]).
    pub(crate) id: u32,
    /// How many bytes were read; 0 at the end of the file.
    pub(crate) result: io::Result<usize>,
    /// When the read began and ended. `None` if the reader does not know: then from [`Reader::begin`]
    /// until the worker saw the end.
    pub(crate) span: Option<Span>,
}

/// How many buffers a worker keeps for its next reads.
const KEPT: usize = 32;

/// The value of [`Reads::of_slot`] for a connection without an operation.
const NONE: u32 = u32::MAX;

/// All reads of one worker. Implements [`FileIo`] by a [`Reader`].
pub(crate) struct Reads<R: Reader> {
    reader: R,
    /// The backend that reads so.
    backend: &'static Backend,
    /// [`FileIoOptions::timed`].
    timed: bool,
    /// [`FileIoOptions::cached_at_once`]. The worker reads such bytes itself, or, with
    /// [`Reader::MAY_END_AT_ONCE`], the reader does.
    cached_at_once: bool,
    /// [`FileIoOptions::advise_next`].
    advises: bool,
    /// Whether buffers are memory files, which sendfile(2) sends without a copy.
    lends: bool,
    counts: Arc<FileIoCounts>,
    /// How long reads took, by slot of the connection; empty unless `timed`.
    times: Vec<ReadTimes>,
    /// The bytes of one read.
    size: usize,
    memory: Arc<ReadMemory>,
    /// Ends the worker's wait when another worker gives back memory.
    waker: Arc<Waker>,
    /// Buffers for the next reads, of `capacity` bytes each.
    spare: Vec<Buffer>,
    /// The bytes of a buffer: `size`, rounded up to whole pages.
    capacity: usize,
    /// All operations. An operation's number, also [`Read::id`], is its index.
    operations: Vec<Operation>,
    /// The numbers of the operations in [`State::Free`].
    free: Vec<u32>,
    /// The operation of each slot, or [`NONE`].
    of_slot: Vec<u32>,
    /// The operations in [`State::Waiting`], in order. Only the first of them may have a buffer.
    waiting: VecDeque<u32>,
    /// How many operations the reader has.
    under_way: usize,
    /// Empty between calls; kept for its memory.
    ended: Vec<Ended>,
    /// The connections whose reads have ended since the last [`FileIo::reap`].
    ready: Vec<Key>,
}

/// The read for one connection, and what is left of its bytes.
struct Operation {
    /// The connection. [`Key::WAKER`]: the connection is closed, and the read is still under way.
    key: Key,
    /// The file. Kept open for the reader until the read has ended.
    file: Option<Rc<ServedFile>>,
    /// The offset in the file of the buffer's first byte, and how many bytes to read.
    offset: u64,
    len: usize,
    /// The offset in the file of the first byte that the connection wants. [`Reader::ALIGNMENT`] may make
    /// it larger than `offset`.
    wanted: u64,
    buffer: Option<Buffer>,
    /// See [`Read::next`].
    next: usize,
    state: State,
    /// When the connection asked for the bytes, and when the read began and ended. `None` if reads are
    /// not timed, and once `times` has the durations.
    asked: Option<Instant>,
    span: Option<Span>,
}

enum State {
    /// The operation belongs to no connection.
    Free,
    /// The operation waits for memory, or for the reader to have room.
    Waiting,
    /// The reader has the operation.
    Reading,
    /// The read has ended, and the buffer contains this many bytes.
    Read(usize),
    /// The read has failed. The next [`FileIo::send`] reports the error.
    Failed(io::Error),
}

impl<R: Reader> Reads<R> {
    pub(crate) fn new(
        reader: R,
        options: &FileIoOptions,
        backend: &'static Backend,
        waker: &Arc<Waker>,
    ) -> Reads<R> {
        let memory = Arc::clone(&options.read_memory);
        let most = usize::try_from(memory.most_of_one()).unwrap_or(usize::MAX);
        let size = options.read_ahead.clamp(1, most).next_multiple_of(R::ALIGNMENT as usize);
        let capacity = size.next_multiple_of(crate::files::bytes::page_size() as usize);
        Reads {
            reader,
            backend,
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

    /// Changes the buffers to memory files, whose pages sendfile(2) sends without a copy.
    pub(crate) fn lending(mut self) -> Reads<R> {
        self.lends = true;
        self
    }

    /// Whether bytes are being read for this connection, or were read and not sent yet.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.of(key) != NONE
    }

    /// The reader.
    #[cfg(test)]
    pub(crate) fn reader(&self) -> &R {
        &self.reader
    }

    /// The operation of a connection, or [`NONE`].
    fn of(&self, key: Key) -> u32 {
        self.of_slot.get(key.slot as usize).copied().unwrap_or(NONE)
    }

    /// Makes an operation for the connection of `transfer`, and starts it or lets it wait.
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

    /// Starts an operation: takes a buffer, then reads bytes that are in the page cache, or else passes the
    /// operation to the reader. Returns `false` if there is no memory or the reader has no room.
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

    /// Takes a spare buffer or makes one. `None`: there is no memory.
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

    /// The offset in the file of the end of the bytes that were read for that connection; `None`: no bytes
    /// were read, or all have been sent.
    pub(crate) fn end_of_rest(&self, key: Key) -> Option<u64> {
        let operation = self.operations.get(self.of(key) as usize)?;
        match operation.state {
            State::Read(filled) => Some(operation.offset + filled as u64),
            _ => None,
        }
    }

    /// Frees the buffer of a connection whose read has ended. The connection gets its bytes otherwise.
    pub(crate) fn give_back(&mut self, key: Key) {
        let id = self.of(key);
        if id != NONE && self.is_read(id) {
            self.retire(id);
        }
    }

    fn is_read(&self, id: u32) -> bool {
        matches!(self.operations[id as usize].state, State::Read(_))
    }

    /// Passes an operation to the reader. Returns `false` if the reader has no room.
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
        // SAFETY: the operation keeps the file open, and its buffer is unused while its state is `Reading`.
        // The state changes only after `Reader::finished` has named the read; `drop` waits for that.
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

    /// Collects the reads that have ended: sets the states of their operations, and appends their
    /// connections to `ready`.
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
                // EAGAIN of the file: the caller would wait until the socket is writable.
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

    /// Adds the durations of a read that has ended to `times`, once, when the connection's coroutine
    /// continues.
    fn account_if_ended(&mut self, id: u32) {
        let operation = &mut self.operations[id as usize];
        if matches!(operation.state, State::Waiting | State::Reading) {
            return;
        }
        if let (Some(asked), Some(span)) = (operation.asked.take(), operation.span.take()) {
            let slot = operation.key.slot as usize;
            if self.times.len() <= slot {
                self.times.resize(slot + 1, ReadTimes::default());
            }
            self.times[slot].add(self.backend.name, asked, span);
        }
    }

    /// Frees an operation that the reader does not have, and frees its buffer or keeps it for another read.
    fn retire(&mut self, id: u32) {
        let operation = &mut self.operations[id as usize];
        if let Some(current) = self.of_slot.get_mut(operation.key.slot as usize)
            && *current == id
        {
            *current = NONE;
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

    /// Which bytes of the `filled` ones in the buffer of operation `id` the transfer is about.
    fn wanted_of(
        &mut self,
        id: u32,
        filled: usize,
        transfer: &Transfer<'_>,
    ) -> io::Result<(usize, usize)> {
        let from = (transfer.offset - self.operations[id as usize].offset) as usize;
        let to = filled.min(from.saturating_add(usize::try_from(transfer.len).unwrap_or(filled)));
        if from >= to {
            self.retire(id);
            return Err(truncated());
        }
        Ok((from, to))
    }

    /// Copies bytes from the buffer of operation `id`, which contains `filled` bytes. Frees the operation when all its bytes are
    /// copied, or when memory is short.
    fn copy_read(
        &mut self,
        id: u32,
        filled: usize,
        transfer: &Transfer<'_>,
        into: &mut Vec<u8>,
    ) -> io::Result<Sent> {
        let (from, to) = self.wanted_of(id, filled, transfer)?;
        let count = (to - from).min(usize::try_from(transfer.at_once).unwrap_or(usize::MAX));
        let buffer = self.operations[id as usize].buffer.as_ref();
        let bytes = buffer.map_or(&[][..], |buffer| &buffer.bytes(filled)[from..from + count]);
        make_room(into, bytes.len())?;
        into.extend_from_slice(bytes);
        if from + count == to || !self.memory.may_keep() {
            self.retire(id);
        }
        Ok(Sent::Bytes(count))
    }

    /// The operation of the transfer's connection, and how many bytes its buffer contains. It is begun if there is none. `None`: it is
    /// under way.
    fn read_of(&mut self, transfer: &Transfer<'_>) -> io::Result<Option<(u32, usize)>> {
        let mut id = self.of(transfer.key);
        if id == NONE {
            self.begin(transfer)?;
            id = self.of(transfer.key);
            if R::MAY_END_AT_ONCE {
                self.end_at_once(id)?;
            }
        }
        if self.timed {
            self.account_if_ended(id);
        }
        match &mut self.operations[id as usize].state {
            State::Waiting | State::Reading => Ok(None),
            State::Read(filled) => Ok(Some((id, *filled))),
            State::Failed(error) => {
                let error = mem::replace(error, io::ErrorKind::Other.into());
                self.retire(id);
                Err(error)
            }
            State::Free => unreachable!("a slot's operation is in use"),
        }
    }

    /// Collects what the reader has done already, perhaps operation `id`, which was just begun.
    fn end_at_once(&mut self, id: u32) -> io::Result<()> {
        self.take_ended()?;
        let operation = &self.operations[id as usize];
        if matches!(operation.state, State::Read(_)) && self.cached_at_once {
            self.counts.at_once.fetch_add(1, Ordering::Relaxed);
        }
        let key = operation.key;
        // `take_ended` may have collected reads of other connections. The kernel does not signal
        // these reads again, so the notifier must end the worker's wait for them.
        self.ready.retain(|&ready| ready != key);
        if !self.ready.is_empty() {
            self.reader.notify()?;
        }
        Ok(())
    }

    /// Sends bytes from the buffer of operation `id`, which contains `filled` bytes. Frees the operation when
    /// all its bytes are sent, or when memory is short.
    fn send_read(&mut self, id: u32, filled: usize, transfer: &Transfer<'_>) -> io::Result<Sent> {
        let (from, to) = self.wanted_of(id, filled, transfer)?;
        let operation = &self.operations[id as usize];
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
    fn sender(&self) -> &'static Backend {
        self.backend
    }

    fn send(&mut self, transfer: Transfer<'_>) -> io::Result<Sent> {
        match self.read_of(&transfer)? {
            None => Ok(Sent::Later),
            Some((id, filled)) => self.send_read(id, filled, &transfer),
        }
    }

    fn read(&mut self, transfer: Transfer<'_>, into: &mut Vec<u8>) -> io::Result<Sent> {
        match self.read_of(&transfer)? {
            None => Ok(Sent::Later),
            Some((id, filled)) => self.copy_read(id, filled, &transfer, into),
        }
    }

    fn reader(&self) -> &'static Backend {
        self.backend
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

    fn take_times(&mut self, key: Key) -> ReadTimes {
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
                // Reads may still be under way, and nothing will report their end. Their buffers are
                // leaked, because freed memory must not be read into.
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

    /// Reads the operation's bytes if all their pages are in the page cache. Returns `false` if nothing was
    /// read, or no byte that the connection wants.
    fn read_at_once(&mut self) -> bool {
        let (Some(file), Some(buffer)) = (&self.file, &mut self.buffer) else { return false };
        let (offset, len) = (self.offset, self.len);
        if !page_cache::has_pages(file.as_fd(), offset, len as u64) {
            return false;
        }
        let count = match page_cache::read(file.as_fd(), buffer.bytes_mut(len), offset) {
            Ok(count) if offset + count as u64 > self.wanted => count,
            // The reader then finds the cause: an error, or the end of the file.
            _ => return false,
        };
        self.span = self.asked.map(|begun| Span { begun, ended: Instant::now() });
        self.state = State::Read(count);
        true
    }
}

#[cfg(test)]
mod tests;
