//! Bounds of several effects that hold together: every level of a factor against its lowest.

use std::sync::Arc;

use crate::analysis::curve::{AverageScale, Curve};
use crate::analysis::max_t::MaxT;

/// How many experiments without an effect are simulated for the distribution of the greatest |t|.
pub const DRAWS: usize = 2000;

/// One curve per contrast, whose intervals at a level cover all effects together at that level.
///
/// `contrasts` holds, for each level of the factor but the lowest, one value per round: the difference
/// from the lowest level in the same round, on `scale`. Each interval is the contrast's mean ± q of its
/// own standard errors, q the quantile of the greatest of all |t| (T. Hothorn, F. Bretz, P. Westfall,
/// "Simultaneous inference in general parametric models", Biometrical Journal 50(3), 2008).
///
/// The distribution of the greatest |t| is found by a parametric bootstrap: `draws` simulated
/// experiments with as many rounds, no effect, and normal noise of the correlation that the contrasts
/// show here, from a fixed seed. Each contrast keeps a standard error of its own, as levels under
/// overload are noisier; a multivariate t with one common denominator would be too narrow for
/// them. The correlations of few rounds are drawn towards 0, which is the safe side. Far out,
/// where few draws lie, the bound of Bonferroni takes over.
///
/// `None` without contrasts, of fewer than six rounds, or if a value is not finite.
pub fn simultaneous(
    contrasts: &[Vec<f64>],
    scale: AverageScale,
    draws: usize,
) -> Option<Vec<Curve>> {
    let curves: Vec<Curve> = contrasts
        .iter()
        .map(|contrast| Curve::of_rounds(contrast, scale))
        .collect::<Option<_>>()?;
    let rounds = contrasts.first()?.len();
    if contrasts.iter().any(|contrast| contrast.len() != rounds) {
        return None;
    }
    let joint = Arc::new(MaxT::simulate(contrasts, draws));
    Some(curves.into_iter().map(|curve| curve.jointly(Arc::clone(&joint))).collect())
}

/// The contrasts of every level with the first: one row per level in ascending order, each with a
/// value per round on the scale of the comparison.
pub fn against_lowest(levels: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let Some((lowest, others)) = levels.split_first() else { return Vec::new() };
    let contrast =
        |level: &Vec<f64>| std::iter::zip(level, lowest).map(|(level, low)| level - low).collect();
    others.iter().map(contrast).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{Noise, covered};
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    fn levels(rounds: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let level = |at: usize| rounds.iter().map(|round| round[at].ln()).collect();
        (0..rounds[0].len()).map(level).collect()
    }

    #[test]
    fn one_contrast_has_the_plain_t_interval() {
        let contrast = vec![0.1, 0.2, 0.15, 0.12, 0.18, 0.11];
        let alone = Curve::of_rounds(&contrast, AverageScale::Log).unwrap();
        let joint = &simultaneous(&[contrast], AverageScale::Log, DRAWS).unwrap()[0];
        let (alone, joint) = (alone.interval(0.95), joint.interval(0.95));
        assert!((alone.low - joint.low).abs() < 1e-9 && (alone.high - joint.high).abs() < 1e-9);
    }

    #[test]
    fn several_are_wider_than_one_and_narrower_than_bonferroni() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let rounds = Noise::SMOOTH.rounds(&mut random, 10, &[5.0; 6]);
        let contrasts = against_lowest(&levels(&rounds));
        let joint = &simultaneous(&contrasts, AverageScale::Log, DRAWS).unwrap()[0];
        let alone = Curve::of_rounds(&contrasts[0], AverageScale::Log).unwrap();
        let (joint, plain) = (joint.interval(0.95), alone.interval(0.95));
        let bonferroni = alone.interval(1.0 - 0.05 / 5.0);
        assert!(plain.high < joint.high && joint.high < bonferroni.high);
        // The p-value at an end of the interval is the interval's.
        let p = simultaneous(&contrasts, AverageScale::Log, DRAWS).unwrap()[0].p_above(joint.low);
        assert!((p - 0.025).abs() < 0.002, "{p}");
    }

    #[test]
    fn all_intervals_together_cover_all_levels_as_often_as_they_say() {
        for n in [6, 10] {
            let truths = [5.0, 5.5, 7.0, 9.0, 12.0];
            let share = covered(120, n as u64, |random| {
                let rounds = Noise::TYPICAL.rounds(random, n, &truths);
                let contrasts = against_lowest(&levels(&rounds));
                let curves = simultaneous(&contrasts, AverageScale::Log, 500).unwrap();
                std::iter::zip(&curves, &truths[1..])
                    .all(|(curve, truth)| curve.interval(0.95).contains(truth / truths[0]))
            });
            assert!(share >= 0.90, "{n}: {share}");
        }
    }

    #[test]
    fn too_few_rounds_and_unequal_ones_have_no_bounds() {
        assert!(simultaneous(&[vec![0.0; 5]], AverageScale::Log, DRAWS).is_none());
        assert!(simultaneous(&[vec![0.0; 6], vec![0.0; 7]], AverageScale::Log, DRAWS).is_none());
        assert!(simultaneous(&[], AverageScale::Log, DRAWS).is_none());
        let still =
            simultaneous(&[vec![0.5; 6], vec![0.0; 6]], AverageScale::Linear, DRAWS).unwrap();
        assert_eq!(still[0].interval(0.95).high, 0.5);
    }
}
