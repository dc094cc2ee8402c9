//! The net contract over completions: io_uring does the transfers.
//!
//! A connection has one multishot receive armed for as long as it lives. What it
//! receives is copied from the kernel's provided buffer to the connection's own
//! as soon as it is reported, so that no connection can keep the buffers that
//! all share; one that sends faster than its coroutine asks is not received from
//! until that has caught up. A send is one request with `MSG_WAITALL`. Requests are queued and submitted together
//! by the turn's one io_uring_enter(2), which also waits.
//!
//! What the kernel works on belongs to the request, not to the connection: a
//! connection that is closed leaves its requests behind as orphans, cancelled,
//! and each gives up what it holds with its last completion. A file's bytes go
//! by the worker's file backend, with plain system calls, because sendfile(2)
//! has no request and splice(2)'s is always punted to a kernel thread.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use io_uring::{cqueue, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use super::buffer::{Body, Input, Output, Pool};
use super::driver::{Driver, Origin, Slot, resume_owners};
use crate::buffer_ring::{BufferRing, GROUP};
use crate::fileio::{self, Backend, FileIo, Sent, Transfer};
use crate::key::Key;
use crate::ring::Ring;
use crate::waker::Waker;

/// Index of a request; it travels as `user_data`.
type RequestId = u32;

/// No request.
const NONE: RequestId = RequestId::MAX;

/// The `user_data` of requests that nobody waits for: cancellations and closes.
const NOBODY: u64 = u64::MAX;

/// Requests queued per turn before one has to be submitted early, and room for
/// their completions; more are kept by the kernel.
const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 16_384;

/// Provided buffers: what can have arrived and not been asked for, in one turn.
const BUFFERS: u16 = 1024;
const BUFFER_SIZE: usize = 8 * 1024;

/// How much of a body one send takes: a whole large one would leave a slow
/// peer without progress to show before its deadline.
const SEND_MOST: usize = 128 * 1024;

/// A request that the kernel has, with all that it works on.
struct Request {
    /// Whose it is; an owner that is gone has another generation.
    key: Key,
    work: Work,
}

enum Work {
    Free,
    Receive,
    Accept,
    Writable,
    Readable,
    Wake,
    /// Held for the kernel, which reads the address.
    Connect {
        _address: Box<SocketAddrAny>,
    },
    /// Boxed because few connections are sending at a time, and because the
    /// kernel reads the header and the parts where they are.
    Send(Box<Sending>),
}

/// An output that the kernel is sending, with room for a sendmsg(2) header.
struct Sending {
    output: Output,
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

/// The driver's side of a slot.
#[derive(Clone, Copy)]
struct State {
    /// The multishot receive or accept.
    receive: RequestId,
    /// The send, connect or wait for readiness under way.
    send: RequestId,
    /// Received bytes that no fill has reported yet.
    fresh: u32,
    /// How the stream ended: 0 or −errno, after the bytes.
    end: Option<i32>,
    /// The result of the last such request that nobody has asked for yet.
    sent: Option<i32>,
}

const IDLE: State = State { receive: NONE, send: NONE, fresh: 0, end: None, sent: None };

#[expect(clippy::vec_box, reason = "the kernel points into the boxes")]
pub(crate) struct CompletionDriver {
    ring: Ring,
    /// Dropped by hand, when the kernel is done with them.
    buffers: ManuallyDrop<BufferRing>,
    /// What did not fit into the input buffers of connections whose receive was
    /// cancelled for it, by slot.
    overflow: HashMap<u32, Vec<u8>>,
    requests: Vec<Request>,
    free: Vec<RequestId>,
    /// Kept for reuse.
    spare: Vec<Box<Sending>>,
    states: Vec<State>,
    /// Connections taken from a listener's backlog and not asked for yet.
    accepted: Vec<(u32, VecDeque<OwnedFd>)>,
    files: Box<dyn FileIo>,
    /// Whose file has been read.
    read: Vec<Key>,
    waker: Arc<Waker>,
}

impl Sending {
    fn new() -> Box<Sending> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a msghdr of zeroes is one without address, parts and control data.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Box::new(Sending { output: Output::default(), header, parts: [nothing; 2] })
    }

    /// The request that sends what is left of the output. It points into this
    /// box, and into heap memory that the output owns or shares.
    fn entry(&mut self, fd: types::Fd) -> squeue::Entry {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let head = self.output.head_left();
        let Body::Shared(body) = &self.output.body else {
            let send = opcode::Send::new(fd, head.as_ptr(), head.len() as u32);
            return send.flags(flags).build();
        };
        let body = &body[self.output.body_sent as usize..];
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        self.parts = [part(head), part(&body[..body.len().min(SEND_MOST)])];
        self.header.msg_iov = self.parts.as_mut_ptr();
        self.header.msg_iovlen = self.parts.len();
        opcode::SendMsg::new(fd, &raw const self.header).flags(flags as u32).build()
    }
}

/// The number of the slot's socket.
fn descriptor(slot: &Slot) -> io::Result<i32> {
    slot.fd.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(|| Errno::BADF.into())
}

impl CompletionDriver {
    /// A driver for the calling thread.
    pub(crate) fn new(files: &Backend, options: &fileio::Options) -> io::Result<CompletionDriver> {
        let ring = Ring::open(SUBMISSIONS, COMPLETIONS)?;
        let buffers = BufferRing::register(&ring, BUFFERS, BUFFER_SIZE)?;
        let waker = Arc::new(Waker::eventfd()?);
        let files = files.open(options, &waker)?;
        let mut driver = CompletionDriver {
            ring,
            buffers: ManuallyDrop::new(buffers),
            overflow: HashMap::new(),
            requests: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            states: Vec::new(),
            accepted: Vec::new(),
            files,
            read: Vec::new(),
            waker,
        };
        driver.watch_waker()?;
        Ok(driver)
    }

    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    fn watch_waker(&mut self) -> io::Result<()> {
        let waker = Arc::clone(&self.waker);
        let Some(fd) = waker.as_eventfd() else { return Ok(()) };
        let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true);
        self.submit(Key::WAKER, Work::Wake, poll.build()).map(drop)
    }

    /// Queues a request; what it points to is in `work`, or is nothing.
    fn submit(&mut self, key: Key, work: Work, entry: squeue::Entry) -> io::Result<RequestId> {
        let id = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request { key, work: Work::Free });
            (self.requests.len() - 1) as RequestId
        });
        self.requests[id as usize] = Request { key, work };
        // SAFETY: everything that entries made in this file point to is on the
        // heap behind `work`, which stays in `requests` until the last completion.
        match unsafe { self.ring.push(&entry.user_data(u64::from(id))) } {
            Ok(()) => Ok(id),
            Err(error) => {
                self.retire(id);
                Err(error)
            }
        }
    }

    /// Takes a finished request's work out.
    fn retire(&mut self, id: RequestId) -> Work {
        self.free.push(id);
        std::mem::replace(&mut self.requests[id as usize].work, Work::Free)
    }

    fn cancel(&mut self, id: RequestId) {
        if id != NONE {
            let cancel = opcode::AsyncCancel::new(u64::from(id)).build().user_data(NOBODY);
            // SAFETY: a cancellation points to no memory. If it cannot be queued,
            // the request ends with its connection or with the ring.
            let _ = unsafe { self.ring.push(&cancel) };
        }
    }

    fn arm_receive(&mut self, key: Key, slot: &Slot) -> io::Result<()> {
        let fd = types::Fd(descriptor(slot)?);
        let receive = opcode::RecvMulti::new(fd, GROUP).build();
        self.states[key.slot as usize].receive = self.submit(key, Work::Receive, receive)?;
        Ok(())
    }

    fn arm_accept(&mut self, key: Key, slot: &Slot) -> io::Result<()> {
        let fd = types::Fd(descriptor(slot)?);
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let accept = opcode::AcceptMulti::new(fd).flags(flags).build();
        self.states[key.slot as usize].receive = self.submit(key, Work::Accept, accept)?;
        Ok(())
    }

    /// Moves what did not fit before into `input`.
    fn catch_up(&mut self, slot: u32, input: &mut Input) {
        if let Some(mut waiting) = self.overflow.remove(&slot) {
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
        let fd = types::Fd(descriptor(slot)?);
        let mut sending = self.spare.pop().unwrap_or_else(Sending::new);
        std::mem::swap(&mut sending.output, output);
        let entry = sending.entry(fd);
        let send = self.submit(key, Work::Send(sending), entry)?;
        self.states[key.slot as usize].send = send;
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
                let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLOUT as u32);
                let writable = self.submit(key, Work::Writable, poll.build())?;
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
        completion: &cqueue::Entry,
    ) -> io::Result<Option<u32>> {
        let (result, flags) = (completion.result(), completion.flags());
        if completion.user_data() == NOBODY {
            return Ok(None);
        }
        let id = completion.user_data() as RequestId;
        let last = !cqueue::more(flags);
        let key = self.requests[id as usize].key;
        let alive = slots
            .get(key.slot as usize)
            .is_some_and(|slot| slot.generation == key.generation && slot.fd.is_some());
        let state = self.states.get(key.slot as usize).copied().unwrap_or(IDLE);
        let ours = alive && (state.receive == id || state.send == id);
        match &self.requests[id as usize].work {
            Work::Receive => {
                let slot = if ours { slots.get_mut(key.slot as usize) } else { None };
                self.receive_completed(key.slot, slot, pool, completion);
            }
            Work::Accept => self.accept_completed(key.slot, ours, result),
            Work::Wake => self.waker.drain()?,
            _ => {}
        }
        if last {
            let work = self.retire(id);
            if matches!(work, Work::Wake) {
                self.watch_waker()?;
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
            // Out of buffers, or cancelled to hold back a sender, is no end: the
            // receive is armed again when the coroutine asks.
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
            let waiting = self.overflow.entry(index).or_default();
            let first = waiting.is_empty();
            waiting.extend_from_slice(&bytes[kept..]);
            if first {
                let receive = state.receive;
                self.cancel(receive);
            }
        }
    }

    fn accept_completed(&mut self, slot: u32, ours: bool, result: i32) {
        if result >= 0 {
            // SAFETY: a descriptor that the kernel has just made for this
            // completion, and that nobody else knows of.
            let socket = unsafe { OwnedFd::from_raw_fd(result) };
            if let Some((_, queue)) = self.accepted.iter_mut().find(|(owner, _)| *owner == slot)
                && ours
            {
                queue.push_back(socket);
            }
        } else if ours {
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
            state.receive = NONE;
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
            Work::Connect { .. } | Work::Readable => state.sent = Some(result),
            _ => {}
        }
    }
}

/// Closing a ring cancels what it has under way, but not at once: the memory
/// that requests work on is freed when each has had its last completion, and
/// leaked should one not come.
impl Drop for CompletionDriver {
    fn drop(&mut self) {
        let all = types::CancelBuilder::any().all();
        let cancel = opcode::AsyncCancel2::new(all).build().user_data(NOBODY);
        // SAFETY: a cancellation points to no memory.
        let mut going = unsafe { self.ring.push(&cancel) }.is_ok();
        for _ in 0..CANCEL_WAITS {
            if !going || self.free.len() == self.requests.len() {
                break;
            }
            going = self.ring.wait(Some(CANCEL_WAIT)).is_ok();
            while let Some(completion) = self.ring.completion() {
                if completion.user_data() != NOBODY && !cqueue::more(completion.flags()) {
                    self.retire(completion.user_data() as RequestId);
                }
            }
        }
        if self.free.len() == self.requests.len() {
            // SAFETY: no request is left that could use a buffer, and nobody
            // else uses this value after its drop.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        } else {
            std::mem::forget(std::mem::take(&mut self.requests));
        }
    }
}

/// How long a drop waits for the kernel: cancellation is a matter of microseconds.
const CANCEL_WAITS: u32 = 100;
const CANCEL_WAIT: Duration = Duration::from_millis(10);

impl Driver for CompletionDriver {
    fn open(&mut self, key: Key, slot: &mut Slot, origin: Origin) -> io::Result<()> {
        let index = key.slot as usize;
        if self.states.len() <= index {
            self.states.resize(index + 1, IDLE);
        }
        self.states[index] = IDLE;
        match origin {
            Origin::Accepted | Origin::AcceptedWithData => self.arm_receive(key, slot),
            Origin::Connecting | Origin::Foreign => Ok(()),
            Origin::Listening => {
                self.accepted.push((key.slot, VecDeque::new()));
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
        self.cancel(state.receive);
        self.cancel(state.send);
        self.overflow.remove(&key.slot);
        self.accepted.retain(|(owner, _)| *owner != key.slot);
        let close = opcode::Close::new(types::Fd(fd.as_raw_fd())).build().user_data(NOBODY);
        // SAFETY: a close points to no memory, and the descriptor is given up here.
        if unsafe { self.ring.push(&close) }.is_ok() {
            let _ = fd.into_raw_fd();
        }
    }

    fn poll_accept(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<OwnedFd>> {
        let queue = self.accepted.iter_mut().find(|(owner, _)| *owner == key.slot);
        if let Some(socket) = queue.and_then(|(_, queue)| queue.pop_front()) {
            return Poll::Ready(Ok(socket));
        }
        let state = &mut self.states[key.slot as usize];
        if let Some(end) = state.end.take() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(-end)));
        }
        if state.receive == NONE {
            self.arm_accept(key, slot)?;
        }
        Poll::Pending
    }

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
        let fd = types::Fd(descriptor(slot)?);
        let address = Box::new(address.clone());
        let connect = opcode::Connect::new(fd, address.as_ptr().cast(), address.addr_len());
        let work = Work::Connect { _address: address };
        self.states[key.slot as usize].send = self.submit(key, work, connect.build())?;
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
            let fd = types::Fd(descriptor(slot)?);
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.states[key.slot as usize].send = self.submit(key, Work::Readable, poll)?;
        }
        Poll::Pending
    }

    fn poll_fill(
        &mut self,
        key: Key,
        slot: &mut Slot,
        input: &mut Input,
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
            None if state.receive == NONE => self.arm_receive(key, slot)?,
            None => {}
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

    /// The receive and the accept are armed: what has arrived comes with the
    /// next turn by itself.
    fn look_once_more(&mut self, _slot: &mut Slot) {}

    fn turn(
        &mut self,
        slots: &mut [Slot],
        pool: &mut Pool,
        timeout: Option<Duration>,
        resume: &mut Vec<u32>,
    ) -> io::Result<()> {
        self.ring.wait(timeout)?;
        while let Some(completion) = self.ring.completion() {
            if let Some(slot) = self.complete(slots, pool, &completion)? {
                resume.push(slot);
            }
        }
        self.files.reap(&mut self.read)?;
        resume_owners(slots, &mut self.read, resume);
        Ok(())
    }
}
