//! The best of several subjects, without the advantage of choosing it by the values that are compared.

use crate::analysis::curve::{Curve, Extreme};

/// The effect of the best of several subjects: the greatest or the least of their effects.
///
/// `effects` holds the effect of each pair of a subject above the line and one below it, which are judged
/// together ([`simultaneous`](super::simultaneous::simultaneous)): `effects[i][j]` is that of the i-th
/// above and the j-th below.
///
/// The greatest value of each round would be that of the luckiest subject, about one standard
/// deviation above the truth where four are equal; and whoever is the best over all rounds was
/// chosen by the noise that is then judged. Here the best is never chosen. "More than the best of
/// b, c and d" is shown by showing it of each of them at the same level (intersection–union test:
/// R. L. Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982);
/// the other side, "less than the best", by bounds that hold for all of them together
/// (max-t). `None` without effects.
pub fn best(effects: Vec<Vec<Curve>>, above: Extreme, below: Extreme) -> Option<Curve> {
    let rows = effects.into_iter().map(|row| Curve::extreme(row, below));
    Curve::extreme(rows.collect::<Option<_>>()?, above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::curve::AverageScale;
    use crate::analysis::estimate::simultaneous::{DRAWS, simultaneous};
    use crate::analysis::noise::{Noise, column, covered};
    use crate::analysis::summary::logs;

    /// The effects of the first subject against each of the others.
    fn effects(rounds: &[Vec<f64>]) -> Vec<Vec<Curve>> {
        let first = logs(&column(rounds, 0)).unwrap();
        let over = |other: usize| {
            let other = logs(&column(rounds, other)).unwrap();
            std::iter::zip(&first, other).map(|(first, other)| first - other).collect()
        };
        let contrasts: Vec<Vec<f64>> = (1..rounds[0].len()).map(over).collect();
        vec![simultaneous(&contrasts, AverageScale::Log, DRAWS).unwrap()]
    }

    #[test]
    fn a_subject_is_compared_with_the_one_that_is_hardest_to_beat() {
        let rounds: Vec<Vec<f64>> =
            (0..8).map(|round| vec![2.0 + 0.01 * f64::from(round), 1.0, 1.5, 0.5]).collect();
        let curve = |below| best(effects(&rounds), Extreme::Greatest, below).unwrap();
        // The best of rates is the greatest, so that the ratio to it is the least; of times, the other way.
        let higher = curve(Extreme::Least);
        assert!((higher.value() - 2.03 / 1.5).abs() < 0.01);
        assert!((curve(Extreme::Greatest).value() - 2.03 / 0.5).abs() < 0.02);
        assert!(higher.p_above(1.3) < 1e-4 && higher.p_above(1.4) > 0.9);
        assert!(higher.p_below(1.4) < 1e-3 && higher.interval(0.95).contains(higher.value()));
        assert!(best(Vec::new(), Extreme::Greatest, Extreme::Least).is_none());
    }

    #[test]
    fn the_interval_covers_the_best_of_equal_and_of_unequal_subjects() {
        for truths in [[10.0; 5], [12.0, 10.0, 10.0, 8.0, 9.9]] {
            for n in [6, 10] {
                let share = covered(25, n as u64, |random| {
                    let rounds = Noise::SMOOTH.rounds(random, n, &truths);
                    let curve = best(effects(&rounds), Extreme::Greatest, Extreme::Least);
                    curve.unwrap().interval(0.95).contains(truths[0] / 10.0)
                });
                assert!(share >= 0.88, "{truths:?}, {n}: {share}");
            }
        }
    }
}
