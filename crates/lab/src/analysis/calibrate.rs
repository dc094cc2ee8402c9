//! What a machine can tell: from runs of equal subjects, how often they seem to differ, and which
//! difference a number of rounds finds.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::FEWEST_ROUNDS;
use super::curve::{AverageScale, Curve};
use super::decision::power::smallest_distance;
use super::summary::{logs, mean};

/// How often equal runs are split at random into two subjects.
pub const SPLITS: usize = 400;

/// What runs of equal subjects say of a machine and a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricCalibration {
    /// The number of rounds in each split.
    pub rounds: usize,
    /// The two-sided size of the tests: the false-alarm rate that they promise.
    pub size: f64,
    /// The share of random splits in which equal subjects seemed to differ.
    pub false_alarms: f64,
    /// The number of random splits.
    pub splits: usize,
    /// The standard deviation of the logarithm between runs of one round.
    pub within_rounds: f64,
    /// The standard deviation of the logarithm from round to round, without that within rounds.
    pub between_rounds: f64,
}

impl MetricCalibration {
    /// From runs of equal subjects, at least two in each round: `rounds[r]` has the values of round r.
    ///
    /// In each split, `of` rounds are drawn, and in each of them two runs are drawn and named at random;
    /// then the paired test of the lab judges them. Any finding is a false alarm (A/A tests: R. Kohavi
    /// et al., "Controlled experiments on the web: survey and practical guide", Data Mining and Knowledge
    /// Discovery 18, 2009). The deviations are those of a one-way analysis of variance.
    ///
    /// `None` of fewer than six rounds, of a round with fewer than two runs or a value that is not
    /// positive, and for more rounds than there are.
    pub fn of(rounds: &[Vec<f64>], of: usize, size: f64, seed: u64) -> Option<MetricCalibration> {
        let rounds: Vec<Vec<f64>> =
            rounds.iter().map(|round| logs(round)).collect::<Option<_>>()?;
        let too_few = of < FEWEST_ROUNDS || of > rounds.len();
        if too_few || rounds.iter().any(|round| round.len() < 2) {
            return None;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let alarms = (0..SPLITS).filter(|_| {
            let differences = split(&rounds, of, &mut random);
            let curve =
                Curve::of_rounds(&differences, AverageScale::Log).expect("enough finite rounds");
            !curve.interval(1.0 - size).contains(1.0)
        });
        let false_alarms = alarms.count() as f64 / SPLITS as f64;
        let (within_rounds, between_rounds) = deviations(&rounds);
        let splits = SPLITS;
        Some(MetricCalibration {
            rounds: of,
            size,
            false_alarms,
            splits,
            within_rounds,
            between_rounds,
        })
    }

    /// The smallest ratio above 1 that four of five experiments with this many rounds find at this
    /// two-sided size: 1.05 for a difference of 5 %.
    pub fn smallest_ratio(&self, rounds: usize, size: f64) -> f64 {
        let of_a_pair = self.within_rounds * 2f64.sqrt();
        (smallest_distance(rounds, size) * of_a_pair).exp()
    }
}

/// The differences of two runs of each of some rounds, all drawn at random.
fn split(rounds: &[Vec<f64>], of: usize, random: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let mut order: Vec<usize> = (0..rounds.len()).collect();
    for at in 0..of {
        let other = random.random_range(at..order.len());
        order.swap(at, other);
    }
    let difference = |&round: &usize| {
        let runs = &rounds[round];
        let first = random.random_range(0..runs.len());
        let second = (first + random.random_range(1..runs.len())) % runs.len();
        runs[first] - runs[second]
    };
    order[..of].iter().map(difference).collect()
}

/// The standard deviations within rounds and between them.
fn deviations(rounds: &[Vec<f64>]) -> (f64, f64) {
    let means: Vec<f64> = rounds.iter().map(|round| mean(round)).collect();
    let runs: f64 = rounds.iter().map(|round| round.len() as f64).sum();
    let count = rounds.len() as f64;
    let within: f64 = std::iter::zip(rounds, &means)
        .flat_map(|(round, mean)| round.iter().map(move |value| (value - mean).powi(2)))
        .sum::<f64>()
        / (runs - count);
    let total = super::summary::deviation(&means).powi(2);
    let between = (total - within / (runs / count)).max(0.0);
    (within.sqrt(), between.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{Noise, covered};

    fn equal_runs(noise: Noise, rounds: usize, runs: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        noise.rounds(&mut random, rounds, &vec![50.0; runs])
    }

    #[test]
    fn smooth_noise_raises_as_many_false_alarms_as_promised() {
        let runs = equal_runs(Noise::SMOOTH, 40, 4, 1);
        let found = MetricCalibration::of(&runs, 10, 0.05, 1).unwrap();
        assert!((0.01..=0.09).contains(&found.false_alarms), "{found:?}");
        assert!((found.within_rounds / 0.05 - 1.0).abs() < 0.15, "{found:?}");
        assert!((found.between_rounds / 0.10 - 1.0).abs() < 0.4, "{found:?}");
    }

    #[test]
    fn what_it_says_can_be_found_is_found_four_times_of_five() {
        let found =
            MetricCalibration::of(&equal_runs(Noise::SMOOTH, 60, 4, 2), 10, 0.05, 1).unwrap();
        let truth = found.smallest_ratio(10, 0.05);
        let share = covered(500, 3, |random| {
            let rounds = Noise::SMOOTH.rounds(random, 10, &[truth, 1.0]);
            let pairs = rounds.iter().map(|round| (round[0], round[1])).collect();
            super::super::estimate::paired::ratio(&[pairs]).unwrap().p_above(1.0) <= 0.025
        });
        assert!((share - 0.8).abs() < 0.1, "{truth}: {share}");
    }

    #[test]
    fn too_little_is_not_calibrated() {
        let runs = equal_runs(Noise::SMOOTH, 8, 2, 1);
        assert!(MetricCalibration::of(&runs, 5, 0.05, 1).is_none());
        assert!(MetricCalibration::of(&runs, 9, 0.05, 1).is_none());
        assert!(MetricCalibration::of(&vec![vec![1.0]; 8], 6, 0.05, 1).is_none());
        assert!(MetricCalibration::of(&vec![vec![1.0, 0.0]; 8], 6, 0.05, 1).is_none());
        assert!(MetricCalibration::of(&runs, 8, 0.05, 1).is_some());
    }
}
