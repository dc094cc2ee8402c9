//! In which order URLs are asked for.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rand::distr::Distribution;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::weighted::WeightedAliasIndex;

use crate::plan::random::{self, Purpose};
use crate::plan::shape::LoadShare;

/// In which order the URLs of a run are asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// One after the other, again from the first after the last.
    Sequential,
    /// At random: every URL is equally likely, independently of the ones before.
    Random,
    /// At random: the probability of a URL is proportional to its weight.
    Weighted(Vec<f64>),
    /// The URL at place `k`, counted from 1, with a probability in proportion to `1 / k^exponent`:
    /// a few are popular and many are rare, as in the logs of web servers (Breslau and others,
    /// *Web Caching and Zipf-like Distributions*, INFOCOM 1999).
    Zipf {
        /// How unequal the probabilities are; 0 makes all equal.
        exponent: f64,
    },
}

impl Order {
    /// The weight of the URL at `place`, counted from 0.
    pub(crate) fn weight(&self, place: usize) -> f64 {
        match self {
            Order::Sequential | Order::Random => 1.0,
            Order::Weighted(weights) => weights[place],
            Order::Zipf { exponent } => (place as f64 + 1.0).powf(-exponent),
        }
    }
}

/// Picks of several things, each as likely as its weight says, at a cost that does not depend on how
/// many there are (the alias method: Walker 1977, Vose 1991).
#[derive(Clone, Debug)]
pub(crate) struct AliasTable(Arc<WeightedAliasIndex<f64>>);

impl AliasTable {
    /// `None` for no weights, or for weights that are not all finite, at least 0 and of a sum above
    /// 0.
    pub(crate) fn new(weights: Vec<f64>) -> Option<AliasTable> {
        Some(AliasTable(Arc::new(WeightedAliasIndex::new(weights).ok()?)))
    }
}

/// A worker's picks from one list.
pub(crate) enum Chooser {
    InTurn { next: Cell<usize>, step: usize, count: usize },
    Drawn { table: AliasTable, random: RefCell<Xoshiro256PlusPlus> },
}

impl Chooser {
    /// In turn: together the workers go through the list; each takes the requests of its share.
    pub(crate) fn in_turn(count: usize, share: LoadShare) -> Chooser {
        let (first, step) = (share.worker as usize, share.workers as usize);
        Chooser::InTurn { next: Cell::new(first % count), step: step % count, count }
    }

    /// At random, with the probabilities of `table`. A worker has one chooser per `purpose`.
    pub(crate) fn drawn(
        table: &AliasTable,
        seed: u64,
        share: LoadShare,
        purpose: Purpose,
    ) -> Chooser {
        let random = RefCell::new(random::stream(seed, share.worker, purpose));
        Chooser::Drawn { table: table.clone(), random }
    }

    pub(crate) fn pick(&self) -> usize {
        match self {
            Chooser::InTurn { next, step, count } => {
                let picked = next.get();
                next.set((picked + step) % count);
                picked
            }
            Chooser::Drawn { table, random } => table.0.sample(&mut *random.borrow_mut()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: LoadShare = LoadShare { worker: 0, workers: 1 };

    /// Pearson's statistic of `picks` picks against `weights`, in standard deviations above its
    /// mean. Chi-square with `k` degrees of freedom has the mean `k` and the variance `2 k`.
    fn deviation(drawn: &[f64], weights: &[f64], picks: u32) -> f64 {
        let table = AliasTable::new(drawn.to_vec()).unwrap();
        let chooser = Chooser::drawn(&table, 1, ALONE, Purpose::Servers);
        let mut counts = vec![0.0; weights.len()];
        for _ in 0..picks {
            counts[chooser.pick()] += 1.0;
        }
        let sum: f64 = weights.iter().sum();
        let expected = weights.iter().map(|weight| weight / sum * f64::from(picks));
        let square: f64 = counts
            .iter()
            .zip(expected)
            .map(|(count, e): (&f64, f64)| (count - e).powi(2) / e)
            .sum();
        let freedom = weights.len() as f64 - 1.0;
        (square - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn weights_pass_a_chi_square_test() {
        for weights in [&[1.0, 1.0][..], &[5.0, 3.0, 2.0], &[0.5, 100.0, 7.0, 1.0, 1.0]] {
            let found = deviation(weights, weights, 100_000);
            assert!(found.abs() < 4.0, "{weights:?}: {found}");
        }
        // The test has the power to see weights that are a little off.
        assert!(deviation(&[5.0, 3.0, 2.2], &[5.0, 3.0, 2.0], 100_000) > 4.0);
    }

    #[test]
    fn zipf_passes_a_chi_square_test() {
        for exponent in [0.0, 0.8, 1.0, 1.3] {
            let order = Order::Zipf { exponent };
            let weights: Vec<f64> = (0..200).map(|place| order.weight(place)).collect();
            assert!((weights[1] * 2f64.powf(exponent) - 1.0).abs() < 1e-12);
            let found = deviation(&weights, &weights, 400_000);
            assert!(found.abs() < 4.0, "{exponent}: {found}");
        }
    }

    #[test]
    fn a_hundred_thousand_weights_are_no_trouble() {
        let order = Order::Zipf { exponent: 1.0 };
        let table =
            AliasTable::new((0..100_000).map(|place| order.weight(place)).collect()).unwrap();
        let chooser = Chooser::drawn(&table, 3, ALONE, Purpose::Servers);
        let picks: Vec<usize> = (0..1_000_000).map(|_| chooser.pick()).collect();
        // The first has 1 / H(100,000) = 1 / 12.09 of all; five standard deviations are 0.0014.
        let first = picks.iter().filter(|&&pick| pick == 0).count() as f64 / 1e6;
        assert!((first - 0.08271).abs() < 0.0014, "{first}");
        assert!(picks.iter().any(|&pick| pick > 90_000));
    }

    #[test]
    fn a_seed_gives_the_same_picks_and_another_worker_others() {
        let table = AliasTable::new(vec![1.0; 100]).unwrap();
        let picks = |seed, worker, server| -> Vec<usize> {
            let chooser = Chooser::drawn(
                &table,
                seed,
                LoadShare { worker, workers: 2 },
                Purpose::Requests(server),
            );
            (0..20).map(|_| chooser.pick()).collect()
        };
        assert_eq!(picks(1, 0, 0), picks(1, 0, 0));
        let others = [picks(1, 1, 0), picks(2, 0, 0), picks(1, 0, 1)];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, picks(1, 0, 0), "{at}");
        }
    }

    #[test]
    fn workers_take_turns() {
        let choosers = [0, 1].map(|worker| Chooser::in_turn(3, LoadShare { worker, workers: 2 }));
        let picks: Vec<usize> =
            (0..4).flat_map(|_| choosers.iter().map(Chooser::pick).collect::<Vec<_>>()).collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn useless_weights_make_no_table() {
        for weights in
            [vec![], vec![0.0, 0.0], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY]]
        {
            assert!(AliasTable::new(weights.clone()).is_none(), "{weights:?}");
        }
    }
}
