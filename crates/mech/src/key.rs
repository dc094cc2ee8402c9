//! The identity of a connection, a listener or a service within a worker.

/// The identity of a connection, a listener or a service: the index of its
/// slot and the generation of that slot.
///
/// A key travels through the kernel as `epoll_data`, as io_uring `user_data` or
/// beside a descriptor in a table, and comes back with each event. A slot's
/// generation changes when its owner gives the slot up, so a late event for the
/// previous owner is recognised by its old generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Index into the worker's slots.
    pub slot: u32,
    /// The number of the slot's owner, counted from the first owner.
    pub generation: u32,
}

impl Key {
    /// The key under which a worker's own waker is registered. No slot has this key.
    pub const WAKER: Key = Key { slot: u32::MAX, generation: u32::MAX };

    /// The key as the 64 bits that the kernel carries.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The inverse of [`Key::to_bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Key {
        Key { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn bits_carry_slot_and_generation() {
        let key = Key { slot: 7, generation: 0xdead_beef };
        assert_eq!(Key::from_bits(key.to_bits()), key);
        assert_ne!(key, Key::WAKER);
    }
}
