//! The memory of all lists: a share of what the server may use.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{KeptList, Listings};

/// Bytes of the memory of lists, which are given back when this value is dropped.
pub(super) struct ListMemory {
    /// Weak, because the lists that are kept have such values.
    listings: Weak<Listings>,
    bytes: u64,
}

impl Listings {
    /// Takes `bytes` for a list; `None`: the others leave too little. A list that is larger than the share is made when there
    /// is no other.
    pub(super) fn take(self: &Arc<Listings>, bytes: u64) -> Option<ListMemory> {
        if !self.try_take(bytes) {
            drop(self.take_idle());
            if !self.try_take(bytes) {
                return None;
            }
        }
        Some(ListMemory { listings: Arc::downgrade(self), bytes })
    }

    fn try_take(&self, bytes: u64) -> bool {
        let more = |held| self.has_room_beside(held, bytes).then_some(held + bytes);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Whether `bytes` may be taken when `held` are in use.
    fn has_room_beside(&self, held: u64, bytes: u64) -> bool {
        held == 0 || held.saturating_add(bytes) <= self.limit
    }

    /// The kept lists that nobody sends.
    fn take_idle(&self) -> Vec<KeptList> {
        let mut state = self.state();
        let is_idle = |list: &KeptList| Arc::strong_count(&list.bytes) == 1;
        state.kept.extract_if(|_, list| is_idle(list)).map(|(_, list)| list).collect()
    }

    /// Has the lists made that have waited for room, as far as there is room now.
    pub(super) fn resume_waiting(self: &Arc<Listings>) {
        let mut held = self.held.load(Ordering::SeqCst);
        let mut queries = Vec::new();
        let mut state = self.state();
        while let Some((cost, list)) = state.waiting.pop_if(|cost| self.has_room_beside(held, cost))
        {
            held += cost;
            queries.extend(list);
        }
        drop(state);
        for query in queries {
            let asks_again = query.clone();
            if let Err(error) = self.begin(query) {
                asks_again.send_result(Err(error));
            }
        }
    }
}

impl ListMemory {
    /// `bytes` of it, and the rest.
    pub(super) fn split(mut self, bytes: u64) -> (ListMemory, ListMemory) {
        self.bytes -= bytes;
        (ListMemory { listings: Weak::clone(&self.listings), bytes }, self)
    }
}

impl Drop for ListMemory {
    fn drop(&mut self) {
        if let Some(listings) = self.listings.upgrade() {
            listings.held.fetch_sub(self.bytes, Ordering::SeqCst);
            listings.resume_waiting();
        }
    }
}
