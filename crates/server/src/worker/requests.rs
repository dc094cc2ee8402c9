//! How many requests each connection has had, where `--max-requests` limits that.

use std::cell::RefCell;
use std::num::NonZeroU32;

use drover_mech::Key;

/// The requests of one worker's connections.
pub(crate) struct RequestCounter {
    most: NonZeroU32,
    /// How many requests were answered, by slot.
    by_slot: RefCell<Vec<u32>>,
}

impl RequestCounter {
    pub(crate) fn new(most: NonZeroU32) -> RequestCounter {
        RequestCounter { most, by_slot: RefCell::default() }
    }

    /// A connection begins.
    pub(crate) fn begin(&self, key: Key) {
        let (slot, mut by_slot) = (key.slot as usize, self.by_slot.borrow_mut());
        if by_slot.len() <= slot {
            by_slot.resize(slot + 1, 0);
        }
        by_slot[slot] = 0;
    }

    /// Whether the next response of the connection is its last.
    pub(crate) fn is_last(&self, key: Key) -> bool {
        self.by_slot.borrow()[key.slot as usize] + 1 >= self.most.get()
    }

    /// A response stands in the output.
    pub(crate) fn count(&self, key: Key) {
        self.by_slot.borrow_mut()[key.slot as usize] += 1;
    }
}
