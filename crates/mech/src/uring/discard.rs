//! Skipping: received bytes that no coroutine wants.

use std::io;
use std::task::Poll;

use drover_sys::reserve::try_zeroed;

use super::state::{Armed, BUFFER_SIZE, CompletionDriver, Post};
use crate::net::buffers::BufferPool;
use crate::net::contract::SKIPPED_AT_ONCE;
use crate::net::slot::Slot;
use crate::uring::in_flight::Extent;

impl CompletionDriver {
    /// Arms a receive that drops up to `most` bytes.
    pub(super) fn arm_skip(&mut self, index: u32, slot: &Slot, most: usize) -> io::Result<()> {
        if self.skipped.is_empty() {
            self.skipped = try_zeroed(SKIPPED_AT_ONCE)?;
        }
        let into = self.skipped.as_mut_ptr();
        self.arm_receive(index, slot, Extent::Skip { into, most: most.min(SKIPPED_AT_ONCE) as u32 })
    }

    /// Takes the count of skipped bytes that no call has reported yet.
    pub(super) fn take_skipped(&mut self, index: u32) -> Option<usize> {
        let state = &mut self.states[index as usize];
        let skipped = std::mem::take(&mut state.skipped);
        skipped.then(|| std::mem::take(&mut state.fresh) as usize)
    }

    /// Skips received bytes first, then has the kernel drop bytes that it has not received into buffers.
    /// Ends a multishot receive for that if many bytes are left to skip.
    pub(super) fn skip(
        &mut self,
        index: u32,
        slot: &mut Slot,
        pool: &mut BufferPool,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if self.states[index as usize].post != Post::Over {
            self.await_post(index);
            return Poll::Pending;
        }
        if let Some(skipped) = self.take_skipped(index) {
            return Poll::Ready(Ok(skipped));
        }
        self.catch_up(index, slot, pool);
        let state = &mut self.states[index as usize];
        let fresh = std::mem::take(&mut state.fresh) as usize;
        if fresh > 0 {
            let skipped = fresh.min(most);
            slot.consume(skipped, pool);
            return Poll::Ready(Ok(skipped));
        }
        if let Some(end) = state.end() {
            return Poll::Ready(end.map(|()| 0));
        }
        match state.armed {
            Armed::Nothing => self.arm_skip(index, slot, most)?,
            Armed::Receive if most > BUFFER_SIZE => self.pause(index),
            _ => {}
        }
        Poll::Pending
    }
}
