//! The best of several subjects, without the advantage of choosing it by the values that are compared.

use super::curve::{Curve, Extreme, Scale};
use super::simultaneous::{DRAWS, simultaneous};

/// Which values of a metric are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// High ones: rates.
    Higher,
    /// Low ones: times and costs.
    Lower,
}

impl Better {
    /// Which of the effects of several subjects is that of the best, where the subjects are above the
    /// line of a ratio.
    pub fn above_the_line(self) -> Extreme {
        match self {
            Better::Higher => Extreme::Greatest,
            Better::Lower => Extreme::Least,
        }
    }

    /// Which of the effects is that of the best, where the subjects are below the line.
    pub fn below_the_line(self) -> Extreme {
        match self {
            Better::Higher => Extreme::Least,
            Better::Lower => Extreme::Greatest,
        }
    }
}

/// The effect of the best of several subjects: the greatest or the least of their effects.
///
/// `contrasts` holds, for each pair of a subject above the line and one below it, a value per round on
/// `scale`; `above[i][j]` is that of the i-th above and the j-th below.
///
/// The greatest value of each round would be that of the luckiest subject, about one standard
/// deviation above the truth where four are equal; and whoever is the best over all rounds was
/// chosen by the noise that is then judged. Here the best is never chosen. "More than the best of
/// b, c and d" is shown by showing it of each of them at the same level (intersection–union test:
/// R. L. Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24, 1982);
/// the other side, "less than the best", by bounds that hold for all of them together
/// ([`simultaneous`]). `None` where that has none, or without a subject.
pub fn best(
    contrasts: &[Vec<Vec<f64>>],
    above: Extreme,
    below: Extreme,
    scale: Scale,
) -> Option<Curve> {
    let all: Vec<Vec<f64>> = contrasts.iter().flatten().cloned().collect();
    let mut curves = simultaneous(&all, scale, DRAWS)?.into_iter();
    let rows = contrasts
        .iter()
        .map(|row| Curve::extreme(curves.by_ref().take(row.len()).collect(), below))
        .collect::<Option<Vec<Curve>>>()?;
    Curve::extreme(rows, above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{Noise, column, covered};
    use crate::analysis::summary::logs;

    /// The logarithms of the first subject's values over each of the others', over rounds.
    fn contrasts(rounds: &[Vec<f64>]) -> Vec<Vec<Vec<f64>>> {
        let first = logs(&column(rounds, 0)).unwrap();
        let over = |other: usize| {
            let other = logs(&column(rounds, other)).unwrap();
            std::iter::zip(&first, other).map(|(first, other)| first - other).collect()
        };
        vec![(1..rounds[0].len()).map(over).collect()]
    }

    #[test]
    fn a_subject_is_compared_with_the_one_that_is_hardest_to_beat() {
        let rounds: Vec<Vec<f64>> =
            (0..8).map(|round| vec![2.0 + 0.01 * f64::from(round), 1.0, 1.5, 0.5]).collect();
        let curve = |better: Better| {
            let extreme = better.below_the_line();
            best(&contrasts(&rounds), Extreme::Greatest, extreme, Scale::Log).unwrap()
        };
        assert!((curve(Better::Higher).value() - 2.03 / 1.5).abs() < 0.01);
        assert!((curve(Better::Lower).value() - 2.03 / 0.5).abs() < 0.01);
        let higher = curve(Better::Higher);
        assert!(higher.p_above(1.3) < 1e-4 && higher.p_above(1.4) > 0.9);
        assert!(higher.p_below(1.4) < 1e-3 && higher.interval(0.95).contains(higher.value()));
        assert!(best(&[], Extreme::Greatest, Extreme::Least, Scale::Log).is_none());
    }

    #[test]
    fn the_interval_covers_the_best_of_equal_and_of_unequal_subjects() {
        for truths in [[10.0; 5], [12.0, 10.0, 10.0, 8.0, 9.9]] {
            for n in [6, 10] {
                let share = covered(25, n as u64, |random| {
                    let rounds = Noise::SMOOTH.rounds(random, n, &truths);
                    let curve =
                        best(&contrasts(&rounds), Extreme::Greatest, Extreme::Least, Scale::Log);
                    curve.unwrap().interval(0.95).contains(truths[0] / 10.0)
                });
                assert!(share >= 0.88, "{truths:?}, {n}: {share}");
            }
        }
    }
}
