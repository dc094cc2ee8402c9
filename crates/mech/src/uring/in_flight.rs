//! The requests that a ring has, with all that the kernel works on: it stays
//! where it is until the last completion, whatever becomes of its connection.
//!
//! A receive works on nothing but the buffers that all share, and every idle
//! connection has one: it is no more than a number that its slot knows.

use std::collections::HashSet;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{cqueue, opcode, squeue, types};
use rustix::net::SocketAddrAny;

use crate::key::Key;
use crate::net::buffers::{Body, Output};
use sys::ring::buffers::{BufferRing, GROUP, RingWithBuffers};

/// Index of a request.
pub(super) type RequestId = u32;

/// No request.
pub(super) const NONE: RequestId = RequestId::MAX;

/// The `user_data` of requests that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// A cancellation has the `user_data` of its target with this bit. It is silent
/// unless it has failed.
const CANCELLATION: u64 = 1 << 63;

/// The `user_data` of a receive has this bit, the slot's serial and the slot.
const RECEIVE: u64 = 1 << 62;

/// The bits of a serial.
const SERIAL: u32 = u32::MAX >> 2;

/// How much of a body one send takes: a whole large one would leave a slow
/// peer without progress to show before its deadline.
const SEND_MOST: usize = 128 * 1024;

/// How often and how long it is waited for one more request to end: cancellation
/// is a matter of microseconds.
const CANCEL_WAITS: u32 = 100;
const CANCEL_WAIT: Duration = Duration::from_millis(10);

/// What a request does, and what it works on.
pub(super) enum Work {
    Free,
    /// Multishot.
    Accept,
    /// Of one connection.
    AcceptOnce,
    Writable,
    Readable,
    /// A worker that shares the listening socket could not take a connection
    /// ([`sys::socket::wake_waiter`]): one of the others hears it.
    Relay,
    Wake,
    Connect(Box<SocketAddrAny>),
    /// Boxed because few connections are sending at a time, and because the
    /// kernel reads the header and the parts where they are.
    Send(Box<Sending>),
    /// A send that is over when it has been submitted, and has a completion only if something is
    /// left of it.
    Post(Box<Sending>),
}

/// An output that the kernel is sending, with room for a sendmsg(2) header.
pub(super) struct Sending {
    pub(super) output: Output,
    header: libc::msghdr,
    parts: [libc::iovec; 2],
}

/// Whose completion it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum CompletionOwner {
    /// A receive's.
    Receive(Receive),
    /// That of a request with that number.
    Request(RequestId),
}

/// What a receive is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receive {
    pub(super) slot: u32,
    /// Tells it from those that the slot had before; 30 bits.
    pub(super) serial: u32,
}

impl Receive {
    /// The slot's next.
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

/// What a receive takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// All that comes, into provided buffers, until it is cancelled (multishot).
    All,
    /// What there is, up to so many bytes, into one provided buffer; 0: as much as that holds.
    Once { most: u32 },
    /// What there is, up to so many bytes that nobody looks at. With `MSG_TRUNC` a TCP socket drops
    /// them (tcp(7)); others copy them to that memory.
    Skip { into: *mut u8, most: u32 },
}

/// All requests of one ring.
pub(super) struct Requests {
    /// Before what its requests work on, and so dropped before.
    ring: RingWithBuffers,
    entries: Vec<Request>,
    free: Vec<RequestId>,
    /// How many receives have not ended.
    receives: usize,
    /// Those of them that were cancelled.
    cancelled: HashSet<Receive>,
    /// Posts that have not failed and may not have been submitted.
    posts: Vec<RequestId>,
}

struct Request {
    /// Whose it is; an owner that is gone has another generation.
    key: Key,
    /// Tells it from those that had its index before; 30 bits.
    serial: u32,
    work: Work,
}

impl Work {
    /// The request on `fd`. What it points to is on the heap, behind `self`.
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
            // It fails unless it sends all, and what has failed is not silent
            // (io_uring_enter(2), IOSQE_CQE_SKIP_SUCCESS).
            Work::Post(sending) => sending
                .entry(fd, libc::MSG_WAITALL | libc::MSG_DONTWAIT)
                .flags(squeue::Flags::SKIP_SUCCESS),
        }
    }
}

impl Sending {
    pub(super) fn new() -> Box<Sending> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a msghdr of zeroes is one without address, parts and control data.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Box::new(Sending { output: Output::default(), header, parts: [nothing; 2] })
    }

    /// The request that sends what is left of the output. It points into this
    /// box, and into heap memory that the output owns or shares.
    fn entry(&mut self, fd: types::Fd, flags: i32) -> squeue::Entry {
        let flags = flags | libc::MSG_NOSIGNAL;
        let head = self.output.head_left();
        let body = match &self.output.body {
            Body::Shared(body) => &body[self.output.body_sent as usize..],
            _ => &[],
        };
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

    /// What receives go into.
    pub(super) fn buffers(&mut self) -> &mut BufferRing {
        &mut self.ring.buffers
    }

    /// Queues a receive of what `extent` says.
    ///
    /// # Safety
    /// The memory of an [`Extent::Skip`] lives until [`Requests::end_all`] has said that all have
    /// ended, and nobody else uses it.
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
        // SAFETY: the provided buffers outlive the ring, or are leaked (`end_all`), and the caller's
        // memory outlives the request.
        unsafe { self.ring.ring.push(&entry.user_data(receive.user_data())) };
    }

    /// A receive has had its last completion.
    pub(super) fn receive_ended(&mut self, receive: Receive) {
        self.receives -= 1;
        if !self.cancelled.is_empty() {
            self.cancelled.remove(&receive);
        }
    }

    /// As [`Requests::cancel`].
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
        // SAFETY: what the entry points to is on the heap behind `work`, which
        // stays in `entries` until the last completion.
        unsafe { self.ring.ring.push(&entry.user_data(user_data)) };
        id
    }

    /// Queues a post.
    pub(super) fn post(&mut self, key: Key, fd: RawFd, sending: Box<Sending>) -> RequestId {
        let id = self.submit(key, fd, Work::Post(sending));
        self.posts.push(id);
        id
    }

    /// Whether the posts that are left are over; to be asked when all completions have been taken.
    pub(super) fn posts_are_over(&mut self) -> bool {
        self.posts.is_empty() || self.ring.ring.is_settled()
    }

    /// One of the posts that are over, to be retired.
    pub(super) fn take_post(&mut self) -> Option<RequestId> {
        self.posts.pop()
    }

    /// Whose request it is, and what it does.
    pub(super) fn get(&self, id: RequestId) -> (Key, &Work) {
        let request = &self.entries[id as usize];
        (request.key, &request.work)
    }

    /// Takes a finished request's work out.
    pub(super) fn retire(&mut self, id: RequestId) -> Work {
        self.free.push(id);
        let request = &mut self.entries[id as usize];
        request.serial = (request.serial + 1) & SERIAL;
        std::mem::replace(&mut request.work, Work::Free)
    }

    /// As [`Requests::retire`], for a request that has had its last completion.
    pub(super) fn ended(&mut self, id: RequestId) -> Work {
        let work = self.retire(id);
        if matches!(work, Work::Post(_)) {
            self.posts.retain(|&post| post != id);
        }
        work
    }

    /// Ends a request before its time, unless `id` is [`NONE`]; its last completion
    /// comes all the same. A post ends by itself.
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

    /// A cancellation finds nothing while the kernel is about to look whether its
    /// target can go on: then it is repeated.
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

    /// Closes a descriptor after all that was queued before. Its number is not
    /// reused while an entry that names it waits in the queue.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        let close = opcode::Close::new(types::Fd(fd.into_raw_fd())).build().user_data(NOBODY);
        // SAFETY: a close points to no memory, and the descriptor was given up.
        unsafe { self.ring.ring.push(&close.flags(squeue::Flags::SKIP_SUCCESS)) };
    }

    /// Submits what is queued, and waits; see [`Ring::wait`].
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.ring.wait(timeout)
    }

    /// The next completion that somebody waits for.
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

    /// Ends all requests; receives are to be cancelled before. Closing a ring does so
    /// too, but not at once: the memory that requests work on can be freed when each
    /// has had its last completion, and is leaked should one not come (`false`): that
    /// of its own here, and what receives skip into by the caller.
    ///
    /// Each is cancelled by its number: for a cancellation of all, the kernel
    /// (`IORING_ASYNC_CANCEL_ALL`) looks at all again for each that it finds.
    pub(super) fn end_all(&mut self) -> bool {
        for id in 0..self.entries.len() {
            if !matches!(self.entries[id].work, Work::Free) {
                self.cancel(id as RequestId);
            }
        }
        let mut waits = 0;
        while self.free.len() < self.entries.len() || self.receives > 0 {
            if waits == CANCEL_WAITS || self.wait(Some(CANCEL_WAIT)).is_err() {
                std::mem::forget(std::mem::take(&mut self.entries));
                self.ring.buffers.leak();
                return false;
            }
            waits += 1;
            while let Some((whose, completion)) = self.completion() {
                waits = 0;
                match whose {
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
