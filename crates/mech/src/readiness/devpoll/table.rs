//! The hash table of the /dev/poll model. As in the patch, each bucket has a linked list of entries, and a scan
//! visits all entries of all buckets.

use std::hint::black_box;
use std::os::fd::RawFd;

/// The number of buckets in the patch.
const BUCKETS: usize = 8192;

/// The descriptors of a device. The table exists only for the cost of [`HashTable::walk`].
#[derive(Debug)]
pub(super) struct HashTable {
    buckets: Vec<Option<Box<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    fd: RawFd,
    next: Option<Box<Entry>>,
}

impl HashTable {
    pub(super) fn new() -> HashTable {
        HashTable { buckets: (0..BUCKETS).map(|_| None).collect() }
    }

    /// Adds a descriptor that is not in the table.
    pub(super) fn insert(&mut self, fd: RawFd) {
        let bucket = &mut self.buckets[bucket(fd)];
        *bucket = Some(Box::new(Entry { fd, next: bucket.take() }));
    }

    /// Removes a descriptor, if it is in the table.
    pub(super) fn remove(&mut self, fd: RawFd) {
        let mut link = &mut self.buckets[bucket(fd)];
        while link.as_ref().is_some_and(|entry| entry.fd != fd) {
            link = &mut link.as_mut().expect("the loop found an entry").next;
        }
        if let Some(entry) = link.take() {
            *link = entry.next;
        }
    }

    /// Visits every entry of every bucket. Returns the number of entries.
    pub(super) fn walk(&self) -> usize {
        let mut count = 0;
        for mut link in &self.buckets {
            while let Some(entry) = link {
                black_box(entry.fd);
                count += 1;
                link = &entry.next;
            }
        }
        count
    }
}

fn bucket(fd: RawFd) -> usize {
    usize::try_from(fd).unwrap_or(0) % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_what_was_inserted_and_not_removed() {
        let mut table = HashTable::new();
        let in_one_bucket = [5, 5 + BUCKETS as RawFd, 5 + 2 * BUCKETS as RawFd];
        for fd in in_one_bucket.into_iter().chain([6, 7]) {
            table.insert(fd);
        }
        assert_eq!(table.walk(), 5);
        for (fd, left) in [(in_one_bucket[1], 4), (in_one_bucket[1], 4), (6, 3), (5, 2)] {
            table.remove(fd);
            assert_eq!(table.walk(), left);
        }
    }
}
