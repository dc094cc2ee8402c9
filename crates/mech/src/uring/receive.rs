//! Receiving: copies the bytes from the kernel's provided buffers to the connection's own buffer.

use std::io;

use io_uring::cqueue;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags};

use super::state::{Armed, CompletionDriver, OUT_OF_MEMORY, descriptor};
use crate::net::buffers::BufferPool;
use crate::net::slot::Slot;
use crate::uring::in_flight::{Extent, Receive};
use drover_sys::reserve::make_room;
use drover_sys::ring::buffers::Received;

/// Receives the bytes that have arrived, by recv(2) without the ring.
pub(super) fn receive_now(slot: &mut Slot, pool: &mut BufferPool) -> io::Result<usize> {
    let mut input = slot.take_input(pool)?;
    let fd = slot.fd.as_ref().ok_or(Errno::BADF)?;
    let received = rustix::net::recv(fd, input.spare(), RecvFlags::empty());
    let received = received.map(|(_, count)| count).inspect(|&count| input.received(count));
    slot.keep(input, pool);
    Ok(received?)
}

impl CompletionDriver {
    pub(super) fn arm_receive(
        &mut self,
        index: u32,
        slot: &Slot,
        extent: Extent,
    ) -> io::Result<()> {
        let fd = descriptor(slot)?;
        let state = &mut self.states[index as usize];
        let receive = Receive { slot: index, serial: state.serial }.next();
        let extent = match extent {
            Extent::All if self.unix => Extent::Once { most: 0 },
            extent => extent,
        };
        let expects_input = matches!(extent, Extent::All);
        state.armed = if expects_input { Armed::Receive } else { Armed::ReceiveOnce };
        state.serial = receive.serial;
        // SAFETY: skipped bytes go to `skipped`, which outlives the requests or is leaked.
        unsafe { self.requests.receive(receive, fd, extent) };
        Ok(())
    }

    pub(super) fn look_at_domain(&mut self, slot: &Slot) {
        let domain = slot.fd.as_ref().map(rustix::net::sockopt::socket_domain);
        self.unix |= domain == Some(Ok(AddressFamily::UNIX));
    }

    /// Takes the bytes of a slot that did not fit into its input buffer. The map is nearly always empty, and
    /// then the slot is not hashed.
    pub(super) fn take_overflow(&mut self, slot: u32) -> Option<Vec<u8>> {
        if self.overflow.is_empty() { None } else { self.overflow.remove(&slot) }
    }

    /// Moves bytes that did not fit into the slot's input buffer before into it now. If there is no memory for them, the
    /// stream ends there.
    pub(super) fn catch_up(&mut self, index: u32, slot: &mut Slot, pool: &mut BufferPool) {
        if let Some(mut waiting) = self.take_overflow(index) {
            let Ok(moved) = slot.put(&waiting, pool) else { return self.end_for_memory(index) };
            self.states[index as usize].fresh += moved as u32;
            waiting.drain(..moved);
            if !waiting.is_empty() {
                self.overflow.insert(index, waiting);
            }
        }
    }

    /// Handles a completion of a receive. Returns the slot of the coroutine that should ask again.
    pub(super) fn receive_completed(
        &mut self,
        slots: &mut [Slot],
        pool: &mut BufferPool,
        receive: Receive,
        completion: &cqueue::Entry,
    ) -> Option<u32> {
        let last = !cqueue::more(completion.flags());
        if last {
            self.requests.receive_ended(receive);
        }
        let index = receive.slot;
        let state = &mut self.states[index as usize];
        let ours = state.serial == receive.serial
            && (state.armed.receives() || state.armed == Armed::PausedReceive);
        let slot = ours.then(|| &mut slots[index as usize]);
        if ours && last {
            state.armed = Armed::Nothing;
        }
        self.take_received(index, slot, pool, completion);
        ours.then_some(index)
    }

    /// Takes the bytes of a completion; `slot` is `None` if the connection is gone.
    fn take_received(
        &mut self,
        index: u32,
        slot: Option<&mut Slot>,
        pool: &mut BufferPool,
        completion: &cqueue::Entry,
    ) {
        let result = completion.result();
        // SAFETY: the completion is of a receive, and `of` is called once for it.
        let buffer = unsafe { Received::of(completion) };
        // Behind bytes that are lost, others would be another stream.
        if let Some(slot) = slot.filter(|_| self.states[index as usize].end != OUT_OF_MEMORY) {
            match &buffer {
                Some(buffer) if result > 0 => {
                    self.keep(index, slot, pool, buffer, result as usize);
                }
                None if result > 0 => {
                    let state = &mut self.states[index as usize];
                    (state.fresh, state.skipped) = (result as u32, true);
                }
                _ => {}
            }
            match -result {
                // ENOBUFS is not the end of the stream: the receive is armed again when the coroutine asks.
                libc::ENOBUFS => self.requests.buffers().lend_more(),
                libc::ECANCELED | libc::EAGAIN => {}
                0.. => self.states[index as usize].end = result as i16,
                _ => {}
            }
        }
        if let Some(buffer) = buffer {
            self.requests.buffers().give_back(buffer);
        }
    }

    /// Ends a stream whose bytes there is no memory for.
    #[cold]
    fn end_for_memory(&mut self, index: u32) {
        self.states[index as usize].end = OUT_OF_MEMORY;
        self.pause(index);
    }

    /// Copies the first `count` bytes of a buffer to the connection.
    fn keep(
        &mut self,
        index: u32,
        slot: &mut Slot,
        pool: &mut BufferPool,
        buffer: &Received,
        count: usize,
    ) {
        let bytes = self.requests.buffers().bytes(buffer, count);
        let state = &mut self.states[index as usize];
        let mut kept = 0;
        if !self.overflow.contains_key(&index) {
            kept = match slot.put(bytes, pool) {
                Ok(kept) => kept,
                Err(_) => return self.end_for_memory(index),
            };
            state.fresh += kept as u32;
        }
        if kept < count {
            let waiting = self.overflow.entry(index).or_default();
            if make_room(waiting, count - kept).is_err() {
                return self.end_for_memory(index);
            }
            waiting.extend_from_slice(&bytes[kept..]);
            self.pause(index);
        }
    }
}
