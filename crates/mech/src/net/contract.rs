//! The contract between the coroutines' operations and a dispatch mechanism: the
//! trait [`Driver`].
//!
//! The contract has the shape of completions. A coroutine asks for an operation with
//! `poll_…`, which returns `Ready` with the result, or `Pending`. After `Pending` a
//! later [`Driver::turn`] names the slot when the coroutine should ask again. A
//! readiness mechanism tries the system call and waits for readiness; a completion
//! mechanism submits a request and waits for its completion. Buffers live in the
//! slot, so a coroutine may give up an operation at any time.
//!
//! Before a stop the worker serves everything that has arrived. A receive or an
//! accept that is asked for as the `last` one always asks the kernel, and ends with
//! `WouldBlock` when there is nothing more to take.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use rustix::net::SocketAddrAny;

use super::buffers::{Body, BufferPool, Output};
use super::slot::Slot;
#[cfg(doc)]
use crate::fileio::FileIo;
use crate::fileio::{ReadTimes, Sent, Transfer};
use crate::key::Key;
use crate::readiness::Event;

/// Bytes that one receive skips at most: as many as a socket's queue usually has. The buffer for them is
/// zeroed memory; a TCP socket never writes to it, so it occupies no pages.
pub(crate) const SKIPPED_AT_ONCE: usize = 1 << 20;

/// What a receive is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// How many bytes are wanted at most. A completion mechanism may have received
    /// more before it is asked.
    pub(crate) most: usize,
    /// Where in the stream of messages the receive stands.
    pub(crate) position: StreamPosition,
}

/// Where in a stream of messages a receive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPosition {
    /// Within a message, or the stream is not divided into messages.
    Within,
    /// Between two messages.
    Between,
    /// Between two messages while the worker stops: the receive takes what is there, and does not wait.
    Last,
}

impl Fill {
    /// A receive without a limit, within a message.
    pub(crate) const ANY: Fill = Fill { most: usize::MAX, position: StreamPosition::Within };

    /// Whether no receive comes after this one.
    pub(crate) fn is_last(self) -> bool {
        self.position == StreamPosition::Last
    }
}

/// What an accept is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptRequest {
    /// Whether a completion mechanism may accept connections before it is asked for them. If not, it
    /// accepts one connection per call, because the worker may have no room for more.
    pub(crate) ahead: bool,
    /// Whether this is the last accept before a stop.
    pub(crate) last: bool,
}

/// Empties `keys`, and adds the slots of those keys that still own their slots to `resume`.
pub(crate) fn resume_owners(slots: &[Slot], keys: &mut Vec<Key>, resume: &mut Vec<u32>) {
    for key in keys.drain(..) {
        if slots.get(key.slot as usize).is_some_and(|slot| slot.generation == key.generation) {
            resume.push(key.slot);
        }
    }
}

/// How a socket came to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOrigin {
    /// `accept4` returned the socket: it is connected and may have data already.
    Accepted {
        /// The number of the listener, in the order in which they have entered the worker.
        listener: u16,
    },
    /// `accept4` returned the socket from a listener that defers: it almost certainly has data.
    AcceptedWithData {
        /// The number of the listener.
        listener: u16,
    },
    /// The caller has connected the socket, which may have data already.
    Adopted,
    /// A new socket, not connected yet.
    Connecting,
    /// A listening socket that no other worker waits for.
    Listening,
    /// A listening socket that other workers wait for too. A connection should wake only
    /// one of them (`Features::EXCLUSIVE`).
    ListeningExclusive,
    /// A descriptor of the caller that is not a socket: the driver only waits for it.
    Foreign,
}

impl SocketOrigin {
    /// The number of the listener that has accepted the socket, if one has.
    pub(crate) fn listener(self) -> Option<u16> {
        match self {
            SocketOrigin::Accepted { listener } | SocketOrigin::AcceptedWithData { listener } => {
                Some(listener)
            }
            _ => None,
        }
    }
}

/// What a worker's driver has counted since it was opened. Counting costs additions to the worker's own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchCounts {
    /// Waits for events, with the one that goes on.
    pub waits: u64,
    /// Events that waits have reported, the waker's excluded; over a completion mechanism its completions.
    pub events: u64,
    /// Calls that found nothing to receive or accept, or no room to send (`EAGAIN`); over a completion mechanism
    /// the requests that ended so.
    pub would_block: u64,
    /// Sends from memory of which the socket took only a part.
    pub short_sends: u64,
}

/// What [`Driver::read_file`] is to read.
///
/// # Errors
/// The output has no file, or the slot no socket.
pub(crate) fn transfer_of<'t>(
    key: Key,
    slot: &'t Slot,
    output: &'t Output,
) -> io::Result<Transfer<'t>> {
    let Body::File { file, offset, .. } = &output.body else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok(Transfer {
        key,
        socket: slot.fd.as_ref().ok_or(io::ErrorKind::NotConnected)?.as_fd(),
        head: &[],
        file,
        offset: offset + output.body_sent,
        len: output.body_left(),
        at_once: output.at_once,
    })
}

/// A function that is called with the events of each wait.
pub(crate) type EventListener = Box<dyn FnMut(&[Event])>;

/// The contract. It has two implementations: over any readiness mechanism
/// (`net/over_readiness.rs`), and over a completion ring (`uring/driver.rs`).
pub(crate) trait Driver {
    /// Takes over the socket in `slot.fd`.
    fn open(&mut self, key: Key, slot: &mut Slot, origin: SocketOrigin) -> io::Result<()>;

    /// Deregisters and closes the socket in `slot.fd`.
    fn close(&mut self, key: Key, slot: &mut Slot);

    /// Takes one connection from the backlog of a listener.
    fn poll_accept(
        &mut self,
        key: Key,
        slot: &mut Slot,
        take: AcceptRequest,
    ) -> Poll<io::Result<OwnedFd>>;

    /// Takes a connection that the mechanism has accepted before it was asked for one.
    fn accepted(&mut self, _key: Key) -> Option<OwnedFd> {
        None
    }

    /// Pauses a listener that could not take a connection: until the next
    /// [`Driver::poll_accept`], connections wake other workers. Returns how many requests have been cancelled, the
    /// end of each of which resumes the listener.
    fn pause_accept(&mut self, key: Key, slot: &mut Slot) -> u8;

    /// Connects the slot's socket to `address`.
    fn poll_connect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        address: &SocketAddrAny,
    ) -> Poll<io::Result<()>>;

    /// Waits until a descriptor of [`SocketOrigin::Foreign`] may be readable. The owner then
    /// reads it until `EAGAIN`.
    fn poll_readable(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<()>>;

    /// Receives into the slot's input buffer, and returns how many bytes; 0 is the
    /// end of the stream. The buffer is taken from `pool` when there is something to
    /// receive. `StorageFull`: the buffer has no room.
    fn poll_fill(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut BufferPool,
        fill: Fill,
    ) -> Poll<io::Result<usize>>;

    /// Receives up to `most` bytes, at least 1, and drops them; 0 is the end of
    /// the stream. The slot's input is empty before the call. A completion mechanism
    /// may have received more than `most` bytes; it puts the others into the input.
    fn poll_skip(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut BufferPool,
        most: usize,
    ) -> Poll<io::Result<usize>>;

    /// Sends as much of `output` as the socket takes now, and returns how many bytes;
    /// 0 only if `output` was empty.
    fn poll_flush(
        &mut self,
        key: Key,
        slot: &mut Slot,
        output: &mut Output,
    ) -> Poll<io::Result<u64>>;

    /// Appends the next bytes of the file that `output` has as its body to `into`, at most [`Output::at_once`]: they are not sent as they
    /// are. `Later`: [`Driver::turn`] names the slot when they can be had.
    fn read_file(
        &mut self,
        key: Key,
        slot: &Slot,
        output: &Output,
        into: &mut Vec<u8>,
    ) -> io::Result<Sent>;

    /// Takes all of `output` or nothing, and returns how many bytes it has taken. The driver sends these
    /// bytes by itself, before it reports anything that the connection receives. A readiness mechanism
    /// takes nothing: its sends are over when they return.
    fn post(&mut self, _key: Key, _slot: &mut Slot, _output: &mut Output) -> u64 {
        0
    }

    /// Whether bytes that [`Driver::post`] has taken are not sent yet, as far as the last turn has
    /// shown.
    fn is_posting(&self, _key: Key) -> bool {
        false
    }

    /// How long reading files for the connection took since the last call; see [`FileIo::take_times`].
    fn take_file_times(&mut self, key: Key) -> ReadTimes;

    /// Sets a function that is called whenever the kernel's queue of events has overflowed. A mechanism
    /// without such a queue never calls it.
    fn on_overflow(&mut self, _told: Box<dyn Fn()>) {}

    /// Sets a function that is called with the events of each wait, as the mechanism has reported them. A
    /// completion mechanism never calls it.
    fn on_events(&mut self, _told: EventListener) {}

    /// What was counted so far.
    fn counts(&self) -> DispatchCounts;

    /// Forgets what is known of the page cache; see [`FileIo::forget_cached`].
    fn forget_cached(&mut self);

    /// Frees memory that is kept for later.
    fn shrink_to_used(&mut self) {}

    /// Waits, and adds the slots of coroutines
    /// that should ask again to `resume`. A completion mechanism puts received bytes
    /// into the slot's input, a buffer from `pool`.
    fn turn(
        &mut self,
        slots: &mut [Slot],
        pool: &mut BufferPool,
        time: WaitTime,
        resume: &mut Vec<u32>,
    ) -> io::Result<()>;
}

/// How long a driver waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTime {
    /// At most so long; `None`: no limit.
    pub(crate) timeout: Option<Duration>,
    /// And at least so long if something has come, so that more is found at once; never longer than `timeout`.
    pub(crate) gather: Duration,
}

impl WaitTime {
    /// To look whether something has come.
    pub(crate) const NONE: WaitTime =
        WaitTime { timeout: Some(Duration::ZERO), gather: Duration::ZERO };
}
