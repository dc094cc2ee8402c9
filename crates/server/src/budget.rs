//! How the memory that a server may use is shared out among what takes it by default.
//!
//! Every default size is a share of one amount, and none is larger than it is of use. So the parts of a server in a small
//! container fit into it together. A third of the amount is left for the program, for connections and for the kernel, which
//! counts sockets and the page cache for the container too.

use std::num::NonZeroUsize;

/// What takes memory in proportion to what clients ask for, and is given a share of the [`MemoryBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// Files that a worker has served, and keeps.
    Cache,
    /// The bytes of files that are read for all connections of a process.
    Reads,
    /// Lists of directories, for all workers of a process.
    Listings,
    /// Buffers that a worker lends the kernel to receive into.
    ReceiveBuffers,
    /// Buffers that a worker keeps for its next connections.
    ConnectionBuffers,
    /// Pipes that a worker sends large files by.
    Pipes,
    /// The names of files that a process is going to open.
    OpenQueue,
    /// The users whose passwords a process has verified.
    RememberedUsers,
}

/// Whom a share is divided among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Worker,
    Process,
}

/// The share of one use.
struct Share {
    of: MemoryUse,
    /// The use, for people.
    name: &'static str,
    /// How many of [`PARTS`] parts of the whole budget all holders have together.
    parts: u64,
    each: Holder,
    /// What one holder has at most, in bytes.
    most: u64,
}

/// How many parts a budget has.
const PARTS: u64 = 64;

/// All shares: two thirds of the budget.
const SHARES: [Share; 8] = [
    share(MemoryUse::Cache, "cache", 16, Holder::Worker, 64 << 20),
    share(MemoryUse::Reads, "file reads", 8, Holder::Process, 256 << 20),
    share(MemoryUse::Listings, "listings", 4, Holder::Process, 64 << 20),
    share(MemoryUse::ReceiveBuffers, "receive buffers", 4, Holder::Worker, 8 << 20),
    share(MemoryUse::ConnectionBuffers, "spare buffers", 4, Holder::Worker, 24 << 20),
    share(MemoryUse::Pipes, "pipes", 2, Holder::Worker, 4 << 20),
    share(MemoryUse::OpenQueue, "files to open", 2, Holder::Process, 64 << 20),
    share(MemoryUse::RememberedUsers, "remembered users", 1, Holder::Process, 1 << 20),
];

const fn share(of: MemoryUse, name: &'static str, parts: u64, each: Holder, most: u64) -> Share {
    Share { of, name, parts, each, most }
}

/// The memory that a server may use, and who has to share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// The memory of the whole server in bytes; `None`: no limit is known.
    all: Option<u64>,
    workers: u64,
    processes: u64,
}

/// The bytes that an output buffer which a worker keeps may have. Input buffers have those of the longest head.
const OUTPUT_BUFFER: u64 = 64 << 10;

/// The fewest and the most buffers of each kind that a worker keeps.
const BUFFERS: (u64, u64) = (16, 256);

impl MemoryBudget {
    /// `all` bytes for a server with so many workers, in so many processes.
    #[must_use]
    pub fn new(all: Option<u64>, workers: NonZeroUsize, processes: NonZeroUsize) -> MemoryBudget {
        MemoryBudget { all, workers: workers.get() as u64, processes: processes.get() as u64 }
    }

    /// The memory of the whole server, in bytes; `None`: no limit is known.
    #[must_use]
    pub fn all(&self) -> Option<u64> {
        self.all
    }

    /// What each worker, or each process, may use for something, in bytes.
    #[must_use]
    pub fn of(&self, of: MemoryUse) -> u64 {
        SHARES.iter().find(|share| share.of == of).map_or(0, |share| self.each(share))
    }

    fn each(&self, share: &Share) -> u64 {
        let all = self.all.map_or(u64::MAX, |all| all / PARTS * share.parts);
        (all / self.holders(share)).min(share.most)
    }

    fn holders(&self, share: &Share) -> u64 {
        match share.each {
            Holder::Worker => self.workers,
            Holder::Process => self.processes,
        }
    }

    /// Each use with its name, what each of its holders may have in bytes, and how many holders there are.
    pub fn shares(&self) -> impl Iterator<Item = (MemoryUse, &'static str, u64, u64)> {
        SHARES.iter().map(|share| (share.of, share.name, self.each(share), self.holders(share)))
    }

    /// How many free buffers of each kind a worker keeps, if input buffers have `input` bytes.
    #[must_use]
    pub fn buffers_kept(&self, input: usize) -> usize {
        let fit = self.of(MemoryUse::ConnectionBuffers) / (OUTPUT_BUFFER + input as u64);
        fit.clamp(BUFFERS.0, BUFFERS.1) as usize
    }
}

impl Default for MemoryBudget {
    /// No limit, and one worker.
    fn default() -> MemoryBudget {
        MemoryBudget::new(None, NonZeroUsize::MIN, NonZeroUsize::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(all: u64, workers: usize, processes: usize) -> MemoryBudget {
        let some = |count| NonZeroUsize::new(count).unwrap();
        MemoryBudget::new(Some(all), some(workers), some(processes))
    }

    #[test]
    fn every_use_has_a_share_and_all_fit_together() {
        for (all, workers, processes) in
            [(0, 1, 1), (1 << 20, 3, 3), (100 << 20, 2, 1), (8 << 30, 64, 64), (u64::MAX, 1, 1)]
        {
            let budget = budget(all, workers, processes);
            let sum: u64 = budget.shares().map(|(_, _, each, holders)| each * holders).sum();
            assert!(sum <= all / 3 * 2 + 2, "{all}: {sum}");
            for (of, _, each, _) in budget.shares() {
                assert_eq!(budget.of(of), each, "{of:?}");
            }
        }
    }

    #[test]
    fn a_small_container_has_small_parts_and_a_large_machine_the_largest_that_are_of_use() {
        let small = budget(100 << 20, 2, 1);
        assert_eq!(small.of(MemoryUse::Cache), 25 << 19);
        assert_eq!(small.of(MemoryUse::Reads), 25 << 19);
        let processes = budget(100 << 20, 2, 2);
        assert_eq!(processes.of(MemoryUse::Cache), 25 << 19);
        assert_eq!(processes.of(MemoryUse::Reads), 25 << 18);
        for large in [budget(8 << 30, 2, 1), MemoryBudget::default()] {
            assert_eq!(large.of(MemoryUse::Cache), 64 << 20);
            assert_eq!(large.of(MemoryUse::Reads), 256 << 20);
            assert_eq!(large.of(MemoryUse::ReceiveBuffers), 8 << 20);
        }
    }

    #[test]
    fn buffers_are_kept_as_their_share_allows() {
        assert_eq!(MemoryBudget::default().buffers_kept(32 << 10), 256);
        assert_eq!(budget(100 << 20, 2, 1).buffers_kept(32 << 10), 33);
        assert_eq!(budget(1 << 20, 2, 1).buffers_kept(32 << 10), 16);
        assert_eq!(MemoryBudget::default().buffers_kept(1 << 20), 22);
    }
}
