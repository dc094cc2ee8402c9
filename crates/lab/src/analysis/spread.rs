//! Which of two subjects varies more from round to round: the ratio of their standard deviations.

use super::FEWEST_ROUNDS;
use super::curve::Curve;
use super::summary::{deviation, logs, mean};

/// The ratio of the standard deviations of the logarithms of two subjects' values, paired by round.
///
/// Pitman–Morgan: for normal pairs, t = sinh(ln(s₁/s₂) − ln ρ)·√((n−2)/(1−r²)) follows Student's
/// distribution with n − 2 degrees of freedom if ρ is the true ratio, whatever the correlation between the
/// subjects (E. J. G. Pitman, "A note on normal correlation", Biometrika 31, 1939; W. A. Morgan, same
/// volume, p. 13; the sinh is their (w − 1)/(2√w) with w = s₁²/s₂²). The F interval would take the
/// subjects for independent, which two runs of one round are not.
///
/// Deviations of few values are hardly known: with six rounds, and r = 0, the interval reaches from 0.30
/// to 3.3 times the ratio. Values that are disturbed now and then are not normal; with one disturbed run in
/// twenty the interval covers about 90 % in place of 95 % (`cargo bench --bench coverage`). `None` of fewer
/// than six rounds, of unequal lengths, or if a value is not positive or a subject does not vary.
pub fn spread(of: &[f64], against: &[f64]) -> Option<Curve> {
    if of.len() != against.len() || of.len() < FEWEST_ROUNDS {
        return None;
    }
    let (of, against) = (logs(of)?, logs(against)?);
    let (s_of, s_against) = (deviation(&of), deviation(&against));
    let rounds = of.len() as f64;
    let (m_of, m_against) = (mean(&of), mean(&against));
    let covariance: f64 =
        std::iter::zip(&of, &against).map(|(a, b)| (a - m_of) * (b - m_against)).sum::<f64>()
            / (rounds - 1.0);
    let correlation = covariance / (s_of * s_against);
    let unit = ((1.0 - correlation * correlation).max(0.0) / (rounds - 2.0)).sqrt();
    let centre = (s_of / s_against).ln();
    (centre.is_finite() && unit.is_finite())
        .then(|| Curve::sinh(centre, unit, rounds - 2.0, of.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{Noise, column, covered};

    #[test]
    fn deviations_of_logarithms_are_compared() {
        let against: [f64; 7] = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02];
        let of: Vec<f64> = [3, 0, 5, 1, 2, 6, 4].map(|at: usize| against[at].powi(3)).to_vec();
        let curve = spread(&of, &against).unwrap();
        assert!((curve.value() - 3.0).abs() < 1e-9);
        let interval = curve.interval(0.95);
        assert!(interval.low > 1.0 && interval.low < 2.0 && interval.high > 4.0, "{interval:?}");
        assert!((curve.p_above(interval.low) - 0.025).abs() < 1e-9);
    }

    #[test]
    fn what_does_not_vary_or_is_too_little_has_no_ratio() {
        assert!(spread(&[1.0; 6], &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]).is_none());
        assert!(spread(&[1.0, 2.0, 1.0, 2.0, 1.5], &[1.0, 2.0, 1.0, 2.0, 1.1]).is_none());
        assert!(spread(&[0.0, 2.0, 1.0, 2.0, 1.5, 1.0], &[1.0; 6]).is_none());
    }

    #[test]
    fn it_covers_the_true_ratio_whether_rounds_are_shared_or_not() {
        for n in [6, 7, 10, 20] {
            for between_rounds in [0.0, 0.05] {
                let shared = Noise { between_rounds, within_round: 0.0, ..Noise::SMOOTH };
                let own = |deviation: f64| Noise {
                    within_round: deviation,
                    between_rounds: 0.0,
                    ..shared
                };
                let truth = (0.09f64.powi(2) + between_rounds.powi(2)).sqrt()
                    / (0.03f64.powi(2) + between_rounds.powi(2)).sqrt();
                let share = covered(400, n as u64, |random| {
                    let common = column(&shared.rounds(random, n, &[1.0]), 0);
                    let with = |values: Vec<f64>| -> Vec<f64> {
                        std::iter::zip(values, &common)
                            .map(|(value, common)| value * common)
                            .collect()
                    };
                    let of = with(column(&own(0.09).rounds(random, n, &[10.0]), 0));
                    let against = with(column(&own(0.03).rounds(random, n, &[20.0]), 0));
                    spread(&of, &against).unwrap().interval(0.95).contains(truth)
                });
                assert!(share >= 0.92, "{n}, {between_rounds}: {share}");
            }
        }
    }
}
