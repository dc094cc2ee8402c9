//! The contract between the coroutines' operations and the kernel, and the
//! slot that both work on.
//!
//! It is completion-shaped: an operation is asked for with `poll_…`, which says
//! `Ready` with its result or `Pending`, and in that case the slot is named by
//! a later [`Driver::turn`] once asking again makes sense. A readiness
//! mechanism tries, and waits for readiness; a completion mechanism submits,
//! and waits for the completion. Buffers live in the slot, so an operation that
//! nobody asks about any more is harmless.
//!
//! Before a stop, what has arrived is served: a receive or an accept that is
//! asked for as the `last` one goes to the kernel, whatever was reported, and
//! ends with `WouldBlock` when there is nothing more to take.

use std::io;
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::Duration;

use rustix::net::SocketAddrAny;

use super::buffers::{Output, Pool};
use super::slot::Slot;
#[cfg(doc)]
use crate::fileio::FileIo;
use crate::fileio::Times;
use crate::key::Key;
use crate::readiness::Event;

/// Bytes that one receive skips at most: as much as a socket's queue usually holds. It is zeroed
/// memory that a TCP socket never touches, so that it takes up none.
pub(crate) const SKIPPED_AT_ONCE: usize = 1 << 20;

/// What is asked for with a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// How many bytes are wanted at once; a mechanism that receives by itself
    /// may have taken more when it is asked.
    pub(crate) most: usize,
    /// Where in the stream it stands.
    pub(crate) place: StreamPosition,
}

/// Where in a stream of messages a receive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPosition {
    /// Within a message, or nobody has said that there are any.
    Within,
    /// Between two messages.
    Between,
    /// Between two messages, and the worker stops: it takes what is there, and does not wait.
    Last,
}

impl Fill {
    /// As much as there is.
    pub(crate) const ANY: Fill = Fill { most: usize::MAX, place: StreamPosition::Within };

    /// Whether no receive comes after this one.
    pub(crate) fn is_last(self) -> bool {
        self.place == StreamPosition::Last
    }
}

/// What is asked for with an accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptRequest {
    /// A mechanism that accepts by itself may accept whatever comes. Otherwise it accepts one
    /// connection each time that it is asked, because there may be no room for more.
    pub(crate) ahead: bool,
    /// It is the last one before a stop.
    pub(crate) last: bool,
}

/// Empties `keys` of the owners of slots, and names those who still are.
pub(crate) fn resume_owners(slots: &[Slot], keys: &mut Vec<Key>, resume: &mut Vec<u32>) {
    for key in keys.drain(..) {
        if slots.get(key.slot as usize).is_some_and(|slot| slot.generation == key.generation) {
            resume.push(key.slot);
        }
    }
}

/// How a socket came to its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `accept4` returned it: connected, perhaps with data already.
    Accepted,
    /// As `Accepted`, and data is almost certainly there: its listener defers.
    AcceptedWithData,
    /// Connected by somebody else, perhaps with data already.
    Adopted,
    /// Made by us, not connected yet.
    Connecting,
    /// Listens.
    Listening,
    /// As `Listening`, and other workers wait for the same socket, of which one
    /// is to be woken by a connection (`Features::EXCLUSIVE`).
    ListeningExclusive,
    /// Made by somebody else, and no socket: it is only waited for.
    Foreign,
}

/// Who hears of the events of each wait.
pub(crate) type EventListener = Box<dyn FnMut(&[Event])>;

/// The contract; implementations: over any readiness mechanism
/// (`net/readiness.rs`), and over a completion ring.
pub(crate) trait Driver {
    /// Takes over the socket in `slot.fd`.
    fn open(&mut self, key: Key, slot: &mut Slot, origin: Origin) -> io::Result<()>;

    /// Gives up and closes the socket in `slot.fd`.
    fn close(&mut self, key: Key, slot: &mut Slot);

    /// Takes one connection from the backlog of a listener.
    fn poll_accept(
        &mut self,
        key: Key,
        slot: &mut Slot,
        take: AcceptRequest,
    ) -> Poll<io::Result<OwnedFd>>;

    /// A connection that was accepted ahead of being asked for.
    fn accepted(&mut self, _key: Key) -> Option<OwnedFd> {
        None
    }

    /// A listener that could not take a connection rests: what arrives until it
    /// is asked for the next one is for other workers.
    fn rest(&mut self, key: Key, slot: &mut Slot);

    /// Connects.
    fn poll_connect(
        &mut self,
        key: Key,
        slot: &mut Slot,
        address: &SocketAddrAny,
    ) -> Poll<io::Result<()>>;

    /// Waits until a foreign descriptor may be readable; its owner then reads it
    /// until `EAGAIN`.
    fn poll_readable(&mut self, key: Key, slot: &mut Slot) -> Poll<io::Result<()>>;

    /// Receives into the slot's input buffer, which comes from `pool` once there
    /// is something to receive; 0 is the end of the stream. `StorageFull`: there
    /// is no room in it.
    fn poll_fill(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut Pool,
        fill: Fill,
    ) -> Poll<io::Result<usize>>;

    /// Receives up to `most` bytes, at least 1, and drops them; 0 is the end of
    /// the stream. The slot's input is empty; a mechanism that receives into it by
    /// itself leaves there what came beyond `most`.
    fn poll_skip(
        &mut self,
        key: Key,
        slot: &mut Slot,
        pool: &mut Pool,
        most: usize,
    ) -> Poll<io::Result<usize>>;

    /// Sends as much of `output` as can be sent now, and reports how many bytes
    /// that was; 0 only if `output` was empty.
    fn poll_flush(
        &mut self,
        key: Key,
        slot: &mut Slot,
        output: &mut Output,
    ) -> Poll<io::Result<u64>>;

    /// Takes all of `output` or nothing, and says how many bytes that was. What it has taken it sends
    /// by itself, before it reports anything that was received. A mechanism whose sends are over when
    /// they return needs no such thing.
    fn post(&mut self, _key: Key, _slot: &mut Slot, _output: &mut Output) -> u64 {
        0
    }

    /// Whether something that [`Driver::post`] has taken is not sent yet, as far as the last turn
    /// has shown.
    fn is_posting(&self, _key: Key) -> bool {
        false
    }

    /// What reading files for the connection took since the last call; see [`FileIo::take_times`].
    fn take_file_times(&mut self, key: Key) -> Times;

    /// Has `told` called whenever the kernel's queue of events has overflowed. A mechanism without such a
    /// queue never calls it.
    fn on_overflow(&mut self, _told: Box<dyn Fn()>) {}

    /// Has `told` called with the events of each wait, as the mechanism has reported them. A completion
    /// mechanism never calls it.
    fn on_events(&mut self, _told: EventListener) {}

    /// See [`FileIo::forget_cached`].
    fn forget_cached(&mut self);

    /// Waits, at most `timeout`, and names the slots whose coroutines should
    /// ask again. What arrives by itself goes into a buffer of the slot's, from
    /// `pool`.
    fn turn(
        &mut self,
        slots: &mut [Slot],
        pool: &mut Pool,
        timeout: Option<Duration>,
        resume: &mut Vec<u32>,
    ) -> io::Result<()>;
}
