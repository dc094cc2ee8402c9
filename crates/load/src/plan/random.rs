//! The random numbers of a run. Every worker has a stream of its own for every purpose. The run's seed
//! reproduces all of them.
//!
//! Two purposes need different streams. With one stream for both, exponential rests and the gaps
//! between Poisson arrivals would be equal numbers.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use twox_hash::XxHash64;

/// What random numbers are drawn for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The gaps between Poisson arrivals.
    Arrivals,
    /// The lengths of exponential rests.
    Rests,
    /// The order in which connections are used first.
    FirstUses,
    /// The server of each connection.
    Servers,
    /// The requests to the server of this number.
    Requests(u32),
}

impl Purpose {
    fn number(self) -> (u32, u32) {
        match self {
            Purpose::Arrivals => (0, 0),
            Purpose::Rests => (1, 0),
            Purpose::FirstUses => (2, 0),
            Purpose::Servers => (3, 0),
            Purpose::Requests(server) => (4, server),
        }
    }
}

/// A worker's stream for `purpose` in a run with `seed`. Streams that differ in seed, worker
/// or purpose begin at hashes of different bytes, and so are independent.
pub(crate) fn stream(seed: u64, worker: u32, purpose: Purpose) -> Xoshiro256PlusPlus {
    let (kind, number) = purpose.number();
    let mut name = [0; 12];
    for (part, value) in name.chunks_exact_mut(4).zip([kind, number, worker]) {
        part.copy_from_slice(&value.to_le_bytes());
    }
    Xoshiro256PlusPlus::seed_from_u64(XxHash64::oneshot(seed, &name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::RngExt;

    use super::*;

    #[test]
    fn streams_of_another_seed_worker_or_purpose_are_others() {
        let purposes = [
            Purpose::Arrivals,
            Purpose::Rests,
            Purpose::FirstUses,
            Purpose::Servers,
            Purpose::Requests(0),
            Purpose::Requests(1),
        ];
        let draw = |seed, worker, purpose| stream(seed, worker, purpose).random::<u64>();
        let mut seen = HashSet::new();
        for purpose in purposes {
            for (seed, worker) in [(0, 0), (1, 0), (0, 1), (1, 1), (u64::MAX, 0)] {
                let drawn = draw(seed, worker, purpose);
                assert!(seen.insert(drawn), "{seed} {worker} {purpose:?}");
                assert_eq!(drawn, draw(seed, worker, purpose));
            }
        }
    }
}
