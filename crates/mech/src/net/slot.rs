//! What a worker keeps for each connection, listener and service.

use std::io;
use std::os::fd::OwnedFd;

use bitflags::bitflags;

use super::buffers::{BufferPool, Input, Output};
use super::layer::Layered;
use super::worker::wheel::Deadline;
use crate::key::Key;
use crate::readiness::{Interest, Ready};

bitflags! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub(crate) struct Flags: u16 {
        /// Stands in the run queue.
        const QUEUED = 1;
        /// Its deadline has passed and its coroutine has not been told yet.
        const TIMED_OUT = 2;
        /// Its readable bit is a guess (see `Features::MISSES_EARLIER`): only
        /// `EAGAIN` clears it.
        const GUESSED = 4;
        /// The peer has closed its side: the readable bit stays.
        const HANGUP = 8;
        /// Belongs to a task.
        const TAKEN = 16;
        /// The mechanism knows its socket.
        const ATTACHED = 32;
        /// Others wait for its socket too, and a connection is to wake one of them.
        const EXCLUSIVE = 64;
        /// Its task does not keep the executor running.
        const BACKGROUND = 128;
        /// Belongs to a listener or a service, not to a connection.
        const SERVICE = 256;
        /// Its coroutine waits for a message to begin ([`super::Conn::fill_idle`]). Cleared whenever the
        /// coroutine is resumed.
        const IDLE = 512;
    }
}

/// What a worker keeps for each connection, listener and service.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) generation: u32,
    pub(crate) deadline: Deadline,
    pub(crate) input: Option<Box<Input>>,
    /// What was written and queued, of which nothing has been handed to the driver.
    pub(crate) output: Option<Box<Output>>,
    /// What the driver is sending. It is the driver's until all of it is sent: empty while the kernel
    /// has it, and nothing is written to it.
    pub(crate) sending: Option<Box<Output>>,
    /// Cached readiness: set by events, cleared by `EAGAIN` and short transfers.
    pub(crate) ready: Ready,
    /// What the mechanism has been asked to report.
    pub(crate) armed: Interest,
    pub(crate) flags: Flags,
    /// The number of the address of the listener that has accepted its connection, if one has.
    pub(crate) listener: Option<u16>,
    /// What lies between the wire and the coroutine's buffers; mostly nothing.
    pub(crate) layer: Option<Box<Layered>>,
}

impl Slot {
    pub(crate) fn key(&self, slot: u32) -> Key {
        Key { slot, generation: self.generation }
    }

    /// Fails if the deadline has passed, once.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) fn check_deadline(&mut self) -> io::Result<()> {
        if self.flags.contains(Flags::TIMED_OUT) {
            self.flags -= Flags::TIMED_OUT;
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Whether nothing is under way on its connection: its coroutine waits for a message and has no reason to run, and nothing
    /// of a message has been received. `waiting`: waiting for the rest of a message, or for the peer to take something, is
    /// nothing under way either ([`super::NetOptions::waiting_is_idle`]).
    pub(crate) fn is_idle(&self, waiting: bool) -> bool {
        let waits_for_message = self.flags.contains(Flags::IDLE);
        let waits_for_peer = match waiting {
            true => waits_for_message || self.sending.is_some(),
            false => waits_for_message && self.received().is_empty(),
        };
        waits_for_peer && !self.flags.intersects(Flags::QUEUED | Flags::TIMED_OUT)
    }

    /// The received bytes that were not consumed.
    pub(crate) fn received(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], |input| input.filled())
    }

    /// Where the next bytes are received to: the slot's buffer, or one of `pool`'s
    /// that [`Slot::keep`] makes it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn take_input(&mut self, pool: &mut BufferPool) -> io::Result<Box<Input>> {
        match self.input.take() {
            Some(input) => Ok(input),
            None => pool.take_input().map(|input| self.sealed(input)),
        }
    }

    /// An empty buffer for what the connection receives.
    #[inline]
    fn sealed(&self, mut input: Box<Input>) -> Box<Input> {
        if self.layer.is_some() {
            input.seal();
        }
        input
    }

    /// Puts bytes that have come without being asked for behind those that were received, as far as
    /// there is room, and says how many.
    ///
    /// # Errors
    /// `ENOMEM`: none of them is there.
    pub(crate) fn put(&mut self, bytes: &[u8], pool: &mut BufferPool) -> io::Result<usize> {
        // Nearly always nothing was received before, and a buffer is free.
        if self.input.is_none()
            && let Some(free) = pool.free_input()
        {
            let free = self.sealed(free);
            return Ok(self.input.insert(free).append(bytes));
        }
        if self.input.as_ref().is_none_or(|input| pool.is_small(input))
            && let Some(small) = pool.small_of(self.input.as_deref(), bytes)
        {
            let is_first = self.input.is_none();
            self.input = Some(if is_first { self.sealed(small) } else { small });
            return Ok(bytes.len());
        }
        self.grow_input(pool)?;
        let input = self.take_input(pool)?;
        Ok(self.input.insert(input).append(bytes))
    }

    /// Makes room behind what was received, if it lies in a buffer of its own size.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub(crate) fn grow_input(&mut self, pool: &mut BufferPool) -> io::Result<()> {
        if let Some(small) = self.input.as_ref().filter(|input| pool.is_small(input)) {
            self.input = Some(pool.grow(small)?);
        }
        Ok(())
    }

    /// Keeps no more memory than what was received needs: the connection waits for the rest of a
    /// message.
    pub(crate) fn shrink_input(&mut self, pool: &mut BufferPool) {
        if let Some(input) = self.input.take() {
            let input = pool.shrink(input);
            self.keep(input, pool);
        }
    }

    /// Keeps a buffer, unless it is empty.
    pub(crate) fn keep(&mut self, input: Box<Input>, pool: &mut BufferPool) {
        if input.is_empty() {
            pool.give_input(input);
        } else {
            self.input = Some(input);
        }
    }

    /// The first `count` bytes of what was received are done with.
    pub(crate) fn consume(&mut self, count: usize, pool: &mut BufferPool) {
        if let Some(mut input) = self.input.take() {
            input.consume(count);
            self.keep(input, pool);
        }
    }
}
