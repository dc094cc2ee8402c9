//! How many bytes of a body a connection hands to the kernel before it is another connection's turn.
//!
//! What all connections have sent in a round of turns is to be in the processor's caches still when their
//! peers receive it: the fewer send, the more each may send. [`super::NetOptions::send_budget`] sets a
//! number of bytes instead.

use std::num::NonZeroU64;

use super::buffers::Output;

/// A coroutine that has sent so many bytes, and has more, comes back after the others, however few they
/// are: sending 1 MiB takes 0.3 ms.
const MOST: u64 = 1 << 20;

/// How many second-level caches the bytes fill that all connections of a worker send in one round of
/// turns: with the processor's share of the third level there is about so much cache.
const CACHES_HELD: u64 = 4;

/// A coroutine may send so many bytes in its turn, however many others send: with less, the calls cost
/// more than the caches save.
const LEAST: u64 = 256 << 10;

/// The bounds of a turn's bytes.
#[derive(Debug)]
pub(super) struct SendBudget {
    /// How many bytes all connections together send in one round of turns.
    in_a_round: u64,
    least: u64,
    most: u64,
}

impl SendBudget {
    /// So many bytes per turn; `None`: as many as the processor's caches suggest.
    pub(super) fn new(fixed: Option<NonZeroU64>) -> SendBudget {
        match fixed.map(NonZeroU64::get) {
            Some(bytes) => SendBudget { in_a_round: bytes, least: bytes, most: bytes },
            None => {
                let in_a_round = CACHES_HELD * sys::process::second_level_cache();
                SendBudget { in_a_round, least: LEAST, most: MOST }
            }
        }
    }

    /// How many bytes of `output` may be sent before the others' turn, where so many connections send. A
    /// body that is no longer than the least that each may send is sent whole.
    pub(super) fn of(&self, output: &mut Output, senders: u64) -> u64 {
        if output.body_left() > self.least {
            output.at_once = (self.in_a_round / senders.max(1)).clamp(self.least, self.most);
        }
        output.at_once
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffers::Body;
    use super::*;

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
