//! The dynamic table of a decoder (RFC 7541 sections 2.3.2 and 4).

use std::collections::VecDeque;

/// What each entry counts beside its bytes (RFC 7541 section 4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;

/// Fields that the peer's encoder refers to by number, the newest first.
#[derive(Debug, Default)]
pub(super) struct DynamicTable {
    /// Names and values of the entries, the oldest first. Bytes of entries that are gone may be in front.
    bytes: Vec<u8>,
    /// The oldest is in front.
    entries: VecDeque<Entry>,
    /// The size of all entries as RFC 7541 section 4.1 counts it.
    size: u32,
    /// The most that `size` may be: what the encoder has chosen last.
    limit: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the name begins in `bytes`; the value follows it.
    at: u32,
    name: u32,
    value: u32,
}

impl Entry {
    fn size(self) -> u32 {
        self.name + self.value + ENTRY_OVERHEAD as u32
    }
}

/// The name of a field that becomes an entry.
#[derive(Clone, Copy)]
pub(super) enum EntryName<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// That of the entry with this number, which may have to go to make room.
    Entry(usize),
}

impl DynamicTable {
    pub(super) fn new(limit: usize) -> DynamicTable {
        DynamicTable { limit: limit as u32, ..DynamicTable::default() }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// The entry with this number; the newest has 0.
    #[inline]
    pub(super) fn entry(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let Entry { at, name, value } = *self.entries.get(self.position(number)?)?;
        let (begin, middle) = (at as usize, (at + name) as usize);
        Some((&self.bytes[begin..middle], &self.bytes[middle..middle + value as usize]))
    }

    fn position(&self, number: usize) -> Option<usize> {
        self.entries.len().checked_sub(number + 1)
    }

    /// Sets how large the table may be; the oldest entries go if it has to be smaller.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.evict(limit);
        self.forget_bytes();
    }

    /// Adds a field, for which the oldest entries make room. One that is larger than the table leaves it empty (RFC 7541 section
    /// 4.4).
    pub(super) fn insert(&mut self, name: EntryName<'_>, value: &[u8]) {
        let at = self.bytes.len();
        let name_len = match name {
            EntryName::Bytes(name) => name.len(),
            EntryName::Entry(number) => self.entry(number).map_or(0, |(name, _)| name.len()),
        };
        // A block has no strings whose lengths together exceed 32 bits.
        let size = (name_len + value.len() + ENTRY_OVERHEAD) as u32;
        if size > self.limit {
            self.evict(0);
            return self.forget_bytes();
        }
        match name {
            EntryName::Bytes(name) => self.bytes.extend_from_slice(name),
            EntryName::Entry(number) => {
                let position = self.position(number).map(|it| self.entries[it].at as usize);
                let begin = position.unwrap_or(at);
                self.bytes.extend_from_within(begin..begin + name_len);
            }
        }
        self.bytes.extend_from_slice(value);
        self.evict(self.limit - size);
        self.size += size;
        let entry = Entry { at: at as u32, name: name_len as u32, value: value.len() as u32 };
        self.entries.push_back(entry);
        self.compact();
    }

    /// Lets the oldest entries go until the rest is no larger than `most`.
    fn evict(&mut self, most: u32) {
        while self.size > most
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
    }

    /// Gives up the bytes if no entry has any.
    fn forget_bytes(&mut self) {
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Moves the entries to the front once as much as half a table is gone, so that each byte is moved a few times at most.
    fn compact(&mut self) {
        let gone = self.entries.front().map_or(0, |entry| entry.at);
        if gone > (self.limit / 2).max(256) {
            self.bytes.drain(..gone as usize);
            for entry in &mut self.entries {
                entry.at -= gone;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &DynamicTable) -> Vec<String> {
        let all = (0..table.entries.len()).map(|number| table.entry(number).unwrap().0);
        all.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_newest_has_number_0_and_the_oldest_goes() {
        let mut table = DynamicTable::new(3 * (ENTRY_OVERHEAD + 2));
        for name in ["a", "b", "c", "d"] {
            table.insert(EntryName::Bytes(name.as_bytes()), b"v");
        }
        assert_eq!(names(&table), ["d", "c", "b"]);
        assert_eq!(table.entry(0), Some((b"d".as_slice(), b"v".as_slice())));
        assert_eq!(table.entry(3), None);
        table.set_limit(ENTRY_OVERHEAD as u32 + 2);
        assert_eq!(names(&table), ["d"]);
        table.set_limit(0);
        assert_eq!(table.entry(0), None);
    }

    #[test]
    fn a_name_survives_its_entry() {
        let mut table = DynamicTable::new(ENTRY_OVERHEAD + 10);
        table.insert(EntryName::Bytes(b"name"), b"v");
        table.insert(EntryName::Entry(0), b"other");
        assert_eq!(table.entries.len(), 1);
        assert_eq!(table.entry(0), Some((b"name".as_slice(), b"other".as_slice())));
    }

    #[test]
    fn an_entry_may_be_as_large_as_the_table() {
        let mut table = DynamicTable::new(ENTRY_OVERHEAD + 2);
        for name in [b"a", b"b"] {
            table.insert(EntryName::Bytes(name), b"v");
            assert_eq!(table.entry(0), Some((name.as_slice(), b"v".as_slice())));
        }
        table.insert(EntryName::Entry(0), b"w");
        assert_eq!(table.entry(0), Some((b"b".as_slice(), b"w".as_slice())));
        assert_eq!(table.entries.len(), 1);
    }

    #[test]
    fn what_is_too_large_empties_the_table() {
        let mut table = DynamicTable::new(100);
        table.insert(EntryName::Bytes(b"a"), b"v");
        table.insert(EntryName::Bytes(b"b"), &[b'v'; 100]);
        assert_eq!((table.entries.len(), table.size), (0, 0));
    }

    #[test]
    fn memory_stays_within_two_tables() {
        let mut table = DynamicTable::new(4096);
        for at in 0..10_000u32 {
            table.insert(EntryName::Bytes(format!("name-{at}").as_bytes()), &[b'v'; 40]);
            assert!(table.bytes.len() < 8192);
        }
        assert_eq!(table.entry(0).unwrap().0, b"name-9999");
    }
}
