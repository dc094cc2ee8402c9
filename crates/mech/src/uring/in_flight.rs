//! The requests that a ring has under way, with the memory that the kernel works on.
//! The memory of a request stays in its place until the request's last completion,
//! even if the connection is closed before.
//!
//! A receive has no memory of its own: it uses the provided buffers, which all
//! connections share. Every idle connection has a receive, so a receive is only a
//! slot number and a serial number.

use std::collections::HashSet;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{cqueue, opcode, squeue, types};
use rustix::net::SocketAddrAny;

use crate::key::Key;
use crate::net::buffers::Output;
use drover_sys::ring::buffers::{BufferRing, GROUP, RingWithBuffers};

/// Index of a request.
pub(super) type RequestId = u32;

/// The [`RequestId`] that stands for no request.
pub(super) const NONE: RequestId = RequestId::MAX;

/// The `user_data` of requests that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// A cancellation has the `user_data` of its target with this bit. It has a completion
/// only if it fails (`IOSQE_CQE_SKIP_SUCCESS`).
const CANCELLATION: u64 = 1 << 63;

/// The `user_data` of a receive has this bit, the receive's serial and its slot.
const RECEIVE: u64 = 1 << 62;

/// The bits of a serial number.
const SERIAL: u32 = u32::MAX >> 2;

/// How many bytes of a body one send request takes. A request for a whole large body
/// would show no progress of a slow peer before the deadline.
const SEND_MOST: usize = 128 * 1024;

/// How often [`Requests::end_all`] waits for one more request to end. A cancellation
/// takes microseconds.
const CANCEL_WAITS: u32 = 100;
const CANCEL_WAIT: Duration = Duration::from_millis(10);

/// What a request does, and the memory that it works on.
pub(super) enum Work {
    Free,
    /// A multishot accept.
    Accept,
    /// An accept of one connection.
    AcceptOnce,
    Writable,
    Readable,
    /// A wait for the wake-up that another worker sends when it could not take a
    /// connection from the shared listening socket ([`drover_sys::socket::wake_waiter`]).
    Relay,
    Wake,
    Connect(Box<SocketAddrAny>),
    /// A send. It is boxed because few connections send at a time, and because the
    /// kernel reads the header and the parts, so they must not move.
    Send(Box<Sending>),
    /// A send that does not wait for room in the socket. It has a completion only if some bytes were
    /// not sent.
    Post(Box<Sending>),
}

/// An output that the kernel is sending, with room for a sendmsg(2) header.
pub(super) struct Sending {
    pub(super) output: Output,
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

/// The request that a completion belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompletionOwner {
    /// A receive.
    Receive(Receive),
    /// Any other request, by its index.
    Request(RequestId),
}

/// The identity of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receive {
    pub(super) slot: u32,
    /// Tells this receive from earlier receives of the slot; 30 bits.
    pub(super) serial: u32,
}

impl Receive {
    /// The identity of the slot's next receive.
    pub(super) fn next(self) -> Receive {
        Receive { serial: (self.serial + 1) & SERIAL, ..self }
    }

    fn user_data(self) -> u64 {
        RECEIVE | u64::from(self.serial) << 32 | u64::from(self.slot)
    }

    fn from_user_data(bits: u64) -> Receive {
        Receive { slot: bits as u32, serial: (bits >> 32) as u32 & SERIAL }
    }
}

/// How much a receive takes, and where the bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// All bytes that come, into provided buffers, until the receive is cancelled (multishot).
    All,
    /// The next bytes, `most` at most, into one provided buffer; 0: as many as the buffer has room for.
    Once { most: u32 },
    /// The next bytes, `most` at most, which are dropped. With `MSG_TRUNC` a TCP socket copies nothing
    /// (tcp(7)); other sockets copy the bytes to `into`.
    Skip { into: *mut u8, most: u32 },
}

/// All requests of one ring.
pub(super) struct Requests {
    /// Declared before the memory that its requests work on, and so dropped first.
    ring: RingWithBuffers,
    entries: Vec<Request>,
    free: Vec<RequestId>,
    /// How many receives have not ended.
    receives: usize,
    /// The receives that were cancelled and have not ended.
    cancelled: HashSet<Receive>,
    /// Posts without a completion so far. They may not have been submitted yet.
    posts: Vec<RequestId>,
}

struct Request {
    /// The owner of the request. If the owner is gone, its slot has another generation.
    key: Key,
    /// Tells this request from earlier requests with its index; 30 bits.
    serial: u32,
    work: Work,
}

impl Work {
    /// The queue entry of this work on `fd`. The entry points only to heap memory that `self` owns.
    fn entry(&mut self, fd: RawFd) -> squeue::Entry {
        let fd = types::Fd(fd);
        let poll = |events: i16| opcode::PollAdd::new(fd, events as u32);
        match self {
            Work::Free => opcode::Nop::new().build(),
            Work::Accept => {
                opcode::AcceptMulti::new(fd).flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC).build()
            }
            Work::AcceptOnce => {
                let nowhere = std::ptr::null_mut();
                opcode::Accept::new(fd, nowhere, nowhere.cast())
                    .flags(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
                    .build()
            }
            Work::Writable => poll(libc::POLLOUT).build(),
            Work::Readable => poll(libc::POLLIN).build(),
            Work::Relay => {
                let events = libc::EPOLLOUT | libc::EPOLLEXCLUSIVE;
                opcode::PollAdd::new(fd, events as u32).build()
            }
            Work::Wake => poll(libc::POLLIN).multi(true).build(),
            Work::Connect(address) => {
                opcode::Connect::new(fd, address.as_ptr().cast(), address.addr_len()).build()
            }
            Work::Send(sending) => sending.entry(fd, libc::MSG_WAITALL),
            // A post that does not send all its bytes counts as failed, and a failed request has a
            // completion in spite of IOSQE_CQE_SKIP_SUCCESS (io_uring_enter(2)).
            Work::Post(sending) => sending
                .entry(fd, libc::MSG_WAITALL | libc::MSG_DONTWAIT)
                .flags(squeue::Flags::SKIP_SUCCESS),
        }
    }
}

impl Sending {
    pub(super) fn new() -> Box<Sending> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a msghdr of zeroes is valid: it has no address, no parts and no control data.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Box::new(Sending { output: Output::default(), header, parts: [nothing; 2] })
    }

    /// The request that sends what is left of the output. It points into this
    /// box, and into heap memory that the output owns or shares.
    fn entry(&mut self, fd: types::Fd, flags: i32) -> squeue::Entry {
        let flags = flags | libc::MSG_NOSIGNAL;
        let head = self.output.head_left();
        let body = self.output.next_in_memory();
        let body = &body[..body.len().min(SEND_MOST)];
        if head.is_empty() || body.is_empty() {
            let bytes = if head.is_empty() { body } else { head };
            let send = opcode::Send::new(fd, bytes.as_ptr(), bytes.len() as u32);
            return send.flags(flags).build();
        }
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        self.parts = [part(head), part(body)];
        self.header.msg_iov = self.parts.as_mut_ptr();
        self.header.msg_iovlen = self.parts.len();
        opcode::SendMsg::new(fd, &raw const self.header).flags(flags as u32).build()
    }
}

impl Requests {
    pub(super) fn new(ring: RingWithBuffers) -> Requests {
        Requests {
            ring,
            entries: Vec::new(),
            free: Vec::new(),
            receives: 0,
            cancelled: HashSet::new(),
            posts: Vec::new(),
        }
    }

    /// The buffers that receives write to.
    pub(super) fn buffers(&mut self) -> &mut BufferRing {
        &mut self.ring.buffers
    }

    /// Queues a receive of the given extent.
    ///
    /// # Safety
    /// The memory of an [`Extent::Skip`] lives until [`Requests::end_all`] has returned `true`, and no
    /// other code uses it.
    pub(super) unsafe fn receive(&mut self, receive: Receive, fd: RawFd, extent: Extent) {
        let fd = types::Fd(fd);
        let entry = match extent {
            Extent::All => opcode::RecvMulti::new(fd, GROUP).build(),
            Extent::Once { most } => {
                let entry = opcode::Recv::new(fd, std::ptr::null_mut(), most).buf_group(GROUP);
                entry.build().flags(squeue::Flags::BUFFER_SELECT)
            }
            Extent::Skip { into, most } => {
                opcode::Recv::new(fd, into, most).flags(libc::MSG_TRUNC).build()
            }
        };
        self.receives += 1;
        // SAFETY: the provided buffers outlive the ring or are leaked (`end_all`). The caller promises
        // that its memory outlives the request.
        unsafe { self.ring.ring.push(&entry.user_data(receive.user_data())) };
    }

    /// To be called when a receive has had its last completion.
    pub(super) fn receive_ended(&mut self, receive: Receive) {
        self.receives -= 1;
        if !self.cancelled.is_empty() {
            self.cancelled.remove(&receive);
        }
    }

    /// Cancels a receive; its last completion still comes.
    pub(super) fn cancel_receive(&mut self, receive: Receive) {
        self.cancelled.insert(receive);
        self.push_cancellation(receive.user_data());
    }

    /// Queues a request on `fd`.
    pub(super) fn submit(&mut self, key: Key, fd: RawFd, mut work: Work) -> RequestId {
        let entry = work.entry(fd);
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Request { key, serial: 0, work: Work::Free });
            (self.entries.len() - 1) as RequestId
        });
        let request = &mut self.entries[id as usize];
        (request.key, request.work) = (key, work);
        let user_data = request.user_data(id);
        // SAFETY: the entry points only to heap memory that `work` owns, and
        // `work` stays in `entries` until the last completion.
        unsafe { self.ring.ring.push(&entry.user_data(user_data)) };
        id
    }

    /// Queues a post.
    pub(super) fn post(&mut self, key: Key, fd: RawFd, sending: Box<Sending>) -> RequestId {
        let id = self.submit(key, fd, Work::Post(sending));
        self.posts.push(id);
        id
    }

    /// Whether the posts that are left are over. To be called when all completions have been taken.
    pub(super) fn posts_are_over(&mut self) -> bool {
        self.posts.is_empty() || self.ring.ring.is_settled()
    }

    /// Takes one of the posts that are over. The caller retires it.
    pub(super) fn take_post(&mut self) -> Option<RequestId> {
        self.posts.pop()
    }

    /// The owner of a request, and its work.
    pub(super) fn get(&self, id: RequestId) -> (Key, &Work) {
        let request = &self.entries[id as usize];
        (request.key, &request.work)
    }

    /// Frees the index of a finished request, and returns the request's work.
    pub(super) fn retire(&mut self, id: RequestId) -> Work {
        self.free.push(id);
        let request = &mut self.entries[id as usize];
        request.serial = (request.serial + 1) & SERIAL;
        std::mem::replace(&mut request.work, Work::Free)
    }

    /// Retires a request that has had its last completion ([`Requests::retire`]).
    pub(super) fn ended(&mut self, id: RequestId) -> Work {
        let work = self.retire(id);
        if matches!(work, Work::Post(_)) {
            self.posts.retain(|&post| post != id);
        }
        work
    }

    /// Cancels a request, unless `id` is [`NONE`]. Its last completion still comes. A
    /// post ends by itself and is not cancelled.
    pub(super) fn cancel(&mut self, id: RequestId) {
        if id != NONE && !matches!(self.entries[id as usize].work, Work::Post(_)) {
            self.push_cancellation(self.entries[id as usize].user_data(id));
        }
    }

    fn push_cancellation(&mut self, target: u64) {
        let cancel = opcode::AsyncCancel::new(target).build().user_data(target | CANCELLATION);
        // SAFETY: a cancellation points to no memory.
        unsafe { self.ring.ring.push(&cancel.flags(squeue::Flags::SKIP_SUCCESS)) };
    }

    /// Repeats a cancellation that has failed. A cancellation does not find its target
    /// while the kernel is checking whether the target can continue.
    fn cancellation_failed(&mut self, target: u64) {
        let expects_input = if target & RECEIVE != 0 {
            self.cancelled.contains(&Receive::from_user_data(target))
        } else {
            let id = target as RequestId;
            let request = &self.entries[id as usize];
            !matches!(request.work, Work::Free) && request.user_data(id) == target
        };
        if expects_input {
            self.push_cancellation(target);
        }
    }

    /// Queues the close of a descriptor behind the requests that were queued before. So its
    /// number is not reused while an entry in the queue names it.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        let close = opcode::Close::new(types::Fd(fd.into_raw_fd())).build().user_data(NOBODY);
        // SAFETY: a close points to no memory, and this function owns the descriptor.
        unsafe { self.ring.ring.push(&close.flags(squeue::Flags::SKIP_SUCCESS)) };
    }

    /// Submits the queued requests, and waits; see [`drover_sys::ring::Ring::wait_gathering`].
    pub(super) fn wait(&mut self, timeout: Option<Duration>, gather: Duration) -> io::Result<()> {
        self.ring.ring.wait_gathering(timeout, gather)
    }

    /// The next completion that has an owner.
    pub(super) fn completion(&mut self) -> Option<(CompletionOwner, cqueue::Entry)> {
        loop {
            let completion = self.ring.ring.completion()?;
            match completion.user_data() {
                NOBODY => {}
                failed if failed & CANCELLATION != 0 => {
                    self.cancellation_failed(failed & !CANCELLATION);
                }
                receive if receive & RECEIVE != 0 => {
                    return Some((
                        CompletionOwner::Receive(Receive::from_user_data(receive)),
                        completion,
                    ));
                }
                id => return Some((CompletionOwner::Request(id as RequestId), completion)),
            }
        }
    }

    /// Ends all requests, and returns whether all have had their last completion. The
    /// caller cancels the receives before. Closing the ring would end the requests too,
    /// but later, and their memory must not be freed before they have ended. On `false`
    /// the memory of the requests is leaked here, and the caller must leak the memory
    /// that skipping receives write to.
    ///
    /// Each request is cancelled by its number. A cancellation of all requests
    /// (`IORING_ASYNC_CANCEL_ALL`) is slow: the kernel searches all requests again for
    /// each that it finds.
    pub(super) fn end_all(&mut self) -> bool {
        for id in 0..self.entries.len() {
            if !matches!(self.entries[id].work, Work::Free) {
                self.cancel(id as RequestId);
            }
        }
        let mut waits = 0;
        while self.free.len() < self.entries.len() || self.receives > 0 {
            if waits == CANCEL_WAITS || self.wait(Some(CANCEL_WAIT), Duration::ZERO).is_err() {
                std::mem::forget(std::mem::take(&mut self.entries));
                self.ring.buffers.leak();
                return false;
            }
            waits += 1;
            while let Some((owner, completion)) = self.completion() {
                waits = 0;
                match owner {
                    _ if cqueue::more(completion.flags()) => {}
                    CompletionOwner::Receive(receive) => self.receive_ended(receive),
                    CompletionOwner::Request(id) => drop(self.ended(id)),
                }
            }
            while self.posts_are_over()
                && let Some(id) = self.take_post()
            {
                drop(self.retire(id));
            }
        }
        true
    }
}

impl Request {
    fn user_data(&self, id: RequestId) -> u64 {
        u64::from(self.serial) << 32 | u64::from(id)
    }
}
