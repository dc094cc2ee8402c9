//! Receiving and sending through a layer.

use std::io;
use std::mem;
use std::task::Poll;

use super::{ANSWER_MOST, GROWING_AT_MOST, HANDSHAKE_MEMORY, Layered, PIECES};
use crate::fileio::Sent;
use crate::key::Key;
use crate::net::buffers::{Body, BufferPool};
use crate::net::contract::Driver;
use crate::net::slot::Slot;
use crate::net::state::Inner;
use drover_sys::reserve::{make_room, probe};

/// The next piece of what is to be sent.
enum Piece {
    /// There is none.
    Nothing,
    /// It was sealed.
    Sealed,
    /// Its part of a file is being read.
    Later,
}

impl Inner {
    /// Receives for a connection with a layer: plain bytes, however many the wire had for them. `receive` asks the driver.
    pub(in crate::net) fn receive_opened(
        &mut self,
        key: Key,
        mut receive: impl FnMut(
            &mut dyn Driver,
            Key,
            &mut Slot,
            &mut BufferPool,
        ) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut has_received = false;
        loop {
            if !self.may_open(key)? {
                return Poll::Pending;
            }
            let opened = self.open_received(key);
            let answered = self.send_answer(key);
            if let Some(plain) = opened? {
                return Poll::Ready(Ok(plain));
            }
            // A peer that takes nothing more may have sent something before; if it is gone, the receive says so.
            answered.or_else(|error| match error.kind() {
                io::ErrorKind::OutOfMemory => Err(error),
                _ => Ok(()),
            })?;
            // The caller has charged the first transfer.
            if mem::replace(&mut has_received, true) && !self.charge(key.slot) {
                return Poll::Pending;
            }
            let slot = &mut self.slots[key.slot];
            // The driver may have put what it held back into a buffer of its own size.
            slot.grow_input(&mut self.pool)?;
            match receive(&mut *self.driver, key, slot, &mut self.pool) {
                Poll::Ready(Ok(1..)) => {}
                other => return other,
            }
        }
    }

    /// Whether something may be opened now. If not, the coroutine is resumed: in the next turn, if too many handshakes were in this
    /// one, or when the peer takes what it was told.
    ///
    /// # Errors
    /// `ENOMEM`: there is too little memory for a step of a handshake.
    fn may_open(&mut self, key: Key) -> io::Result<bool> {
        let slot = &mut self.slots[key.slot];
        let Some(layered) = &slot.layer else { return Ok(true) };
        if layered.answer.len() > ANSWER_MOST {
            return Ok(matches!(self.poll_send_sealed(key, false), Poll::Ready(_)));
        }
        if layered.is_open() || slot.input.is_none() {
            return Ok(true);
        }
        if self.handshakes_left == 0 {
            self.resume(key.slot);
            return Ok(false);
        }
        self.handshakes_left -= 1;
        // What a library of cryptography allocates by malloc(3) does not come from the reserve, and the library aborts or panics without
        // it. What is had here and given back at once is there for it: the thread's heap has grown.
        probe(HANDSHAKE_MEMORY)?;
        Ok(true)
    }

    /// Opens what was received. How many plain bytes there are now; 0: the peer has ended. `None`: more is needed.
    fn open_received(&mut self, key: Key) -> io::Result<Option<usize>> {
        let slot = &mut self.slots[key.slot];
        let Some(layered) = &mut slot.layer else { return Ok(None) };
        if mem::take(&mut layered.is_unreported)
            && let Some(input) = slot.input.as_ref().filter(|input| !input.filled().is_empty())
        {
            return Ok(Some(input.filled().len()));
        }
        if layered.has_ended {
            return Ok(Some(0));
        }
        let is_first = !mem::replace(&mut layered.has_begun, true);
        let Some(input) = &mut slot.input else {
            if is_first {
                layered.layer.open(&mut [], &mut layered.answer)?;
            }
            return Ok(None);
        };
        let opened = layered.layer.open(input.sealed(), &mut layered.answer)?;
        input.opened(opened.used, opened.plain);
        layered.has_ended = opened.is_end;
        if let Some(empty) = slot.input.take_if(|input| input.is_empty()) {
            self.pool.give_input(empty);
        }
        Ok((opened.plain > 0 || opened.is_end).then_some(opened.plain))
    }

    /// Sends as much of what the layer has to say as the socket takes, behind what is being sent. If some of it is left, the
    /// coroutine is resumed when the socket takes more.
    fn send_answer(&mut self, key: Key) -> io::Result<()> {
        loop {
            let slot = &self.slots[key.slot];
            let says_nothing = slot.layer.as_ref().is_none_or(|layered| layered.answer.is_empty());
            if says_nothing && slot.sending.is_none() {
                return Ok(());
            }
            match self.poll_send_sealed(key, false) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(0)) | Poll::Pending => return Ok(()),
            }
        }
    }

    /// Sends as much of what was queued as the socket takes, sealed, and returns how many bytes of the wire; 0 if nothing is left.
    /// `with_plain`: not only what the layer itself has to say.
    pub(in crate::net) fn poll_send_sealed(
        &mut self,
        key: Key,
        with_plain: bool,
    ) -> Poll<io::Result<u64>> {
        let mut wire = match self.slots[key.slot].sending.take() {
            Some(wire) => wire,
            None => {
                let mut wire = self.pool.take_sealed();
                match self.seal_next(key, with_plain, &mut wire.head) {
                    Ok(Piece::Sealed) => wire,
                    nothing => {
                        self.pool.give_sealed(wire);
                        return match nothing {
                            Ok(Piece::Later) => Poll::Pending,
                            nothing => Poll::Ready(nothing.map(|_| 0)),
                        };
                    }
                }
            }
        };
        if !wire.is_empty() && !self.charge(key.slot) {
            self.slots[key.slot].sending = Some(wire);
            return Poll::Pending;
        }
        let polled = self.driver.poll_flush(key, &mut self.slots[key.slot], &mut wire);
        let slot = &mut self.slots[key.slot];
        match polled {
            Poll::Ready(Ok(count)) => {
                if count as usize >= PIECES.1 {
                    self.queue.end_turn();
                }
                match &mut slot.layer {
                    Some(layered) if wire.is_empty() && count as usize >= layered.piece => {
                        layered.piece = PIECES.1;
                    }
                    _ => {}
                }
                match wire.is_empty() {
                    true => self.pool.give_sealed(wire),
                    false => slot.sending = Some(wire),
                }
            }
            _ => slot.sending = Some(wire),
        }
        polled
    }

    /// Sends as much of what was queued as the socket takes, sealed. Returns how many bytes of the wire, also before an error, and
    /// whether all was sent.
    pub(in crate::net) fn begin_sending_sealed(&mut self, key: Key) -> (u64, io::Result<bool>) {
        let mut sent = 0;
        loop {
            match self.poll_send_sealed(key, true) {
                Poll::Ready(Ok(0)) => return (sent, Ok(true)),
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(error)) => return (sent, Err(error)),
                Poll::Pending => return (sent, Ok(false)),
            }
        }
    }

    /// Seals the next piece of what was queued, behind what the layer has to say.
    fn seal_next(&mut self, key: Key, with_plain: bool, wire: &mut Vec<u8>) -> io::Result<Piece> {
        let Inner { slots, driver, pool, sealing, .. } = self;
        let slot = &mut slots[key.slot];
        // The layer is taken out, so that the driver can have the slot.
        let Some(mut layered) = slot.layer.take() else { return Ok(Piece::Nothing) };
        // Many who have something to send at once have small pieces, whatever they took before.
        let is_crowded = pool.outputs_lent() > GROWING_AT_MOST;
        let most = if is_crowded { PIECES.0 } else { layered.piece };
        let most = with_plain.then_some(most);
        let mut piece =
            Self::seal_piece(&mut layered, &mut **driver, (key, slot), most, (sealing, wire));
        if let Some(done) = layered.plain.take_if(|plain| plain.is_empty()) {
            pool.give_output(done);
        }
        let is_last = with_plain && layered.plain.is_none() && slot.output.is_none();
        if is_last && piece.is_ok() && mem::take(&mut layered.is_closing) {
            layered.layer.close(wire);
            piece = Ok(Piece::Sealed);
        }
        slot.layer = Some(layered);
        piece
    }

    fn seal_piece(
        layered: &mut Layered,
        driver: &mut dyn Driver,
        (key, slot): (Key, &mut Slot),
        most: Option<usize>,
        (sealing, wire): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> io::Result<Piece> {
        make_room(wire, layered.answer.len())?;
        // Its memory is given back: of a handshake it is more than all else that an idle connection has.
        wire.extend_from_slice(&mem::take(&mut layered.answer));
        let told = if wire.is_empty() { Piece::Nothing } else { Piece::Sealed };
        let Some(most) = most else { return Ok(told) };
        if layered.plain.is_none() {
            layered.plain = slot.output.take();
        }
        let Some(plain) = &mut layered.plain else { return Ok(told) };
        if plain.is_empty() {
            return Ok(told);
        }
        if !layered.layer.is_open() {
            // Who is told that all was sent would wait for an answer to it.
            return match told {
                Piece::Nothing => Err(io::ErrorKind::NotConnected.into()),
                told => Ok(told),
            };
        }
        // Head and body share records: they are copied together once.
        sealing.clear();
        let head = &plain.head_left()[..plain.head_left().len().min(most)];
        make_room(sealing, most)?;
        sealing.extend_from_slice(head);
        let room = most - head.len();
        plain.at_once = room as u64;
        if let Body::File { .. } = plain.body {
            let reads = room > 0 && plain.body_left() > 0;
            if reads && driver.read_file(key, slot, plain, sealing)? == Sent::Later {
                // The head waits for the file's first bytes, which share its record.
                return Ok(if wire.is_empty() { Piece::Later } else { Piece::Sealed });
            }
        } else {
            sealing.extend_from_slice(plain.next_in_memory());
        }
        layered.layer.seal(sealing, wire)?;
        plain.sent(sealing.len() as u64);
        Ok(Piece::Sealed)
    }
}
