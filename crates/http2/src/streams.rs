//! The open streams of a connection: a record each, found by number.

use crate::error::ProtocolFault;
use crate::frame::StreamId;
use crate::priority::StreamPriority;

/// What the record of a stream says of its state (RFC 9113 section 5.1).
pub(crate) mod state {
    /// The peer sends nothing more: "half-closed (remote)".
    pub(crate) const REMOTE_ENDED: u8 = 1;
    /// We send nothing more: "half-closed (local)".
    pub(crate) const LOCAL_ENDED: u8 = 2;
    /// The head has been sent (or, with a client, received) and DATA follows it.
    pub(crate) const HAS_BODY: u8 = 4;
    /// Bytes of the body are not at hand: nobody is asked for them.
    pub(crate) const PAUSED: u8 = 8;
    /// It is reset, and the caller's work for it has not ended.
    pub(crate) const WORKS_ON: u8 = 16;
}

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamRecord<S> {
    pub(crate) id: u32,
    /// How much we may send. A setting of the peer's can make it negative (RFC 9113 section 6.9.2).
    pub(crate) send_window: i32,
    /// How much the peer may send.
    pub(crate) receive_window: u32,
    /// When it was its turn the last time, counted in frames.
    pub(crate) turn: u32,
    /// How many bytes of the peer's body are to come; `None`: nobody has said it.
    pub(crate) content_left: Option<u64>,
    pub(crate) state: u8,
    pub(crate) priority: StreamPriority,
    /// What the caller keeps.
    pub(crate) kept: Option<S>,
}

impl<S> StreamRecord<S> {
    #[inline]
    pub(crate) fn is(&self, state: u8) -> bool {
        self.state & state != 0
    }

    /// Counts a frame of DATA from the peer: its payload of `payload_len` bytes, padding included, for the window (RFC 9113 section
    /// 6.9.1), and `len` of them for the body.
    ///
    /// # Errors
    /// The window has no room, or the body is not as long as the peer has said.
    pub(crate) fn count_data(
        &mut self,
        payload_len: usize,
        len: u64,
        ends: bool,
    ) -> Result<(), ProtocolFault> {
        let window = self.receive_window.checked_sub(payload_len as u32);
        self.receive_window = window.ok_or(ProtocolFault::OverWindow)?;
        if let Some(left) = &mut self.content_left {
            *left = left.checked_sub(len).ok_or(ProtocolFault::ContentLength)?;
            if ends && *left > 0 {
                return Err(ProtocolFault::ContentLength);
            }
        }
        Ok(())
    }

    /// Whether the body of a request is not sent as a whole, and somebody may need the rest.
    #[inline]
    pub(crate) fn uploads(&self) -> bool {
        !self.is(state::LOCAL_ENDED | state::REMOTE_ENDED)
    }

    /// Whether DATA can follow: the head has been sent, the body has not ended, and its bytes are at hand.
    #[inline]
    pub(crate) fn offers_data(&self) -> bool {
        self.state & (state::HAS_BODY | state::PAUSED | state::LOCAL_ENDED | state::WORKS_ON)
            == state::HAS_BODY
    }
}

/// The records, and an index in the order of their numbers. Records are used again, so that nothing is allocated once there were
/// as many streams as there will be.
#[derive(Debug)]
pub(crate) struct StreamTable<S> {
    /// Number and place of each stream that is open, ascending.
    order: Vec<(u32, u32)>,
    records: Vec<StreamRecord<S>>,
    /// Places that no stream has.
    free: Vec<u32>,
}

impl<S> StreamTable<S> {
    pub(crate) fn new() -> StreamTable<S> {
        StreamTable { order: Vec::new(), records: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Where the stream stands in the order.
    #[inline]
    fn position(&self, id: u32) -> Option<usize> {
        match self.order.last() {
            // The newest is asked for most often.
            Some((newest, _)) if *newest == id => Some(self.order.len() - 1),
            Some((newest, _)) if *newest > id => {
                self.order.binary_search_by_key(&id, |(id, _)| *id).ok()
            }
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, id: StreamId) -> Option<&mut StreamRecord<S>> {
        let (_, place) = self.order[self.position(id.0)?];
        Some(&mut self.records[place as usize])
    }

    #[inline]
    pub(crate) fn peek(&self, id: StreamId) -> Option<&StreamRecord<S>> {
        let (_, place) = self.order[self.position(id.0)?];
        Some(&self.records[place as usize])
    }

    /// Adds a stream, whose number is higher than all others.
    #[inline]
    pub(crate) fn add(&mut self, record: StreamRecord<S>) {
        debug_assert!(self.order.last().is_none_or(|(newest, _)| *newest < record.id));
        let id = record.id;
        let place = match self.free.pop() {
            Some(place) => {
                self.records[place as usize] = record;
                place
            }
            None => {
                self.records.push(record);
                (self.records.len() - 1) as u32
            }
        };
        self.order.push((id, place));
    }

    /// Removes a stream, and returns what was kept of it.
    #[inline]
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<S> {
        let position = self.position(id.0)?;
        let (_, place) = match position + 1 == self.order.len() {
            true => self.order.pop()?,
            false => self.order.remove(position),
        };
        self.free.push(place);
        self.records[place as usize].kept.take()
    }

    /// All records, in the order of their numbers.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamRecord<S>> {
        self.order.iter().map(|(_, place)| &self.records[*place as usize])
    }

    /// Calls `change` with each record, in no order.
    pub(crate) fn for_each(&mut self, mut change: impl FnMut(&mut StreamRecord<S>)) {
        for (_, place) in &self.order {
            change(&mut self.records[*place as usize]);
        }
    }

    /// Changes the windows for what is sent on the streams that `counts` names by the same number of bytes (RFC 9113 section 6.9.2).
    ///
    /// # Errors
    /// One is larger than a window can be then; all others have changed.
    pub(crate) fn shift_send_windows(
        &mut self,
        change: i64,
        counts: impl Fn(&StreamRecord<S>) -> bool,
    ) -> Result<(), ProtocolFault> {
        let mut has_overflowed = false;
        self.for_each(|record| {
            if !counts(record) {
                return;
            }
            // No window is below −(2^31 − 1): it was at least 0 with the largest first window.
            match i32::try_from(i64::from(record.send_window) + change) {
                Ok(window) => record.send_window = window,
                Err(_) => has_overflowed = true,
            }
        });
        if has_overflowed { Err(ProtocolFault::InitialWindowOverflow) } else { Ok(()) }
    }

    /// What is kept of all of them, which are over.
    pub(crate) fn take_kept(&mut self) -> impl Iterator<Item = S> {
        std::mem::replace(self, StreamTable::new()).records.into_iter().filter_map(|it| it.kept)
    }

    /// Gives the memory back if no stream is open.
    pub(crate) fn release(&mut self) {
        if self.order.is_empty() {
            *self = StreamTable::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32) -> StreamRecord<u32> {
        StreamRecord {
            id,
            send_window: 0,
            receive_window: 0,
            turn: 0,
            content_left: None,
            state: 0,
            priority: StreamPriority::default(),
            kept: Some(id * 10),
        }
    }

    #[test]
    fn streams_are_found_in_any_order() {
        let mut table = StreamTable::new();
        for id in [1, 3, 7, 9, 21] {
            table.add(record(id));
        }
        for id in 0..30 {
            let is_there = [1, 3, 7, 9, 21].contains(&id);
            assert_eq!(table.get(StreamId(id)).map(|it| it.id), is_there.then_some(id));
        }
        assert_eq!(table.remove(StreamId(7)), Some(70));
        assert_eq!(table.remove(StreamId(7)), None);
        table.add(record(23));
        assert_eq!(table.records.len(), 5, "the place is used again");
        assert_eq!(table.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 3, 9, 21, 23]);
    }
}
