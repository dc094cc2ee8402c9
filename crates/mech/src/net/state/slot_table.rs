//! The table of a worker's slots: one for each connection, listener and service.

use std::io;
use std::ops::{Index, IndexMut};

use drover_sys::reserve;

use crate::key::Key;
use crate::net::contract::Driver;
use crate::net::slot::{Flags, Slot};
use crate::net::worker::wheel::Tick;

/// A worker's slots, those that are free, and how many tasks have the others.
pub(in crate::net) struct SlotTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// How many tasks keep the executor running.
    live: usize,
    /// How many of the live tasks are listeners and services.
    services: usize,
    /// The setting [`crate::net::NetOptions::waiting_is_idle`].
    waiting_is_idle: bool,
}

impl Index<u32> for SlotTable {
    type Output = Slot;

    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl IndexMut<u32> for SlotTable {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

impl SlotTable {
    pub(in crate::net) fn new(waiting_is_idle: bool) -> SlotTable {
        SlotTable { slots: Vec::new(), free: Vec::new(), live: 0, services: 0, waiting_is_idle }
    }

    /// The slot of `key`, if its task still has it.
    #[inline]
    pub(in crate::net) fn of(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        (slot.generation == key.generation && slot.flags.contains(Flags::TAKEN)).then_some(slot)
    }

    /// Every slot, also the free ones.
    #[inline]
    pub(in crate::net) fn all(&mut self) -> &mut [Slot] {
        &mut self.slots
    }

    /// How many tasks keep the executor running.
    pub(in crate::net) fn live(&self) -> usize {
        self.live
    }

    /// How many of the live tasks are connections.
    pub(in crate::net) fn connections(&self) -> usize {
        self.live - self.services
    }

    /// Makes room for the next [`SlotTable::take`].
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub(in crate::net) fn make_room(&mut self) -> io::Result<()> {
        if self.free.is_empty() { reserve::make_room(&mut self.slots, 1) } else { Ok(()) }
    }

    /// Gives a task a slot.
    pub(in crate::net) fn take(&mut self) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.live += 1;
        let slot = &mut self[index];
        slot.flags = Flags::TAKEN;
        slot.key(index)
    }

    /// Gives a listener or a service a slot.
    pub(in crate::net) fn take_for_service(&mut self) -> Key {
        let key = self.take();
        self[key.slot].flags |= Flags::SERVICE;
        self.services += 1;
        key
    }

    /// Excludes the task of a slot from the tasks that keep the executor running.
    pub(in crate::net) fn put_in_background(&mut self, index: u32) {
        let flags = &mut self.slots[index as usize].flags;
        self.services -= usize::from(flags.contains(Flags::SERVICE));
        *flags = (*flags - Flags::SERVICE) | Flags::BACKGROUND;
        self.live -= 1;
    }

    /// Takes the slot back from its task: no key names it any more. Returns the slot, if a task had it.
    #[inline]
    pub(in crate::net) fn give_back(&mut self, index: u32) -> Option<&mut Slot> {
        let slot = &mut self.slots[index as usize];
        if !slot.flags.contains(Flags::TAKEN) {
            return None;
        }
        // A background task is not in `live`; the subtraction of one below must not count it.
        self.live += usize::from(slot.flags.contains(Flags::BACKGROUND));
        self.services -= usize::from(slot.flags.contains(Flags::SERVICE));
        slot.flags &= Flags::QUEUED;
        slot.generation = slot.generation.wrapping_add(1);
        self.live -= 1;
        self.free.push(index);
        Some(slot)
    }

    /// The idle connections: the tick of each one's deadline, and its slot.
    pub(in crate::net) fn idle(&self, driver: &dyn Driver) -> impl Iterator<Item = (Tick, u32)> {
        let slots = self.slots.iter().zip(0..);
        let idle = slots.filter(move |(slot, index)| {
            slot.is_idle(self.waiting_is_idle) && !driver.is_posting(slot.key(*index))
        });
        idle.map(|(slot, index)| (slot.deadline.due(), index))
    }
}
