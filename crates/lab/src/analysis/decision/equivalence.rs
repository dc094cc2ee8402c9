//! Showing that there is no difference worth the name.

use crate::analysis::curve::Curve;

/// The p-value of "the effect lies outside `low..=high`": small where it lies inside.
///
/// Two one-sided tests (D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the
/// power approach for assessing the equivalence of average bioavailability", J. Pharmacokinetics and
/// Biopharmaceutics 15, 1987): the greater of both p-values. That a difference was not found shows
/// nothing; that its whole interval lies within the margins does. Either end may be infinite, so that
/// a region open on one side is tested by the same function.
pub fn p_within(curve: &Curve, low: f64, high: f64) -> f64 {
    curve.p_above(low).max(curve.p_below(high))
}

/// The p-value of "the effect lies within `low..=high`": small where it lies outside, on one side.
/// Both sides are looked at, each by its own test; a curve cannot be beyond both.
pub fn p_outside(curve: &Curve, low: f64, high: f64) -> f64 {
    // The ends belong to the region, so a number without noise on an end is not outside.
    if curve.rounds() == 0 && (low..=high).contains(&curve.value()) {
        return 1.0;
    }
    let below = if low == f64::NEG_INFINITY { 1.0 } else { curve.p_below(low) };
    let above = if high == f64::INFINITY { 1.0 } else { curve.p_above(high) };
    below.min(above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::curve::AverageScale;
    use crate::analysis::estimate::paired;
    use crate::analysis::noise::{Noise, covered};

    fn ratio_of(
        noise: Noise,
        n: usize,
        truth: f64,
        random: &mut rand::rngs::Xoshiro256PlusPlus,
    ) -> Curve {
        let rounds = noise.rounds(random, n, &[truth, 1.0]);
        paired::ratio(&[rounds.iter().map(|round| (round[0], round[1])).collect()]).unwrap()
    }

    #[test]
    fn little_noise_shows_equality_and_much_noise_does_not() {
        let quiet: Vec<f64> = vec![0.01, -0.01, 0.0, 0.02, -0.02, 0.0];
        let loud: Vec<f64> = quiet.iter().map(|value| value * 30.0).collect();
        let p = |rounds: &[f64]| {
            p_within(&Curve::of_rounds(rounds, AverageScale::Log).unwrap(), 0.9, 1.1)
        };
        assert!(p(&quiet) < 0.001 && p(&loud) > 0.1);
    }

    #[test]
    fn a_difference_on_the_margin_passes_for_equal_rarely() {
        for n in [6, 10, 20] {
            let share = covered(400, n as u64, |random| {
                p_within(&ratio_of(Noise::SMOOTH, n, 1.25, random), 1.0 / 1.25, 1.25) <= 0.025
            });
            assert!(share <= 0.05, "{n}: {share}");
        }
    }

    #[test]
    fn an_effect_is_inside_or_outside_or_neither_is_shown() {
        let curve =
            Curve::of_rounds(&[0.5, 0.52, 0.48, 0.5, 0.51, 0.49], AverageScale::Linear).unwrap();
        assert!(p_outside(&curve, 0.6, f64::INFINITY) < 1e-4);
        assert!(p_outside(&curve, 0.4, 0.6) > 0.9);
        assert_eq!(p_outside(&Curve::exact(0.4, AverageScale::Linear), 0.4, 0.6), 1.0);
        assert_eq!(p_outside(&Curve::exact(0.39, AverageScale::Linear), 0.4, 0.6), 0.0);
    }
}
