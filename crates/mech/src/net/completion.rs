//! The net contract over completions: io_uring does the transfers.
//!
//! A connection has one receive armed for as long as it lives, a multishot one
//! from the second on. What it receives is copied from the kernel's provided
//! buffer to the connection's own as soon as it is reported, so that no
//! connection can keep the buffers that all share; one that sends faster than
//! its coroutine asks is not received from until that has caught up. A send is
//! one request with `MSG_WAITALL`. Requests are queued and submitted together by
//! the turn's one io_uring_enter(2), which also waits.
//!
//! A multishot request ends when the kernel is out of buffers or of room for
//! completions, and before a stop when it is cancelled, so that what it has taken
//! is known: it is made anew when the coroutine asks for more.
//!
//! What the kernel works on belongs to the request (`net/requests.rs`), not to
//! the connection: one that is closed leaves its requests behind as orphans,
//! cancelled, and each gives up what it holds with its last completion. A file's
//! bytes go by the worker's file backend, with plain system calls, because
//! sendfile(2) has no request and splice(2)'s is always punted to a kernel thread.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use io_uring::cqueue;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, SocketFlags};

use super::NetOptions;
use super::buffer::{Body, Input, Output, Pool};
use super::driver::{Driver, Origin, Slot, resume_owners};
use super::requests::{NONE, RequestId, Requests, Sending, Work};
use crate::buffer_ring::BufferRing;
use crate::fileio::{FileIo, Sent, Transfer};
use crate::key::Key;
use crate::waker::Waker;

/// Requests that one system call submits.
const SUBMISSIONS: u32 = 1024;

/// Bytes of a provided buffer.
const BUFFER_SIZE: usize = 8 * 1024;

/// The driver's side of a slot.
#[derive(Clone, Copy)]
struct State {
    /// The multishot receive or accept.
    receive: RequestId,
    /// It was cancelled, and has not ended yet.
    held: bool,
    /// The send, connect or wait for readiness under way.
    send: RequestId,
    /// Received bytes that no fill has reported yet.
    fresh: u32,
    /// How the stream ended: 0 or −errno, after the bytes.
    end: Option<i32>,
    /// The result of the last such request that nobody has asked for yet.
    sent: Option<i32>,
}

const IDLE: State =
    State { receive: NONE, held: false, send: NONE, fresh: 0, end: None, sent: None };

#[expect(clippy::vec_box, reason = "the kernel points into the boxes")]
pub(crate) struct CompletionDriver {
    requests: Requests,
    /// Dropped by hand, when the kernel is done with them.
    buffers: ManuallyDrop<BufferRing>,
    /// What did not fit into the input buffers of connections whose receive was
    /// cancelled for it, by slot.
    overflow: HashMap<u32, Vec<u8>>,
    /// Kept for reuse.
    spare: Vec<Box<Sending>>,
    states: Vec<State>,
    listeners: Vec<Listening>,
    files: Box<dyn FileIo>,
    /// Whose file has been read.
    read: Vec<Key>,
    waker: Arc<Waker>,
}

/// What is kept of a listener.
struct Listening {
    slot: u32,
    /// Other rings accept from the same socket: one connection per request, after which this ring
    /// waits behind them. A multishot accept would stay first, and be given every connection.
    exclusive: bool,
    /// Connections taken from its backlog and not asked for yet.
    accepted: VecDeque<OwnedFd>,
}

/// The number of the slot's socket.
fn descriptor(slot: &Slot) -> io::Result<RawFd> {
    slot.fd.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(|| Errno::BADF.into())
}

/// Takes a connection from the backlog, without the ring.
fn take_connection(slot: &Slot) -> io::Result<OwnedFd> {
    let fd = slot.fd.as_ref().ok_or(Errno::BADF)?;
    Ok(rustix::net::accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
}

/// Receives what there is, without the ring.
fn receive_now(slot: &Slot, input: &mut Input) -> io::Result<usize> {
    let fd = slot.fd.as_ref().ok_or(Errno::BADF)?;
    let (_, count) = rustix::net::recv(fd, input.spare(), RecvFlags::empty())?;
    input.received(count);
    Ok(count)
}

impl CompletionDriver {
    /// A driver for the calling thread.
    pub(crate) fn new(options: &NetOptions) -> io::Result<CompletionDriver> {
        let (completions, buffers) =
            (options.dispatch.completions, options.dispatch.receive_buffers);
        let (ring, buffers) =
            BufferRing::with_ring(SUBMISSIONS, completions, buffers, BUFFER_SIZE)?;
        let waker = Arc::new(Waker::eventfd()?);
        let files = options.files.open(&options.file_options, &waker)?;
        let mut driver = CompletionDriver {
            requests: Requests::new(ring),
            buffers: ManuallyDrop::new(buffers),
            overflow: HashMap::new(),
            spare: Vec::new(),
            states: Vec::new(),
            listeners: Vec::new(),
            files,
            read: Vec::new(),
            waker,
        };
        driver.watch_waker();
        Ok(driver)
    }

    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    fn watch_waker(&mut self) {
        if let Some(fd) = self.waker.as_eventfd() {
            self.requests.submit(Key::WAKER, fd.as_raw_fd(), Work::Wake);
        }
    }

    /// Ends the slot's multishot request: what it has taken comes before its end.
    fn hold(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        if !std::mem::replace(&mut state.held, true) {
            let receive = state.receive;
            self.requests.cancel(receive);
        }
    }

    /// Starts what is to be the slot's receive (or accept).
    fn arm(&mut self, key: Key, slot: &Slot, work: Work) -> io::Result<()> {
        let fd = descriptor(slot)?;
        self.states[key.slot as usize].receive = self.requests.submit(key, fd, work);
        Ok(())
    }

    fn listening(&mut self, slot: u32) -> Option<&mut Listening> {
        self.listeners.iter_mut().find(|listener| listener.slot == slot)
    }

    fn arm_accept(&mut self, key: Key, slot: &Slot) -> io::Result<()> {
        let exclusive = self.listening(key.slot).is_some_and(|listener| listener.exclusive);
        self.arm(key, slot, if exclusive { Work::AcceptOnce } else { Work::Accept })
    }

    /// Nearly always there is none, and nothing to hash.
    fn take_overflow(&mut self, slot: u32) -> Option<Vec<u8>> {
        if self.overflow.is_empty() { None } else { self.overflow.remove(&slot) }
    }

    /// Moves what did not fit before into `input`.
    fn catch_up(&mut self, slot: u32, input: &mut Input) {
        if let Some(mut waiting) = self.take_overflow(slot) {
            let moved = input.append(&waiting);
            self.states[slot as usize].fresh += moved as u32;
            waiting.drain(..moved);
            if !waiting.is_empty() {
                self.overflow.insert(slot, waiting);
            }
        }
    }

    /// Hands `output` to the kernel in one request.
    fn submit_send(&mut self, key: Key, slot: &Slot, output: &mut Output) -> io::Result<()> {
        let fd = descriptor(slot)?;
        let mut sending = self.spare.pop().unwrap_or_else(Sending::new);
        std::mem::swap(&mut sending.output, output);
        self.states[key.slot as usize].send = self.requests.submit(key, fd, Work::Send(sending));
        Ok(())
    }

    /// Sends the head and as much of the file as the socket takes, and waits for
    /// writability with a request of its own when it takes nothing.
    fn send_file(&mut self, key: Key, slot: &Slot, output: &mut Output) -> Poll<io::Result<u64>> {
        let Body::File { file, offset, .. } = &output.body else {
            return Poll::Ready(Err(Errno::INVAL.into()));
        };
        let Some(fd) = &slot.fd else { return Poll::Ready(Err(Errno::BADF.into())) };
        let transfer = Transfer {
            key,
            socket: fd.as_fd(),
            head: output.head_left(),
            file,
            offset: offset + output.body_sent,
            len: output.body_left(),
        };
        match self.files.send(transfer) {
            Ok(Sent::Later) => Poll::Pending,
            Ok(Sent::Bytes(count)) => {
                output.sent(count as u64);
                Poll::Ready(Ok(count as u64))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let writable = self.requests.submit(key, fd.as_raw_fd(), Work::Writable);
                self.states[key.slot as usize].send = writable;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Takes in one completion, and names the slot whose coroutine should ask again.
    fn complete(
        &mut self,
        slots: &mut [Slot],
        pool: &mut Pool,
        id: RequestId,
        completion: &cqueue::Entry,
    ) -> io::Result<Option<u32>> {
        let (result, flags) = (completion.result(), completion.flags());
        let last = !cqueue::more(flags);
        let (key, work) = self.requests.get(id);
        let alive = slots
            .get(key.slot as usize)
            .is_some_and(|slot| slot.generation == key.generation && slot.fd.is_some());
        let state = self.states.get(key.slot as usize).copied().unwrap_or(IDLE);
        let ours = alive && (state.receive == id || state.send == id);
        match work {
            Work::ReceiveOnce | Work::Receive => {
                let slot = if ours { slots.get_mut(key.slot as usize) } else { None };
                self.receive_completed(key.slot, slot, pool, completion);
            }
            Work::Accept | Work::AcceptOnce => self.accept_completed(key.slot, ours, result),
            Work::Wake => self.waker.drain()?,
            _ => {}
        }
        if last {
            let work = self.requests.retire(id);
            if matches!(work, Work::Wake) {
                self.watch_waker();
            }
            if ours {
                self.request_ended(key.slot, id, work, result, &mut slots[key.slot as usize]);
            }
        }
        Ok(ours.then_some(key.slot))
    }

    /// Takes in what a connection has received: `slot` is `None` if it is gone.
    fn receive_completed(
        &mut self,
        index: u32,
        slot: Option<&mut Slot>,
        pool: &mut Pool,
        completion: &cqueue::Entry,
    ) {
        let (result, id) = (completion.result(), cqueue::buffer_select(completion.flags()));
        if let Some(slot) = slot {
            if let (Some(id), Ok(count)) = (id, usize::try_from(result)) {
                self.keep(index, slot, pool, id, count);
            }
            // Out of buffers and cancelled are no end of the stream: the receive is
            // armed again when the coroutine asks.
            if result <= 0 && ![-libc::ENOBUFS, -libc::ECANCELED].contains(&result) {
                self.states[index as usize].end = Some(result);
            }
        }
        if let Some(id) = id {
            self.buffers.give_back(id);
        }
    }

    /// Copies the first `count` bytes of buffer `id` to the connection.
    fn keep(&mut self, index: u32, slot: &mut Slot, pool: &mut Pool, id: u16, count: usize) {
        let bytes = self.buffers.bytes(id, count);
        let state = &mut self.states[index as usize];
        let mut kept = 0;
        if !self.overflow.contains_key(&index) {
            kept = slot.input.get_or_insert_with(|| pool.take_input()).append(bytes);
            state.fresh += kept as u32;
        }
        if kept < count {
            self.overflow.entry(index).or_default().extend_from_slice(&bytes[kept..]);
            self.hold(index);
        }
    }

    fn accept_completed(&mut self, slot: u32, ours: bool, result: i32) {
        if result >= 0 {
            // SAFETY: a descriptor that the kernel has just made for this
            // completion, and that nobody else knows of.
            let socket = unsafe { OwnedFd::from_raw_fd(result) };
            if let Some(listener) = self.listening(slot)
                && ours
            {
                listener.accepted.push_back(socket);
            }
        } else if ours && result != -libc::ECANCELED {
            self.states[slot as usize].end = Some(result);
        }
    }

    /// The last completion of a live connection's request.
    fn request_ended(
        &mut self,
        index: u32,
        id: RequestId,
        work: Work,
        result: i32,
        slot: &mut Slot,
    ) {
        let state = &mut self.states[index as usize];
        if state.receive == id {
            (state.receive, state.held) = (NONE, false);
            return;
        }
        state.send = NONE;
        match work {
            Work::Send(mut sending) => {
                state.sent = Some(result);
                sending.output.sent(u64::try_from(result).unwrap_or(0));
                if let Some(place) = &mut slot.output {
                    // What was written meanwhile comes after what is left.
                    if !sending.output.is_empty() {
                        sending.output.head.extend_from_slice(&place.head);
                    }
                    if !sending.output.is_empty() || place.is_empty() {
                        std::mem::swap(&mut **place, &mut sending.output);
                    }
                }
                sending.output.reset();
                self.spare.push(sending);
            }
            Work::Connect(_) | Work::Readable => state.sent = Some(result),
            _ => {}
        }
    }
}

impl Drop for CompletionDriver {
    fn drop(&mut self) {
        if self.requests.end_all() {
            // SAFETY: no request is left that could use a buffer, and nobody
            // else uses this value after its drop.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}

impl Driver for CompletionDriver {
    fn open(&mut self, key: Key, slot: &mut Slot, origin: Origin) -> io::Result<()> {
        let index = key.slot as usize;
        if self.states.len() <= index {
            self.states.resize(index + 1, IDLE);
        }
        self.states[index] = IDLE;
        match origin {
            // A connection for one request then ends with nothing to cancel.
            Origin::Accepted | Origin::AcceptedWithData => self.arm(key, slot, Work::ReceiveOnce),
            Origin::Connecting | Origin::Foreign => Ok(()),
            Origin::Listening | Origin::ListeningExclusive => {
                let exclusive = origin == Origin::ListeningExclusive;
                let accepted = VecDeque::new();
                self.listeners.push(Listening { slot: key.slot, exclusive, accepted });
                self.arm_accept(key, slot)
            }
        }
    }

    /// The requests' cancellations are queued before the close: by the time the
    /// kernel comes to it, nothing holds the socket any more, and the number is
    /// not reused while an entry that names it waits in the queue.
    fn close(&mut self, key: Key, slot: &mut Slot) {
        self.files.forget(key);
        let Some(fd) = slot.fd.take() else { return };
        let state = std::mem::replace(&mut self.states[key.slot as usize], IDLE);
        self.requests.cancel(state.receive);
        self.requests.cancel(state.send);
        self.take_overflow(key.slot);
        self.listeners.retain(|listener| listener.slot != key.slot);
        self.requests.close(fd);
    }

    fn poll_accept(&mut self, key: Key, slot: &mut Slot, last: bool) -> Poll<io::Result<OwnedFd>> {
        let listener = self.listening(key.slot);
        if let Some(socket) = listener.and_then(|listener| listener.accepted.pop_front()) {
            return Poll::Ready(Ok(socket));
        }
        let state = &mut self.states[key.slot as usize];
        if let Some(end) = state.end.take() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(-end)));
        }
        match (state.receive == NONE, last) {
            (false, true) => self.hold(key.slot),
            (false, false) => {}
            (true, false) => self.arm_accept(key, slot)?,
            (true, true) => return Poll::Ready(take_connection(slot)),
        }
        Poll::Pending
    }

    /// An accept that has failed is over: nothing is armed until the next is asked for.
    fn rest(&mut self, _key: Key, _slot: &mut Slot) {}

    fn poll_connect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        address: &SocketAddrAny,
    ) -> Poll<io::Result<()>> {
        let state = &mut self.states[key.slot as usize];
        match state.sent.take() {
            Some(0) => return Poll::Ready(Ok(())),
            Some(error) => return Poll::Ready(Err(io::Error::from_raw_os_error(-error))),
            None if state.send != NONE => return Poll::Pending,
            None => {}
        }
        let work = Work::Connect(Box::new(address.clone()));
        self.states[key.slot as usize].send = self.requests.submit(key, descriptor(slot)?, work);
        Poll::Pending
    }

    /// A poll that is asked for looks first, so nothing is missed in between.
    fn poll_readable(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<()>> {
        let state = &mut self.states[key.slot as usize];
        if let Some(result) = state.sent.take() {
            return Poll::Ready(match result {
                0.. => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            });
        }
        if state.send == NONE {
            self.states[key.slot as usize].send =
                self.requests.submit(key, descriptor(slot)?, Work::Readable);
        }
        Poll::Pending
    }

    fn poll_fill(
        &mut self,
        key: Key,
        slot: &mut Slot,
        input: &mut Input,
        last: bool,
    ) -> Poll<io::Result<usize>> {
        self.catch_up(key.slot, input);
        let fresh = std::mem::take(&mut self.states[key.slot as usize].fresh);
        if fresh > 0 {
            return Poll::Ready(Ok(fresh as usize));
        }
        if input.spare().is_empty() {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        let state = &self.states[key.slot as usize];
        match state.end {
            Some(0) => return Poll::Ready(Ok(0)),
            Some(error) => return Poll::Ready(Err(io::Error::from_raw_os_error(-error))),
            None => {}
        }
        match (state.receive == NONE, last) {
            (false, true) => self.hold(key.slot),
            (false, false) => {}
            (true, false) => self.arm(key, slot, Work::Receive)?,
            (true, true) => return Poll::Ready(receive_now(slot, input)),
        }
        Poll::Pending
    }

    fn poll_flush(
        &mut self,
        key: Key,
        slot: &mut Slot,
        output: &mut Output,
    ) -> Poll<io::Result<u64>> {
        let state = &mut self.states[key.slot as usize];
        if let Some(sent) = state.sent.take() {
            return Poll::Ready(match sent {
                0.. => Ok(sent as u64),
                error => Err(io::Error::from_raw_os_error(-error)),
            });
        }
        if state.send != NONE {
            return Poll::Pending;
        }
        if output.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if let Body::File { .. } = output.body {
            return self.send_file(key, slot, output);
        }
        self.submit_send(key, slot, output)?;
        Poll::Pending
    }

    fn turn(
        &mut self,
        slots: &mut [Slot],
        pool: &mut Pool,
        timeout: Option<Duration>,
        resume: &mut Vec<u32>,
    ) -> io::Result<()> {
        self.requests.wait(timeout)?;
        while let Some((id, completion)) = self.requests.completion() {
            if let Some(slot) = self.complete(slots, pool, id, &completion)? {
                resume.push(slot);
            }
        }
        self.files.reap(&mut self.read)?;
        resume_owners(slots, &mut self.read, resume);
        Ok(())
    }
}
