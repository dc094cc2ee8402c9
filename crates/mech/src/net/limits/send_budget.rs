//! How many bytes of a body a connection may send before the next connection's turn.
//!
//! The bytes that all connections send in one round of turns should still be in the processor's caches when
//! their peers receive them. So the fewer connections send, the more each of them may send.
//! [`crate::net::NetOptions::send_budget`] sets a fixed number of bytes instead.

use std::num::NonZeroU64;

use crate::net::buffers::Output;

/// The most bytes that a coroutine may send in its turn, however few others send: sending 1 MiB takes
/// 0.3 ms.
const MOST: u64 = 1 << 20;

/// How much all connections of a worker send in one round of turns, in units of the second-level cache. A
/// processor's second-level cache and its share of the third level have about this size.
const CACHES_HELD: u64 = 4;

/// The fewest bytes that a coroutine may send in its turn, however many others send. With fewer bytes the
/// calls cost more than the caches save.
const LEAST: u64 = 256 << 10;

/// The limits for the bytes of one turn.
#[derive(Debug)]
pub(in crate::net) struct SendBudget {
    /// How many bytes all connections together send in one round of turns.
    in_a_round: u64,
    least: u64,
    most: u64,
}

impl SendBudget {
    /// A budget of `fixed` bytes per turn; `None`: computed from the size of the processor's caches.
    pub(in crate::net) fn new(fixed: Option<NonZeroU64>) -> SendBudget {
        match fixed.map(NonZeroU64::get) {
            Some(bytes) => SendBudget { in_a_round: bytes, least: bytes, most: bytes },
            None => {
                let in_a_round = CACHES_HELD * drover_sys::process::second_level_cache();
                SendBudget { in_a_round, least: LEAST, most: MOST }
            }
        }
    }

    /// How many bytes of `output` may be sent before the next coroutine's turn, if `senders` connections
    /// send. A body of at most the smallest budget is sent whole.
    pub(in crate::net) fn of(&self, output: &mut Output, senders: u64) -> u64 {
        if output.body_left() > self.least {
            output.at_once = (self.in_a_round / senders.max(1)).clamp(self.least, self.most);
        }
        output.at_once
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::buffers::Body;

    fn of_one_in(budget: &SendBudget, senders: u64, len: usize) -> u64 {
        let mut output = Output { body: Body::Shared(vec![0; len].into()), ..Output::default() };
        budget.of(&mut output, senders)
    }

    #[test]
    fn the_more_connections_send_the_less_each_sends_in_its_turn() {
        let budget = SendBudget { in_a_round: 4 << 20, least: LEAST, most: MOST };
        let kib = |senders| of_one_in(&budget, senders, 2 << 20) >> 10;
        assert_eq!([1, 4, 8, 16, 64].map(kib), [1024, 1024, 512, 256, 256]);
        assert!(of_one_in(&budget, 64, 100 << 10) > 100 << 10, "a short body is sent whole");
        let chosen = SendBudget::new(None);
        assert!((LEAST..=MOST).contains(&of_one_in(&chosen, 8, 2 << 20)));
    }

    #[test]
    fn a_fixed_number_of_bytes_is_the_same_for_all() {
        for bytes in [4096, 8 << 20] {
            let budget = SendBudget::new(NonZeroU64::new(bytes));
            assert_eq!([1, 64].map(|senders| of_one_in(&budget, senders, 16 << 20)), [bytes; 2]);
        }
    }
}
