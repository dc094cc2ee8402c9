//! Simulated measurements with a known truth and the noise of a machine that is shared: for tests of
//! coverage and of false alarms.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

/// The noise of measured values, which are log-normal around the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// The standard deviation of the logarithm that all runs of a round share.
    pub between_rounds: f64,
    /// The standard deviation of the logarithm of a single run.
    pub within_round: f64,
    /// The share of runs that something else disturbs.
    pub disturbed: f64,
    /// The factor of a disturbed run's value.
    pub disturbance: f64,
}

impl Noise {
    /// CPU per request on a virtual machine with two processors: 10 % from round to round, 4 % from run
    /// to run, and one run in twenty disturbed by a half.
    pub const TYPICAL: Noise =
        Noise { between_rounds: 0.10, within_round: 0.04, disturbed: 0.05, disturbance: 1.5 };

    /// The worse of the machines seen: 15 % from round to round, 8 % from run to run, and one run in ten
    /// disturbed by a factor of two.
    pub const ROUGH: Noise =
        Noise { between_rounds: 0.15, within_round: 0.08, disturbed: 0.10, disturbance: 2.0 };

    /// Log-normal without disturbances: what the methods assume.
    pub const SMOOTH: Noise =
        Noise { between_rounds: 0.10, within_round: 0.05, disturbed: 0.0, disturbance: 1.0 };

    /// One value per round for each of the true values, round by round.
    pub fn rounds(
        &self,
        random: &mut Xoshiro256PlusPlus,
        rounds: usize,
        truths: &[f64],
    ) -> Vec<Vec<f64>> {
        (0..rounds).map(|_| self.round(random, truths)).collect()
    }

    /// One value for each of the true values, all of one round.
    pub fn round(&self, random: &mut Xoshiro256PlusPlus, truths: &[f64]) -> Vec<f64> {
        let shared = self.between_rounds * normal(random);
        let one = |truth: &f64| {
            let own = self.within_round * normal(random);
            let disturbed = random.random_range(0.0..1.0) < self.disturbed;
            let factor = if disturbed { self.disturbance } else { 1.0 };
            truth * (shared + own).exp() * factor
        };
        truths.iter().map(one).collect()
    }
}

/// A number from the standard normal distribution.
pub(crate) fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    StandardNormal.sample(random)
}

/// The share of simulated experiments that `experiment` says yes of, each with random numbers of its own.
pub fn covered(
    experiments: u64,
    seed: u64,
    mut experiment: impl FnMut(&mut Xoshiro256PlusPlus) -> bool,
) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let yes = (0..experiments).filter(|_| experiment(&mut random)).count();
    yes as f64 / experiments as f64
}

/// One column of values that are given round by round.
pub fn column(rounds: &[Vec<f64>], at: usize) -> Vec<f64> {
    rounds.iter().map(|round| round[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::{deviation, logs, mean};

    #[test]
    fn the_noise_is_as_large_as_it_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let rounds = Noise::SMOOTH.rounds(&mut random, 4000, &[100.0, 100.0]);
        let (a, b) = (column(&rounds, 0), column(&rounds, 1));
        let (a, b) = (logs(&a).unwrap(), logs(&b).unwrap());
        let ratio: Vec<f64> = std::iter::zip(&a, &b).map(|(a, b)| a - b).collect();
        assert!((mean(&a).exp() / 100.0 - 1.0).abs() < 0.01);
        assert!((deviation(&a) / 0.1f64.hypot(0.05) - 1.0).abs() < 0.05);
        assert!((deviation(&ratio) / (0.05 * 2f64.sqrt()) - 1.0).abs() < 0.05);
    }
}
