//! The ratio of two subjects, paired by round.

use crate::analysis::curve::{AverageScale, Curve};
use crate::analysis::summary::mean;

/// The mean over cells of each round's logarithm of a ratio. `cells` holds, for each cell, one pair
/// (above the line, below the line) per round; every cell has the same rounds.
///
/// What all runs of a round have in common cancels within a pair. A round's disturbances reach several
/// of its cells, so cells are averaged before anything is counted: the rounds are the units, not the
/// rounds times the cells. `None` if there is no cell, if cells differ in their number of rounds, or if
/// a value is not positive.
pub fn log_ratios(cells: &[Vec<(f64, f64)>]) -> Option<Vec<f64>> {
    let rounds = cells.first()?.len();
    if cells.iter().any(|cell| cell.len() != rounds) {
        return None;
    }
    let of_round = |round: usize| {
        let logs: Vec<f64> =
            cells.iter().map(|cell| cell[round].0.ln() - cell[round].1.ln()).collect();
        Some(mean(&logs)).filter(|log| log.is_finite())
    };
    (0..rounds).map(of_round).collect()
}

/// The geometric mean over rounds and cells of the ratio of pairs, with Student's t over rounds.
///
/// The t interval of paired differences (G. E. P. Box, J. S. Hunter, W. G. Hunter, *Statistics for
/// Experimenters*, 2nd ed. 2005, ch. 3), taken of logarithms because run times and rates vary by
/// factors. `None` where [`log_ratios`] has none, and of fewer than six rounds.
pub fn ratio(cells: &[Vec<(f64, f64)>]) -> Option<Curve> {
    Curve::of_rounds(&log_ratios(cells)?, AverageScale::Log)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;
    use crate::analysis::noise::{Noise, covered};

    /// Pairs of values with this true ratio, in cells whose values differ tenfold.
    fn cells(
        random: &mut Xoshiro256PlusPlus,
        noise: Noise,
        n: usize,
        k: usize,
        ratio: f64,
    ) -> Vec<Vec<(f64, f64)>> {
        let truths: Vec<f64> = (0..k)
            .flat_map(|cell| [ratio * 10f64.powi(cell as i32), 10f64.powi(cell as i32)])
            .collect();
        let rounds = noise.rounds(random, n, &truths);
        (0..k)
            .map(|c| rounds.iter().map(|round| (round[2 * c], round[2 * c + 1])).collect())
            .collect()
    }

    #[test]
    fn the_ratio_is_the_geometric_mean_of_the_pairs() {
        let curve = ratio(&[vec![(2.0, 1.0); 6], vec![(800.0, 100.0); 6]]).unwrap();
        assert!((curve.value() - 4.0).abs() < 1e-12);
        assert!(ratio(&[vec![(0.0, 1.0); 6]]).is_none() && ratio(&[]).is_none());
        assert!(ratio(&[vec![(1.0, 1.0); 6], vec![(1.0, 1.0); 7]]).is_none());
    }

    /// A machine whose speed halves at some time is the same for both sides of a pair.
    #[test]
    fn what_a_round_has_in_common_does_not_widen_the_interval() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let noise = Noise { between_rounds: 0.5, within_round: 0.01, ..Noise::SMOOTH };
        let interval = ratio(&cells(&mut random, noise, 10, 1, 1.1)).unwrap().interval(0.95);
        assert!(interval.low > 1.08 && interval.high < 1.12, "{interval:?}");
    }

    #[test]
    fn it_covers_the_true_ratio_as_often_as_it_says() {
        for (n, k) in [(6, 1), (7, 3), (10, 1), (20, 3)] {
            for noise in [Noise::SMOOTH, Noise::TYPICAL, Noise::ROUGH] {
                let share = covered(400, n as u64, |random| {
                    let cells = cells(random, noise, n, k, 1.3);
                    ratio(&cells).unwrap().interval(0.95).contains(1.3)
                });
                assert!(share >= 0.92, "{n} rounds, {k} cells, {noise:?}: {share}");
            }
        }
    }
}
