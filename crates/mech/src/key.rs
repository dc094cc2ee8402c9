//! The one identity that everything in a worker is known by.

/// A connection's (or listener's, or service's) identity: the index of its
/// slot and the generation of that slot.
///
/// It travels through the kernel as `epoll_data`, io_uring `user_data` or
/// beside a descriptor in a table, and comes back with each event. A slot's
/// generation changes when the slot is given up, so an event that was under way
/// for the previous owner dies on comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Index into the worker's slots.
    pub slot: u32,
    /// Which owner of that slot, counted from its first.
    pub generation: u32,
}

impl Key {
    /// The key under which a worker's own waker is registered; never a slot's.
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
