//! The streams that a connection may have at once: what each of them carries, and which are free.
//!
//! A slot is what a connection is in HTTP/1: a user who asks, waits for the response, perhaps rests, and asks again. It is free, holds a
//! call that is to be sent, has a call under way, or rests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use drover_http2::StreamId;
use twox_hash::XxHash64;

/// The rest before a request that the server has refused is sent again. It doubles each time, up to the longest one.
const FIRST_REST: Duration = Duration::from_millis(10);
const DOUBLED_MOST: u32 = 7;

/// A request, from its start to the end of its response.
#[derive(Debug, Default)]
pub(super) struct StreamCall {
    /// The intended start; `None`: the moment of sending.
    pub(super) due: Option<Instant>,
    /// When it was sent first; `None`: it was not sent yet.
    pub(super) sent: Option<Instant>,
    /// Its stream on the open connection; `None`: it is not under way.
    pub(super) stream: Option<StreamId>,
    /// The number of the request among those of the origin.
    pub(super) request: usize,
    /// How many bytes of its body were sent.
    pub(super) body_sent: usize,
    /// The status; 0 until the head has come.
    pub(super) status: u16,
    pub(super) first_byte: Option<Instant>,
    pub(super) body_len: u64,
    /// The hash of the body so far; `None`: not wanted.
    pub(super) hash: Option<Box<XxHash64>>,
    /// How often the server has refused it.
    refusals: u32,
    /// How many calls the slot has made, for the rests between bursts.
    pub(super) calls: u32,
}

/// The slots of a connection.
#[derive(Debug)]
pub(super) struct StreamSlots {
    calls: Vec<StreamCall>,
    /// Slots without a call.
    pub(super) free: Vec<u32>,
    /// Slots whose call is to be sent, those first that are sent again.
    pub(super) held: VecDeque<u32>,
    /// Slots that rest, by the end of the rest.
    resting: BinaryHeap<Reverse<(Instant, u32)>>,
    /// How many calls are under way on the open connection.
    pub(super) under_way: u32,
}

impl StreamSlots {
    pub(super) fn new(count: u32) -> StreamSlots {
        StreamSlots {
            calls: (0..count).map(|_| StreamCall::default()).collect(),
            free: (0..count).rev().collect(),
            held: VecDeque::new(),
            resting: BinaryHeap::new(),
            under_way: 0,
        }
    }

    pub(super) fn call(&mut self, slot: u32) -> &mut StreamCall {
        &mut self.calls[slot as usize]
    }

    /// A slot that is no more among the free ones gets a call with this intended start.
    pub(super) fn hold(&mut self, slot: u32, due: Option<Instant>) {
        self.call(slot).due = due;
        self.held.push_back(slot);
    }

    /// The call of a slot has begun on a stream.
    #[inline]
    pub(super) fn begin(&mut self, slot: u32, stream: StreamId) {
        self.call(slot).stream = Some(stream);
        self.under_way += 1;
    }

    /// The call of a slot is over, or will never be sent. The slot is free, or rests until `rest`.
    pub(super) fn release(&mut self, slot: u32, rest: Option<Instant>) {
        let call = &mut self.calls[slot as usize];
        self.under_way -= u32::from(call.stream.is_some());
        *call = StreamCall { calls: call.calls, ..StreamCall::default() };
        match rest {
            None => self.free.push(slot),
            Some(until) => self.resting.push(Reverse((until, slot))),
        }
    }

    /// The server has done nothing for the call of a slot, because it goes away: the call is sent again on another connection.
    pub(super) fn send_again(&mut self, slot: u32) {
        self.take_back(slot);
        self.held.push_front(slot);
    }

    /// The server has refused the call of a slot: it is sent again after a rest, which begins `now`.
    pub(super) fn send_later(&mut self, slot: u32, now: Instant) {
        let call = self.take_back(slot);
        let rest = FIRST_REST * (1 << call.refusals.min(DOUBLED_MOST));
        call.refusals += 1;
        self.resting.push(Reverse((now + rest, slot)));
    }

    fn take_back(&mut self, slot: u32) -> &mut StreamCall {
        let call = &mut self.calls[slot as usize];
        self.under_way -= u32::from(call.stream.take().is_some());
        (call.body_sent, call.first_byte, call.hash) = (0, None, None);
        call
    }

    /// Ends the rests that are over `now`: calls that wait to be sent again are held, and the other slots are free. Those are told, with
    /// the intended end of their rest.
    pub(super) fn end_rests(&mut self, now: Instant, mut freed: impl FnMut(u32, Instant)) {
        while let Some(Reverse((until, slot))) = self.resting.peek().copied()
            && until <= now
        {
            self.resting.pop();
            if self.calls[slot as usize].sent.is_some() {
                self.held.push_front(slot);
            } else {
                self.free.push(slot);
                freed(slot, until);
            }
        }
    }

    /// The end of the next rest; `None`: nothing rests.
    #[inline]
    pub(super) fn next_rest(&self) -> Option<Instant> {
        self.resting.peek().map(|Reverse((until, _))| *until)
    }

    /// Calls that were sent and have no response, wherever they are: the slot of each, and when it was sent.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (u32, Instant)> {
        (0..).zip(&self.calls).filter_map(|(slot, call)| Some((slot, call.sent?)))
    }

    /// The slots whose calls are under way on the open connection.
    pub(super) fn under_way(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.calls).filter(|(_, call)| call.stream.is_some()).map(|(slot, _)| slot)
    }

    /// Whether calls wait to be sent again: they are held, or rest.
    pub(super) fn any_again(&self) -> bool {
        self.calls.iter().any(|call| call.sent.is_some() && call.stream.is_none())
    }

    /// Takes the call of a slot away from where it waits.
    pub(super) fn drop_waiting(&mut self, slot: u32) {
        self.held.retain(|held| *held != slot);
        self.resting.retain(|Reverse((_, resting))| *resting != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_slot_is_free_again_when_its_call_is_over_or_its_rest() {
        let now = Instant::now();
        let mut slots = StreamSlots::new(2);
        let slot = slots.free.pop().unwrap();
        slots.hold(slot, Some(now));
        assert_eq!((slot, slots.held.pop_front()), (0, Some(0)));
        slots.call(0).sent = Some(now);
        slots.call(0).calls = 3;
        assert_eq!(slots.unanswered().collect::<Vec<_>>(), [(0, now)]);
        slots.release(0, Some(now + MS));
        assert_eq!((slots.free.len(), slots.next_rest()), (1, Some(now + MS)));
        let mut freed = Vec::new();
        slots.end_rests(now, |slot, at| freed.push((slot, at)));
        assert!(freed.is_empty());
        slots.end_rests(now + MS, |slot, at| freed.push((slot, at)));
        assert_eq!((freed, slots.free.len()), (vec![(0, now + MS)], 2));
        assert_eq!((slots.call(0).calls, slots.call(0).sent), (3, None));
    }

    #[test]
    fn refused_calls_rest_longer_each_time_and_come_first() {
        let now = Instant::now();
        let mut slots = StreamSlots::new(3);
        slots.free.clear();
        slots.call(1).sent = Some(now);
        slots.hold(0, None);
        let mut rests = Vec::new();
        for _ in 0..10 {
            slots.send_later(1, now);
            let until = slots.next_rest().unwrap();
            rests.push(until - now);
            slots.end_rests(until, |_, _| panic!("it is not free"));
            assert_eq!(slots.held, [1, 0]);
            assert!(slots.any_again());
            slots.held.pop_front();
        }
        assert_eq!(rests[..3], [10 * MS, 20 * MS, 40 * MS]);
        assert_eq!(rests[8..], [1280 * MS; 2]);
        slots.send_again(1);
        slots.drop_waiting(1);
        slots.release(1, None);
        assert_eq!((slots.held.len(), slots.any_again()), (1, false));
    }
}
