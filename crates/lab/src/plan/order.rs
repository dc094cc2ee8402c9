//! Seeds, and the order of runs. Both follow from the session's seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// The seed of a round. All runs of a round use the same URLs and the same arrivals, so that samples of a round
/// differ only by the cell.
#[must_use]
pub fn round_seed(seed: u64, round: u32) -> u64 {
    // The seeds of neighbouring rounds are unrelated (SplitMix64 within `seed_from_u64`).
    Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(round) << 32)).next_u64()
}

/// The order in which the cells `0..cells` run in a round. Each round has its own random order, so that a drift of
/// the machine hits no particular cell.
#[must_use]
pub fn order(seed: u64, round: u32, cells: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    // Not the stream of random numbers that the load uses.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!round_seed(seed, round));
    order.shuffle(&mut random);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_cell_once_in_an_order_of_its_own() {
        let rounds: Vec<Vec<usize>> = (1..=4).map(|round| order(7, round, 9)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..9).collect::<Vec<_>>());
        }
        assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]), "{rounds:?}");
        assert_eq!(order(7, 3, 9), rounds[2]);
        assert_ne!(order(8, 3, 9), rounds[2]);
    }

    #[test]
    fn rounds_have_seeds_of_their_own() {
        let mut seeds: Vec<u64> = (1..=100).map(|round| round_seed(1, round)).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 100);
    }
}
