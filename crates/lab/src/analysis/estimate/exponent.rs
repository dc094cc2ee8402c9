//! How a metric grows with a factor: the exponent of a power law.

use crate::analysis::summary::mean;

/// The slope of ln y over ln x by least squares: 0 where y is constant, 1 where it is proportional to x,
/// 2 where it grows with the square.
///
/// One such slope is taken in each round; the rounds' slopes then go to
/// [`Curve::of_rounds`](crate::analysis::Curve::of_rounds), because the points of one round share its
/// disturbances and are not independent of each other (one summary per unit: J. N. S. Matthews et al.,
/// "Analysis of serial measurements in medical research", BMJ 300, 1990). Points with x = 0, which has no logarithm, are left
/// out. `None` with fewer than two different x, or if a y is not positive.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let points: Vec<(f64, f64)> =
        points.iter().filter(|(x, _)| *x > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (x_mean, y_mean) = (mean(&xs), mean(&ys));
    let products: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let squares: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    Some(products / squares).filter(|slope| slope.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::curve::{AverageScale, Curve};
    use crate::analysis::noise::{Noise, covered};

    #[test]
    fn powers_have_their_exponent() {
        for exponent in [-1.0, 0.0, 0.5, 1.0, 2.0] {
            let points = [100.0, 250.0, 1000.0, 3000.0].map(|x: f64| (x, 7.0 * x.powf(exponent)));
            assert!((slope(&points).unwrap() - exponent).abs() < 1e-9);
        }
        // Molloy & Lever, table I: the stock kernel's settle time.
        let exponent = slope(&[(100.0, 4708.0), (1000.0, 177_274.0)]).unwrap();
        assert!((exponent - 1.576).abs() < 1e-3, "{exponent}");
    }

    #[test]
    fn zero_has_no_place_and_one_point_no_slope() {
        assert!((slope(&[(0.0, 3.0), (1.0, 1.0), (2.0, 2.0)]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(slope(&[(1.0, 1.0)]), None);
        assert_eq!(slope(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(slope(&[(1.0, 0.0), (2.0, 2.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn the_interval_over_rounds_covers_the_true_exponent() {
        let xs = [250.0, 1000.0, 3000.0, 6000.0];
        let truths = xs.map(|x: f64| x.powf(0.8));
        for n in [6, 7, 10, 20] {
            let share = covered(400, n as u64, |random| {
                let rounds = Noise::TYPICAL.rounds(random, n, &truths);
                let slopes: Vec<f64> = rounds
                    .iter()
                    .map(|round| {
                        slope(&xs.into_iter().zip(round.iter().copied()).collect::<Vec<_>>())
                    })
                    .collect::<Option<_>>()
                    .unwrap();
                Curve::of_rounds(&slopes, AverageScale::Linear)
                    .unwrap()
                    .interval(0.95)
                    .contains(0.8)
            });
            assert!(share >= 0.92, "{n}: {share}");
        }
    }
}
