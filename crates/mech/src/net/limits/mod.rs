//! Limits of a worker and of a transfer: how many connections there may be, how much is sent before it is another
//! connection's turn, and how slow a client may be.

pub(in crate::net) mod min_rate;
pub(in crate::net) mod send_budget;

use std::collections::HashMap;
use std::num::NonZeroU64;

use drover_sys::socket::Delivered;

use min_rate::MinRate;
use send_budget::SendBudget;

/// The limits that [`crate::net::NetOptions`] set for a worker.
pub(in crate::net) struct NetLimits {
    /// How many transfers a coroutine may make per turn.
    pub(in crate::net) budget: u32,
    /// How many connections there may be at a time.
    pub(in crate::net) connections: usize,
    /// The lowest rate at which peers may take what is sent to them.
    pub(in crate::net) min_rate: Option<MinRate>,
}

impl NetLimits {
    /// How many more connections there may be than `connections`; negative if these are too many.
    pub(in crate::net) fn room(&self, connections: usize) -> isize {
        self.connections.min(isize::MAX as usize) as isize - connections as isize
    }
}

/// The limits of sending, and what is known of peers for them.
pub(in crate::net) struct SendLimits {
    /// How many bytes of a body are sent before it is the next connection's turn.
    pub(in crate::net) budget: SendBudget,
    /// The counters of slow peers' sockets at the end of their last window ([`MinRate`]), by slot.
    delivered: HashMap<u32, Delivered>,
}

impl SendLimits {
    /// With a budget of `fixed` bytes ([`SendBudget::new`]).
    pub(in crate::net) fn new(fixed: Option<NonZeroU64>) -> SendLimits {
        SendLimits { budget: SendBudget::new(fixed), delivered: HashMap::new() }
    }

    /// Stores a socket's counters at the end of a window, and returns those at its begin, if they are known.
    pub(in crate::net) fn end_window(&mut self, index: u32, end: Delivered) -> Option<Delivered> {
        self.delivered.insert(index, end)
    }

    /// Forgets the peer of a slot, whose connection ends.
    #[inline]
    pub(in crate::net) fn forget(&mut self, index: u32) {
        if !self.delivered.is_empty() {
            self.delivered.remove(&index);
        }
    }
}
