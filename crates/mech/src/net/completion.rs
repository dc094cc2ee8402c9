//! The net contract over completions: io_uring does the transfers.
//!
//! A connection has one receive armed for as long as it lives, a multishot one
//! from the second on. What it receives is copied from the kernel's provided
//! buffer to the connection's own as soon as it is reported, so that no
//! connection can keep the buffers that all share; one that sends faster than
//! its coroutine asks is not received from until that has caught up. A send is
//! one request with `MSG_WAITALL`, or a post. Requests are queued and submitted together by
//! the turn's one io_uring_enter(2), which also waits.
//!
//! A coroutine that wants only a little, because it will skip what follows, gets it
//! by a receive for that; and what is skipped is dropped by the kernel, if no
//! multishot receive has taken it before.
//!
//! A multishot request ends when the kernel is out of buffers or of room for
//! completions, and before a stop when it is cancelled, so that what it has taken
//! is known: it is made anew when the coroutine asks for more. Where there are
//! sockets of the Unix domain, every receive is for once: since these tell how many
//! bytes are left (`SO_INQ`, Linux 6.17), a multishot one that finds bytes and the
//! end of the stream at once reports the bytes, and never the end.
//!
//! `EAGAIN` is no error of a connection's here either: a request that finds its socket
//! ready and then not, 128 times (`APOLL_MAX_RETRY`), is left to a thread of the
//! kernel's, which gives up where it would have to wait. Such a request is made anew.
//!
//! What the kernel works on belongs to the request (`net/requests.rs`), not to
//! the connection: one that is closed leaves its requests behind as orphans,
//! cancelled, and each gives up what it holds with its last completion. A file's
//! bytes go by the worker's file backend, with plain system calls, because
//! sendfile(2) has no request and splice(2)'s is always punted to a kernel thread.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use io_uring::cqueue;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny};

use listening::{Listening, take_connection};
use posting::Post;
use receiving::receive_now;

use super::NetOptions;
use super::buffer::{Body, Output, Pool};
use super::driver::{Driver, Fill, Origin, Slot, Take, resume_owners};
use super::requests::{Extent, NONE, Receive, RequestId, Requests, Sending, Whose, Work};
use sys::ring::buffers::RingWithBuffers;
use crate::dispatch::Options;
use crate::fileio::{FileIo, Sent, Times, Transfer};
use crate::key::Key;
use sys::ring::retry_on_enomem;
use sys::waker::Waker;

mod listening;
mod posting;
mod receiving;
mod skipping;

/// Requests that one system call submits.
const SUBMISSIONS: u32 = 512;

/// Bytes of a provided buffer.
const BUFFER_SIZE: usize = 8 * 1024;

/// The driver's side of a slot.
#[derive(Clone, Copy)]
struct State {
    armed: Armed,
    /// The serial of its last receive.
    serial: u32,
    /// The send, connect, accept or wait for readiness under way.
    send: RequestId,
    post: Post,
    /// Received bytes that no fill has reported yet.
    fresh: u32,
    /// They were skipped, and lie nowhere.
    skipped: bool,
    /// How the stream ended: 0 or −errno, after the bytes; [`GOES_ON`].
    end: i16,
    /// The result of the last such request that nobody has asked for yet, or [`NO_RESULT`].
    sent: i32,
}

/// The stream has not ended.
const GOES_ON: i16 = i16::MIN;

/// Nothing has ended.
const NO_RESULT: i32 = i32::MIN;

const IDLE: State = State {
    armed: Armed::Nothing,
    serial: 0,
    send: NONE,
    post: Post::Over,
    fresh: 0,
    skipped: false,
    end: GOES_ON,
    sent: NO_RESULT,
};

impl State {
    /// How the stream ended, if it has.
    fn end(&self) -> Option<io::Result<()>> {
        match self.end {
            GOES_ON => None,
            0 => Some(Ok(())),
            error => Some(Err(io::Error::from_raw_os_error(-i32::from(error)))),
        }
    }

    /// The result of the last request, once.
    fn take_sent(&mut self) -> Option<io::Result<u32>> {
        match std::mem::replace(&mut self.sent, NO_RESULT) {
            NO_RESULT => None,
            result @ 0.. => Some(Ok(result as u32)),
            error => Some(Err(io::Error::from_raw_os_error(-error))),
        }
    }
}

/// What a slot has armed, to hear of what comes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Nothing,
    /// A receive of whatever comes.
    Receive,
    /// A receive that is over with what comes next.
    ReceiveOnce,
    /// An accept of whatever comes: the listener's request.
    Accept,
    /// An accept of one connection.
    AcceptOnce,
    /// A receive that was cancelled, and has not ended yet.
    HeldReceive,
    /// An accept, likewise.
    HeldAccept,
}

impl Armed {
    /// Whether it is a receive that was not cancelled.
    fn receives(self) -> bool {
        matches!(self, Armed::Receive | Armed::ReceiveOnce)
    }
}

#[expect(clippy::vec_box, reason = "the kernel points into the boxes")]
pub(crate) struct CompletionDriver {
    requests: Requests,
    /// Where skipped bytes go from sockets that ignore `MSG_TRUNC` (all but those of TCP); empty until the
    /// first skip. Declared behind `requests`, and so dropped after it: the kernel writes here.
    skipped: Vec<u8>,
    /// What did not fit into the input buffers of connections whose receive was
    /// cancelled for it, by slot.
    overflow: HashMap<u32, Vec<u8>>,
    /// Kept for reuse.
    spare: Vec<Box<Sending>>,
    /// Whether a coroutine waits for a post that the next turn submits.
    awaited: bool,
    /// Whether there has been a socket of the Unix domain.
    unix: bool,
    states: Vec<State>,
    listeners: Vec<Listening>,
    files: Box<dyn FileIo>,
    /// Whose file has been read.
    read: Vec<Key>,
    waker: Arc<Waker>,
}

/// The number of the slot's socket.
fn descriptor(slot: &Slot) -> io::Result<RawFd> {
    slot.fd.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(|| Errno::BADF.into())
}

/// The ring of a driver with those options, and its buffers.
pub(crate) fn ring(options: &Options) -> io::Result<RingWithBuffers> {
    RingWithBuffers::open(SUBMISSIONS, options.completions, options.receive_buffers, BUFFER_SIZE)
}

impl CompletionDriver {
    /// A driver for the calling thread.
    pub(crate) fn new(options: &NetOptions) -> io::Result<CompletionDriver> {
        let ring = retry_on_enomem(|| ring(&options.dispatch))?;
        let waker = Arc::new(Waker::eventfd()?);
        let files = options.files.open(&options.file_options, &waker)?;
        let mut driver = CompletionDriver {
            requests: Requests::new(ring),
            skipped: Vec::new(),
            overflow: HashMap::new(),
            spare: Vec::new(),
            awaited: false,
            unix: false,
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

    /// Ends what the slot has armed: what it has taken comes before its end.
    fn hold(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        match state.armed {
            Armed::Receive | Armed::ReceiveOnce => {
                state.armed = Armed::HeldReceive;
                self.requests.cancel_receive(Receive { slot, serial: state.serial });
            }
            Armed::Accept | Armed::AcceptOnce => {
                state.armed = Armed::HeldAccept;
                self.requests.cancel(state.send);
            }
            Armed::Nothing | Armed::HeldReceive | Armed::HeldAccept => {}
        }
    }

    /// Hands `output` to the kernel in one request.
    fn submit_send(&mut self, key: Key, slot: &Slot, output: &mut Output) -> io::Result<()> {
        let fd = descriptor(slot)?;
        let sending = self.sending(output);
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
            at_once: output.at_once,
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

    /// Takes in one completion of another request, and names the slot whose coroutine should ask
    /// again.
    fn request_completed(
        &mut self,
        slots: &mut [Slot],
        id: RequestId,
        completion: &cqueue::Entry,
    ) -> io::Result<Option<u32>> {
        let (result, flags) = (completion.result(), completion.flags());
        let (key, work) = self.requests.get(id);
        let alive = slots
            .get(key.slot as usize)
            .is_some_and(|slot| slot.generation == key.generation && slot.fd.is_some());
        let ours =
            alive && self.states.get(key.slot as usize).is_some_and(|state| state.send == id);
        match work {
            Work::Accept | Work::AcceptOnce => self.accept_completed(key.slot, ours, result),
            Work::Wake => self.waker.drain()?,
            _ => {}
        }
        if !cqueue::more(flags) {
            let work = self.requests.ended(id);
            match work {
                Work::Wake => self.watch_waker(),
                Work::Sign => self.sign_came(key, id, result, slots),
                _ => {}
            }
            if ours {
                self.request_ended(key, work, result, &mut slots[key.slot as usize]);
            }
        }
        Ok(ours.then_some(key.slot))
    }

    /// The last completion of a live connection's request.
    fn request_ended(&mut self, key: Key, work: Work, result: i32, slot: &mut Slot) {
        let state = &mut self.states[key.slot as usize];
        state.send = NONE;
        match work {
            Work::Post(sending) | Work::Send(sending) if state.post != Post::Over => {
                self.post_ended(key, slot, sending, result);
            }
            Work::Accept | Work::AcceptOnce => state.armed = Armed::Nothing,
            Work::Send(mut sending) => {
                state.sent = result;
                sending.output.sent(u64::try_from(result).unwrap_or(0));
                if let Some(place) = &mut slot.sending {
                    std::mem::swap(&mut **place, &mut sending.output);
                }
                self.recycle(sending);
            }
            Work::Connect(_) | Work::Readable => state.sent = result,
            _ => {}
        }
    }

    /// Takes all of `output`, and leaves an empty one.
    fn sending(&mut self, output: &mut Output) -> Box<Sending> {
        let mut sending = self.spare.pop().unwrap_or_else(Sending::new);
        std::mem::swap(&mut sending.output, output);
        sending
    }

    fn recycle(&mut self, mut sending: Box<Sending>) {
        sending.output.reset();
        self.spare.push(sending);
    }
}

impl Drop for CompletionDriver {
    fn drop(&mut self) {
        for slot in 0..self.states.len() {
            self.hold(slot as u32);
        }
        if !self.requests.end_all() {
            // A receive that has not ended may still write there.
            std::mem::forget(std::mem::take(&mut self.skipped));
        }
    }
}

impl Driver for CompletionDriver {
    fn open(&mut self, key: Key, slot: &mut Slot, origin: Origin) -> io::Result<()> {
        let index = key.slot as usize;
        if self.states.len() <= index {
            self.states.resize(index + 1, IDLE);
        }
        match origin {
            // A connection for one request then ends with nothing to cancel.
            Origin::Accepted | Origin::AcceptedWithData => {
                self.arm_receive(key.slot, slot, Extent::Once { most: 0 })
            }
            Origin::Adopted => {
                self.look_at_domain(slot);
                self.arm_receive(key.slot, slot, Extent::Once { most: 0 })
            }
            Origin::Connecting | Origin::Foreign => Ok(()),
            Origin::Listening | Origin::ListeningExclusive => {
                self.look_at_domain(slot);
                let exclusive = origin == Origin::ListeningExclusive;
                let sign = match exclusive {
                    true => self.requests.submit(key, descriptor(slot)?, Work::Sign),
                    false => NONE,
                };
                self.listeners.push(Listening {
                    slot: key.slot,
                    exclusive,
                    sign,
                    gives_sign: false,
                    accepted: VecDeque::new(),
                });
                self.arm_accept(key, slot, false)
            }
        }
    }

    /// The requests' cancellations are queued before the close: by the time the
    /// kernel comes to it, nothing holds the socket any more, and the number is
    /// not reused while an entry that names it waits in the queue.
    fn close(&mut self, key: Key, slot: &mut Slot) {
        self.files.forget(key);
        let Some(fd) = slot.fd.take() else { return };
        let state = &mut self.states[key.slot as usize];
        // The next owner's receives are told from this one's.
        let State { armed, serial, send, .. } =
            std::mem::replace(state, State { serial: state.serial, ..IDLE });
        if armed.receives() {
            self.requests.cancel_receive(Receive { slot: key.slot, serial });
        }
        self.requests.cancel(send);
        self.take_overflow(key.slot);
        if let Some(place) = self.listeners.iter().position(|it| it.slot == key.slot) {
            self.requests.cancel(self.listeners.swap_remove(place).sign);
        }
        self.requests.close(fd);
    }

    fn poll_accept(&mut self, key: Key, slot: &mut Slot, take: Take) -> Poll<io::Result<OwnedFd>> {
        if let Some(socket) = self.accepted(key) {
            return Poll::Ready(Ok(socket));
        }
        let state = &mut self.states[key.slot as usize];
        if let Some(Err(error)) = state.end() {
            state.end = GOES_ON;
            return Poll::Ready(Err(error));
        }
        match (state.armed, take.last) {
            (Armed::Nothing, false) => self.arm_accept(key, slot, take.ahead)?,
            (Armed::Nothing, true) => return Poll::Ready(take_connection(slot)),
            (_, true) => self.hold(key.slot),
            (Armed::Accept, false) if !take.ahead => self.hold(key.slot),
            (_, false) => {}
        }
        Poll::Pending
    }

    fn accepted(&mut self, key: Key) -> Option<OwnedFd> {
        self.listening(key.slot)?.accepted.pop_front()
    }

    /// No accept stays armed until the next is asked for. But the connection that could not be taken
    /// is still there, and no other worker has heard of it.
    fn rest(&mut self, key: Key, slot: &mut Slot) {
        if slot.fd.is_none() {
            // Its connections come from a thread or a queue, not by the ring.
            return;
        }
        self.hold(key.slot);
        if let Some(listener) = self.listening(key.slot)
            && listener.sign != NONE
        {
            listener.gives_sign = true;
            let sign = listener.sign;
            self.requests.cancel(sign);
        }
    }

    fn poll_connect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        address: &SocketAddrAny,
    ) -> Poll<io::Result<()>> {
        let state = &mut self.states[key.slot as usize];
        match state.take_sent() {
            Some(result) => return Poll::Ready(result.map(drop)),
            None if state.send != NONE => return Poll::Pending,
            None => {}
        }
        self.unix |= address.address_family() == AddressFamily::UNIX;
        let work = Work::Connect(Box::new(address.clone()));
        self.states[key.slot as usize].send = self.requests.submit(key, descriptor(slot)?, work);
        Poll::Pending
    }

    /// A poll that is asked for looks first, so nothing is missed in between.
    fn poll_readable(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<()>> {
        let state = &mut self.states[key.slot as usize];
        if let Some(result) = state.take_sent() {
            return Poll::Ready(result.map(drop));
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
        pool: &mut Pool,
        fill: Fill,
    ) -> Poll<io::Result<usize>> {
        if self.states[key.slot as usize].post != Post::Over {
            self.receive_behind_post(key.slot, slot, fill.is_last())?;
            return Poll::Pending;
        }
        // A skip that was given up has taken these.
        self.take_skipped(key.slot);
        self.catch_up(key.slot, slot, pool);
        let fresh = std::mem::take(&mut self.states[key.slot as usize].fresh);
        if fresh > 0 {
            return Poll::Ready(Ok(fresh as usize));
        }
        if slot.input.as_mut().is_some_and(|input| input.spare().is_empty()) {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        let state = &self.states[key.slot as usize];
        if let Some(end) = state.end() {
            return Poll::Ready(end.map(|()| 0));
        }
        let little = fill.most < BUFFER_SIZE;
        match state.armed {
            Armed::Nothing if fill.is_last() => return Poll::Ready(receive_now(slot, pool)),
            Armed::Nothing if little => {
                self.arm_receive(key.slot, slot, Extent::Once { most: fill.most as u32 })?;
            }
            Armed::Nothing => self.arm_receive(key.slot, slot, Extent::All)?,
            _ if fill.is_last() => self.hold(key.slot),
            Armed::Receive if little => self.hold(key.slot),
            _ => {}
        }
        Poll::Pending
    }

    fn poll_skip(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut Pool,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        self.skip(key.slot, slot, pool, most)
    }

    fn poll_flush(
        &mut self,
        key: Key,
        slot: &mut Slot,
        output: &mut Output,
    ) -> Poll<io::Result<u64>> {
        let state = &mut self.states[key.slot as usize];
        if state.post != Post::Over {
            self.await_post(key.slot);
            return Poll::Pending;
        }
        match state.take_sent() {
            // It sent nothing, and is sent again.
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Some(sent) => return Poll::Ready(sent.map(u64::from)),
            None => {}
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

    fn post(&mut self, key: Key, slot: &mut Slot, output: &mut Output) -> u64 {
        self.try_post(key, slot, output)
    }

    fn is_posting(&self, key: Key) -> bool {
        self.states.get(key.slot as usize).is_some_and(|state| state.post != Post::Over)
    }

    fn take_file_times(&mut self, key: Key) -> Times {
        self.files.take_times(key)
    }

    fn forget_cached(&mut self) {
        self.files.forget_cached();
    }

    fn turn(
        &mut self,
        slots: &mut [Slot],
        pool: &mut Pool,
        timeout: Option<Duration>,
        resume: &mut Vec<u32>,
    ) -> io::Result<()> {
        let timeout = if self.awaited { Some(Duration::ZERO) } else { timeout };
        self.requests.wait(timeout)?;
        while let Some((whose, completion)) = self.requests.completion() {
            resume.extend(match whose {
                Whose::Receive(receive) => {
                    self.receive_completed(slots, pool, receive, &completion)
                }
                Whose::Request(id) => self.request_completed(slots, id, &completion)?,
            });
        }
        self.settle_posts(slots, resume);
        self.files.reap(&mut self.read)?;
        resume_owners(slots, &mut self.read, resume);
        Ok(())
    }
}
