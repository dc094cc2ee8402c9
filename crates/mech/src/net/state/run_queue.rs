//! Which coroutines of a worker run next, and how much each may do in its turn.

use std::collections::VecDeque;

use super::slot_table::SlotTable;
use crate::net::slot::{Flags, Slot};

/// The coroutines that are ready to run, by slot.
#[derive(Default)]
pub(in crate::net) struct RunQueue {
    ready: VecDeque<u32>,
    /// Slots that wait for the executor to give them a coroutine.
    pub(in crate::net) to_spawn: VecDeque<u32>,
    /// How many transfers the running coroutine may still make.
    pub(in crate::net) budget: u32,
}

impl RunQueue {
    /// How many coroutines are ready to run.
    #[inline]
    pub(in crate::net) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no coroutine is ready to run.
    #[inline]
    pub(in crate::net) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Makes the coroutine of a slot run, unless it is to run already or the slot has none.
    #[inline]
    pub(in crate::net) fn push(&mut self, index: u32, slot: &mut Slot) {
        if slot.flags.contains(Flags::TAKEN) && !slot.flags.contains(Flags::QUEUED) {
            slot.flags |= Flags::QUEUED;
            self.ready.push_back(index);
        }
    }

    /// [`super::Inner::begin_turn`].
    #[inline]
    pub(in crate::net) fn begin_turn(&mut self, slots: &mut SlotTable, budget: u32) -> Option<u32> {
        let index = self.ready.pop_front()?;
        slots[index].flags -= Flags::QUEUED | Flags::IDLE;
        self.budget = budget;
        Some(index)
    }

    /// Charges one transfer to the running coroutine, that of `index`. `false`: its budget is used up, and it is
    /// resumed after the other coroutines.
    #[inline]
    pub(in crate::net) fn charge(&mut self, index: u32, slot: &mut Slot) -> bool {
        if self.budget == 0 {
            self.push(index, slot);
            return false;
        }
        self.budget -= 1;
        true
    }

    /// Ends the turn of the running coroutine at its next transfer.
    #[inline]
    pub(in crate::net) fn end_turn(&mut self) {
        self.budget = 0;
    }

    /// Whether the running coroutine, which may make `budget` transfers, has been charged one so far.
    #[inline]
    pub(in crate::net) fn is_first_transfer(&self, budget: u32) -> bool {
        self.budget + 1 == budget
    }
}
