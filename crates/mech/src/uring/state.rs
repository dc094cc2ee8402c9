//! What a completion driver keeps: of itself, of each slot, and of each listener.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use sys::ring::buffers::RingWithBuffers;
use sys::ring::retry_on_enomem;
use sys::waker::Waker;

use super::in_flight::{NONE, Receive, RequestId, Requests, Sending, Work};
use crate::fileio::FileIo;
use crate::key::Key;
use crate::mechanism::Options;
use crate::net::buffers::Output;
use crate::net::options::NetOptions;
use crate::net::slot::Slot;

/// Requests that one system call submits.
pub(super) const SUBMISSIONS: u32 = 512;

/// Bytes of a provided buffer.
pub(super) const BUFFER_SIZE: usize = 8 * 1024;

/// The driver's side of a slot.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) armed: Armed,
    /// The serial of its last receive.
    pub(super) serial: u32,
    /// The send, connect, accept or wait for readiness under way.
    pub(super) send: RequestId,
    pub(super) post: Post,
    /// Received bytes that no fill has reported yet.
    pub(super) fresh: u32,
    /// They were skipped, and lie nowhere.
    pub(super) skipped: bool,
    /// How the stream ended: 0 or −errno, after the bytes; [`STREAM_OPEN`].
    pub(super) end: i16,
    /// The result of the last such request that nobody has asked for yet, or [`NO_RESULT`].
    pub(super) sent: i32,
}

/// The stream has not ended.
pub(super) const STREAM_OPEN: i16 = i16::MIN;

/// Nothing has ended.
pub(super) const NO_RESULT: i32 = i32::MIN;

pub(super) const IDLE: State = State {
    armed: Armed::Nothing,
    serial: 0,
    send: NONE,
    post: Post::Over,
    fresh: 0,
    skipped: false,
    end: STREAM_OPEN,
    sent: NO_RESULT,
};

impl State {
    /// How the stream ended, if it has.
    pub(super) fn end(&self) -> Option<io::Result<()>> {
        match self.end {
            STREAM_OPEN => None,
            0 => Some(Ok(())),
            error => Some(Err(io::Error::from_raw_os_error(-i32::from(error)))),
        }
    }

    /// The result of the last request, once.
    pub(super) fn take_sent(&mut self) -> Option<io::Result<u32>> {
        match std::mem::replace(&mut self.sent, NO_RESULT) {
            NO_RESULT => None,
            result @ 0.. => Some(Ok(result as u32)),
            error => Some(Err(io::Error::from_raw_os_error(-error))),
        }
    }
}

/// What a slot has armed, to hear of what comes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
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
    PausedReceive,
    /// An accept, likewise.
    PausedAccept,
}

impl Armed {
    /// Whether it is a receive that was not cancelled.
    pub(super) fn receives(self) -> bool {
        matches!(self, Armed::Receive | Armed::ReceiveOnce)
    }
}

#[expect(clippy::vec_box, reason = "the kernel points into the boxes")]
pub(crate) struct CompletionDriver {
    pub(super) requests: Requests,
    /// Where skipped bytes go from sockets that ignore `MSG_TRUNC` (all but those of TCP); empty until the
    /// first skip. Declared behind `requests`, and so dropped after it: the kernel writes here.
    pub(super) skipped: Vec<u8>,
    /// What did not fit into the input buffers of connections whose receive was
    /// cancelled for it, by slot.
    pub(super) overflow: HashMap<u32, Vec<u8>>,
    /// Kept for reuse.
    pub(super) spare: Vec<Box<Sending>>,
    /// Whether a coroutine waits for a post that the next turn submits.
    pub(super) awaited: bool,
    /// Whether there has been a socket of the Unix domain.
    pub(super) unix: bool,
    pub(super) states: Vec<State>,
    pub(super) listeners: Vec<RingListener>,
    pub(super) files: Box<dyn FileIo>,
    /// Whose file has been read.
    pub(super) read: Vec<Key>,
    pub(super) waker: Arc<Waker>,
}

/// The number of the slot's socket.
pub(super) fn descriptor(slot: &Slot) -> io::Result<RawFd> {
    slot.fd.as_ref().map(AsRawFd::as_raw_fd).ok_or_else(|| Errno::BADF.into())
}

/// The ring of a driver with those options, and its buffers.
pub(super) fn ring(options: &Options) -> io::Result<RingWithBuffers> {
    RingWithBuffers::open(SUBMISSIONS, options.completions, options.receive_buffers, BUFFER_SIZE)
}

/// What is kept of a listener.
pub(super) struct RingListener {
    pub(super) slot: u32,
    /// Other rings accept from the same socket: one connection per request, after which this ring
    /// waits behind them. A multishot accept would stay first, and be given every connection.
    pub(super) exclusive: bool,
    /// The wait for another ring to say that it could not take a connection; or [`NONE`].
    pub(super) relay: RequestId,
    /// Whether this ring has one to give, when it no longer waits for such relayed wake-up itself.
    pub(super) relay_wakeup: bool,
    /// Connections taken from its backlog and not asked for yet.
    pub(super) accepted: VecDeque<OwnedFd>,
}

/// What became of a connection's last post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Post {
    /// All of it was taken.
    Over,
    /// Some of it may be left.
    UnderWay,
    /// Likewise, and the coroutine is to be resumed when it is over.
    Awaited,
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

    pub(super) fn watch_waker(&mut self) {
        if let Some(fd) = self.waker.as_eventfd() {
            self.requests.submit(Key::WAKER, fd.as_raw_fd(), Work::Wake);
        }
    }

    /// Ends what the slot has armed: what it has taken comes before its end.
    pub(super) fn pause(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        match state.armed {
            Armed::Receive | Armed::ReceiveOnce => {
                state.armed = Armed::PausedReceive;
                self.requests.cancel_receive(Receive { slot, serial: state.serial });
            }
            Armed::Accept | Armed::AcceptOnce => {
                state.armed = Armed::PausedAccept;
                self.requests.cancel(state.send);
            }
            Armed::Nothing | Armed::PausedReceive | Armed::PausedAccept => {}
        }
    }

    /// Takes all of `output`, and leaves an empty one.
    pub(super) fn sending(&mut self, output: &mut Output) -> Box<Sending> {
        let mut sending = self.spare.pop().unwrap_or_else(Sending::new);
        std::mem::swap(&mut sending.output, output);
        sending
    }

    pub(super) fn recycle(&mut self, mut sending: Box<Sending>) {
        sending.output.reset();
        self.spare.push(sending);
    }
}
