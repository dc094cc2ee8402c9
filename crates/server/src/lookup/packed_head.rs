//! The head of a response that is sent again and again, as HTTP/2 has it: made when it is first asked for.

use std::cell::{Cell, Ref, RefCell};

use drover_http1::response::PreparedResponse;
use drover_http2::hpack::{push_field, push_plain_field, push_status};

use crate::clock::DateClock;

/// A compressed head (RFC 7541) whose date changes. It refers to no table that the connection's earlier heads have filled, so that it is
/// the same for all connections.
pub(crate) struct PackedHead {
    block: RefCell<Box<[u8]>>,
    /// Where the date's text begins.
    date: usize,
    /// The second of the date in the block.
    second: Cell<u64>,
}

impl PackedHead {
    /// The head of a usual response.
    pub(crate) fn new(usual: &PreparedResponse) -> PackedHead {
        let mut block = Vec::new();
        let mut date = 0;
        push_status(&mut block, 200);
        for (name, value) in &usual.fields() {
            match name {
                "Date" => date = push_plain_field(&mut block, name, value).start,
                _ => push_field(&mut block, name, value),
            }
        }
        let (block, second) = (RefCell::new(block.into()), Cell::new(0));
        PackedHead { block, date, second }
    }

    /// The head with the date of this second.
    #[inline]
    pub(crate) fn dated(&self, clock: &DateClock) -> Ref<'_, Box<[u8]>> {
        if self.second.replace(clock.seconds()) != clock.seconds() {
            let date = clock.date();
            self.block.borrow_mut()[self.date..][..date.len()].copy_from_slice(date);
        }
        self.block.borrow()
    }
}
