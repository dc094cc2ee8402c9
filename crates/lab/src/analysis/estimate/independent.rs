//! The ratio of two samples that have no round in common: those of two sessions.

use crate::analysis::curve::{AverageScale, Curve};
use crate::analysis::summary::logs;

/// The geometric mean of `above` ÷ that of `below`, with Welch's t on logarithms.
///
/// Two sessions share neither rounds nor the state of a machine, so that nothing cancels as it does within
/// a pair, and one of them may vary more than the other: each has a variance of its own (B. L. Welch, "The
/// generalization of 'Student's' problem when several different population variances are involved",
/// Biometrika 34, 1947). What a whole session has in common, as the speed of its machine on that day, is
/// part of the ratio.
///
/// `None` of fewer than six values on a side, or if a value is not positive.
pub fn ratio(above: &[f64], below: &[f64]) -> Option<Curve> {
    Curve::of_samples(&logs(above)?, &logs(below)?, AverageScale::Log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{Noise, column, covered};

    /// The data on sleep of "Student", 1908, as R's `t.test(extra ~ group, sleep)` has them.
    #[test]
    fn the_interval_is_the_textbook_s() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let curve = Curve::of_samples(&first, &second, AverageScale::Linear).unwrap();
        let interval = curve.interval(0.95);
        assert!((interval.value + 1.58).abs() < 1e-9, "{interval:?}");
        assert!((interval.low + 3.3654832).abs() < 1e-6, "{interval:?}");
        assert!((interval.high - 0.2054832).abs() < 1e-6, "{interval:?}");
        assert!((2.0 * curve.p_below(0.0) - 0.07939414).abs() < 1e-7);
    }

    #[test]
    fn the_ratio_is_that_of_geometric_means() {
        let (above, below) = ([2.0, 8.0, 4.0, 4.0, 2.0, 8.0, 4.0], [1.0, 4.0, 2.0, 2.0, 1.0, 4.0]);
        let curve = ratio(&above, &below).unwrap();
        assert!((curve.value() - 2.0).abs() < 1e-12);
        assert_eq!(curve.rounds(), 6);
        for refused in [&[1.0; 5][..], &[0.0; 6]] {
            assert!(ratio(refused, &below).is_none() && ratio(&above, refused).is_none());
        }
    }

    #[test]
    fn what_does_not_vary_has_an_interval_without_width() {
        let interval = ratio(&[4.0; 6], &[2.0; 8]).unwrap().interval(0.95);
        assert!((interval.low - 2.0).abs() < 1e-12 && (interval.high - 2.0).abs() < 1e-12);
        let varies = [1.0, 1.1, 0.9, 1.0, 1.2, 0.8];
        let interval = ratio(&varies, &[1.0; 6]).unwrap().interval(0.95);
        assert!(interval.low < 0.9 && interval.high > 1.0 && interval.high < 1.2, "{interval:?}");
    }

    #[test]
    fn it_covers_the_true_ratio_of_samples_that_vary_unequally() {
        let calm = Noise { between_rounds: 0.02, within_round: 0.02, ..Noise::SMOOTH };
        for (above, below) in [(6, 6), (6, 12), (20, 6)] {
            for noise in [Noise::SMOOTH, Noise::TYPICAL, Noise::ROUGH] {
                let share = covered(400, above as u64, |random| {
                    let of = column(&noise.rounds(random, above, &[130.0]), 0);
                    let against = column(&noise.rounds(random, below, &[100.0]), 0);
                    ratio(&of, &against).unwrap().interval(0.95).contains(1.3)
                });
                assert!(share >= 0.92, "{above} and {below} rounds, {noise:?}: {share}");
            }
            let share = covered(400, below as u64, |random| {
                let of = column(&Noise::SMOOTH.rounds(random, above, &[130.0]), 0);
                let against = column(&calm.rounds(random, below, &[100.0]), 0);
                ratio(&of, &against).unwrap().interval(0.95).contains(1.3)
            });
            assert!(share >= 0.92, "{above} and {below} rounds, one calm: {share}");
        }
    }
}
