//! The state of a completion driver: of the driver itself, of each slot, and of each listener.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use drover_sys::ring::buffers::RingWithBuffers;
use drover_sys::ring::retry_on_enomem;
use drover_sys::waker::Waker;
use rustix::io::Errno;

use super::in_flight::{NONE, Receive, RequestId, Requests, Sending, Work};
use crate::fileio::support::counted::CountedFileIo;
use crate::key::Key;
use crate::mechanism::MechanismOptions;
pub(super) use crate::mechanism::RECEIVE_BUFFER_SIZE as BUFFER_SIZE;
use crate::net::buffers::Output;
use crate::net::contract::DispatchCounts;
use crate::net::options::NetOptions;
use crate::net::slot::Slot;

/// The size of the submission queue: how many requests one system call submits at most.
pub(super) const SUBMISSIONS: u32 = 512;

/// The driver's state of one slot.
#[derive(Clone, Copy)]
pub(super) struct DriverSlot {
    pub(super) armed: Armed,
    /// The serial number of the slot's last receive.
    pub(super) serial: u32,
    /// The request under way that is not a receive: a send, connect, accept or wait for readiness; or
    /// [`NONE`].
    pub(super) request: RequestId,
    pub(super) post: Post,
    /// Received bytes that no fill has reported yet.
    pub(super) fresh: u32,
    /// Whether the bytes counted in `fresh` were skipped, so that no buffer has them.
    pub(super) skipped: bool,
    /// How the stream ended, behind the fresh bytes: 0, −errno, or [`STREAM_OPEN`].
    pub(super) end: i16,
    /// The result of the last `request` that has ended, until the coroutine takes it; or [`NO_RESULT`].
    pub(super) result: i32,
}

/// As many spare buffers may be larger than this. More are under way at a time where many peers are slow, and would be kept for good.
const SPARE_LARGE: usize = 64;
const SPARE_CAPACITY: usize = 16 * 1024;

/// The value of [`DriverSlot::end`] while the stream has not ended.
pub(super) const STREAM_OPEN: i16 = i16::MIN;

/// The value of [`DriverSlot::end`] if there was no memory for bytes that have come.
pub(super) const OUT_OF_MEMORY: i16 = -(libc::ENOMEM as i16);

/// The value of [`DriverSlot::result`] while there is no result to take.
pub(super) const NO_RESULT: i32 = i32::MIN;

pub(super) const IDLE: DriverSlot = DriverSlot {
    armed: Armed::Nothing,
    serial: 0,
    request: NONE,
    post: Post::Over,
    fresh: 0,
    skipped: false,
    end: STREAM_OPEN,
    result: NO_RESULT,
};

impl DriverSlot {
    /// How the stream ended, if it has.
    pub(super) fn end(&self) -> Option<io::Result<()>> {
        match self.end {
            STREAM_OPEN => None,
            0 => Some(Ok(())),
            error => Some(Err(io::Error::from_raw_os_error(-i32::from(error)))),
        }
    }

    /// Takes the result of the last request, if there is one.
    pub(super) fn take_result(&mut self) -> Option<io::Result<u32>> {
        match std::mem::replace(&mut self.result, NO_RESULT) {
            NO_RESULT => None,
            result @ 0.. => Some(Ok(result as u32)),
            error => Some(Err(io::Error::from_raw_os_error(-error))),
        }
    }
}

/// The request that a slot has armed for what arrives without being asked for: bytes or connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    Nothing,
    /// A multishot receive.
    Receive,
    /// A receive that ends with the next bytes.
    ReceiveOnce,
    /// A multishot accept, which is the slot's `request`.
    Accept,
    /// An accept of one connection.
    AcceptOnce,
    /// A receive that was cancelled and has not ended yet.
    PausedReceive,
    /// An accept that was cancelled and has not ended yet.
    PausedAccept,
}

impl Armed {
    /// Whether a receive is armed that was not cancelled.
    pub(super) fn receives(self) -> bool {
        matches!(self, Armed::Receive | Armed::ReceiveOnce)
    }
}

#[expect(clippy::vec_box, reason = "the kernel points into the boxes")]
pub(crate) struct CompletionDriver {
    pub(super) requests: Requests,
    /// The memory for skipped bytes of sockets that ignore `MSG_TRUNC` (everything but TCP); empty until the
    /// first skip. The kernel writes here, so this field is declared behind `requests` and dropped after it.
    pub(super) skipped: Box<[u8]>,
    /// Received bytes that did not fit into a connection's input buffer, by slot. The
    /// connection's receive was cancelled then.
    pub(super) overflow: HashMap<u32, Vec<u8>>,
    /// Boxes that are kept for reuse.
    pub(super) spare: Vec<Box<Sending>>,
    /// How many bytes of their buffers were freed in this turn.
    pub(super) freed: usize,
    /// Whether a coroutine waits for a post that the next turn submits.
    pub(super) awaited: bool,
    /// Whether the driver has had a socket of the Unix domain.
    pub(super) unix: bool,
    pub(super) states: Vec<DriverSlot>,
    pub(super) listeners: Vec<RingListener>,
    pub(super) files: CountedFileIo,
    /// Connections for which the file backend has read a part of a file.
    pub(super) read: Vec<Key>,
    pub(super) counts: DispatchCounts,
    pub(super) waker: Arc<Waker>,
}

/// The descriptor number of the slot's socket.
pub(super) fn descriptor(slot: &Slot) -> io::Result<RawFd> {
    slot.fd.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(|| Errno::BADF.into())
}

/// Makes the ring of a driver with `options`, and the ring's buffers.
pub(super) fn ring(options: &MechanismOptions) -> io::Result<RingWithBuffers> {
    let (completions, buffers) = (options.completions, options.receive_buffers);
    RingWithBuffers::open(SUBMISSIONS, completions, buffers, BUFFER_SIZE, options.connects)
}

/// The driver's state of one listener.
pub(super) struct RingListener {
    /// The listener's slot.
    pub(super) slot: u32,
    /// Whether other rings accept from the same socket. Then each request accepts one connection, and the
    /// ring waits behind the other rings afterwards. A multishot accept would stay first and get every
    /// connection.
    pub(super) exclusive: bool,
    /// The request that waits for a wake-up from another ring that could not take a connection
    /// ([`Work::Relay`]); or [`NONE`].
    pub(super) relay: RequestId,
    /// Whether this ring wakes another ring when its own `relay` request has ended. It waits for that
    /// end, because otherwise it could wake itself.
    pub(super) relay_wakeup: bool,
    /// Connections that the ring has accepted and no coroutine has asked for yet.
    pub(super) accepted: VecDeque<OwnedFd>,
}

/// The state of a connection's last post (see `uring/send.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Post {
    /// There was no post, or the kernel has taken all of it, or it has failed.
    Over,
    /// A part of the post may be left.
    UnderWay,
    /// A part of the post may be left, and the coroutine is resumed when the post is over.
    Awaited,
}

impl CompletionDriver {
    /// A driver for the calling thread.
    pub(crate) fn new(options: &NetOptions) -> io::Result<CompletionDriver> {
        let ring = retry_on_enomem(|| ring(&options.dispatch))?;
        let waker = Arc::new(Waker::eventfd()?);
        let files = CountedFileIo::open(options.files, &options.file_options, &waker)?;
        let mut driver = CompletionDriver {
            requests: Requests::new(ring),
            skipped: Box::default(),
            overflow: HashMap::new(),
            spare: Vec::new(),
            freed: 0,
            awaited: false,
            unix: false,
            states: Vec::new(),
            listeners: Vec::new(),
            files,
            read: Vec::new(),
            counts: DispatchCounts::default(),
            waker,
        };
        driver.watch_waker();
        Ok(driver)
    }

    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    pub(super) fn watch_waker(&mut self) {
        if let Some(fd) = self.waker.as_eventfd() {
            self.requests.submit(Key::WAKER, fd.as_raw_fd(), Work::Wake);
        }
    }

    /// Cancels the slot's armed request. What the request has taken is reported before its end.
    pub(super) fn pause(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        match state.armed {
            Armed::Receive | Armed::ReceiveOnce => {
                state.armed = Armed::PausedReceive;
                self.requests.cancel_receive(Receive { slot, serial: state.serial });
            }
            Armed::Accept | Armed::AcceptOnce => {
                state.armed = Armed::PausedAccept;
                self.requests.cancel(state.request);
            }
            Armed::Nothing | Armed::PausedReceive | Armed::PausedAccept => {}
        }
    }

    /// Moves all of `output` into a box for the kernel, and leaves an empty output.
    pub(super) fn sending(&mut self, output: &mut Output) -> Box<Sending> {
        let mut sending = self.spare.pop().unwrap_or_else(Sending::new);
        std::mem::swap(&mut sending.output, output);
        sending
    }

    pub(super) fn recycle(&mut self, mut sending: Box<Sending>) {
        sending.output.reset();
        let capacity = sending.output.head.capacity();
        if capacity > SPARE_CAPACITY && self.spare.len() >= SPARE_LARGE {
            self.freed += capacity;
            sending.output.head = Vec::new();
        }
        self.spare.push(sending);
    }
}
