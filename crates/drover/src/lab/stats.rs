//! Medians, and intervals by bootstrap: what a few repeats say, and how surely.
//!
//! The unit of resampling is a repeat of a point, never a request within a repeat: requests of one
//! run share its placement and its disturbances. Where two points are compared, it is a round, which
//! has both. Intervals are 95 % percentile intervals. With three
//! repeats that is about the range of the three; the lab therefore never judges fewer.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

/// How often a statistic is computed anew from resampled repeats.
const RESAMPLES: usize = 2000;

/// An estimate and the interval that 95 % of the resampled estimates lie in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The statistic of the samples as they are.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Whether the whole interval lies within `from..=to`.
    pub fn is_within(&self, from: f64, to: f64) -> bool {
        from <= self.low && self.high <= to
    }

    /// Whether the whole interval lies outside `from..=to`, on one side of it.
    pub fn is_outside(&self, from: f64, to: f64) -> bool {
        self.high < from || to < self.low
    }

    /// The width of the interval as a fraction of the value; infinite around zero.
    pub fn relative_width(&self) -> f64 {
        (self.high - self.low) / self.value.abs()
    }
}

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    let half = values.len().checked_sub(1)? / 2;
    // In linear time: of slopes there are many.
    let (_, low, above) = values.select_nth_unstable_by(half, f64::total_cmp);
    let next = above.iter().copied().min_by(f64::total_cmp);
    Some(if above.len() > half { f64::midpoint(*low, next?) } else { *low })
}

/// The smallest value that at least this share of them do not exceed; `None` of nothing.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.max(1) - 1).copied()
}

/// The median of one point's repeats.
pub fn median_estimate(repeats: &[f64], seed: u64) -> Option<Estimate> {
    bootstrap(&[repeats], seed, |groups| median(&groups[0]))
}

/// By what factor `y` changes from the lowest to the highest `x`: one plus the Theil–Sen slope over
/// the points' medians times the range of `x`, relative to the median at the lowest `x`.
///
/// `points` are an `x` and the repeats of `y` there, in ascending order of `x`. `None` with fewer
/// than two points, an empty one, or nothing to relate the change to.
pub fn growth_factor(points: &[(f64, &[f64])], seed: u64) -> Option<Estimate> {
    let xs: Vec<f64> = points.iter().map(|point| point.0).collect();
    let groups: Vec<&[f64]> = points.iter().map(|point| point.1).collect();
    bootstrap(&groups, seed, |groups| {
        let ys: Vec<f64> = groups.iter().map(|group| median(group)).collect::<Option<_>>()?;
        let level = *ys.first().filter(|level| **level > 0.0)?;
        let range = xs.last()? - xs.first()?;
        Some(1.0 + theil_sen_slope(&xs, &ys)? * range / level)
    })
}

/// By what factor `y` changes from the lowest to the highest `x`, all `series` together: for each,
/// the Theil–Sen slope of the logarithm of `y` over `x`, through every repeat of every point, times
/// the range of `x`; of these the mean, as a factor.
///
/// It uses every repeat, so it tells a small change from none where medians of a few repeats cannot;
/// and a repeat that was disturbed, by whatever factor, is one of all of them, and not the last word
/// about its point. `None` where [`growth_factor`] has none.
pub fn common_growth(series: &[Vec<(f64, &[f64])>], seed: u64) -> Option<Estimate> {
    let groups: Vec<&[f64]> = series.iter().flatten().map(|point| point.1).collect();
    bootstrap(&groups, seed, |groups| {
        let mut groups = groups.iter();
        let mut changes = Vec::new();
        for points in series {
            let (mut xs, mut ys) = (Vec::new(), Vec::new());
            for ((x, _), group) in std::iter::zip(points, groups.by_ref()) {
                xs.extend(std::iter::repeat_n(*x, group.len()));
                ys.extend(group.iter().map(|value| value.ln()));
            }
            let range = points.last()?.0 - points.first()?.0;
            let all_positive = ys.iter().all(|log| log.is_finite());
            changes.push(all_positive.then(|| theil_sen_slope(&xs, &ys))?? * range);
        }
        (!changes.is_empty()).then(|| mean(&changes).exp())
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The geometric mean of the ratios of pairs of points, each with a pair of values for every round
/// that has both: what all runs of a round have in common is no part of it, and does not widen the
/// interval.
///
/// `None` if there is no point, one has no pair, or a value is not positive.
pub fn ratio(points: &[Vec<(f64, f64)>], seed: u64) -> Option<Estimate> {
    ratio_by(|changes| Some(mean(changes)), points, seed)
}

/// [`ratio`] by the median of each point's rounds: for values that a single disturbance multiplies, as
/// it does a high percentile. One round of many then does not outweigh the others.
pub fn median_ratio(points: &[Vec<(f64, f64)>], seed: u64) -> Option<Estimate> {
    ratio_by(median, points, seed)
}

/// The mean of what `level` says of each point's changes, which are logarithms, as a factor.
fn ratio_by(
    level: impl Fn(&[f64]) -> Option<f64>,
    points: &[Vec<(f64, f64)>],
    seed: u64,
) -> Option<Estimate> {
    let change = |pair: &(f64, f64)| pair.1.ln() - pair.0.ln();
    let changes: Vec<Vec<f64>> =
        points.iter().map(|pairs| pairs.iter().map(change).collect()).collect();
    if changes.is_empty() || !changes.iter().flatten().all(|change| change.is_finite()) {
        return None;
    }
    let groups: Vec<&[f64]> = changes.iter().map(Vec::as_slice).collect();
    bootstrap(&groups, seed, |groups| {
        let of_points: Vec<f64> = groups.iter().map(|group| level(group)).collect::<Option<_>>()?;
        Some(mean(&of_points).exp())
    })
}

/// The median of all slopes between two points of different `x`: one outlier cannot turn it.
fn theil_sen_slope(xs: &[f64], ys: &[f64]) -> Option<f64> {
    let mut slopes = Vec::new();
    for i in 0..xs.len() {
        for j in i + 1..xs.len() {
            if xs[i] != xs[j] {
                slopes.push((ys[j] - ys[i]) / (xs[j] - xs[i]));
            }
        }
    }
    median(&slopes)
}

/// Computes `statistic` of `groups`, and of [`RESAMPLES`] draws with replacement within each group.
fn bootstrap(
    groups: &[&[f64]],
    seed: u64,
    statistic: impl Fn(&[Vec<f64>]) -> Option<f64>,
) -> Option<Estimate> {
    if groups.iter().any(|group| group.is_empty()) {
        return None;
    }
    let mut drawn: Vec<Vec<f64>> = groups.iter().map(|group| group.to_vec()).collect();
    let value = statistic(&drawn)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for (draw, group) in std::iter::zip(&mut drawn, groups) {
            draw.fill_with(|| group[random.random_range(0..group.len())]);
        }
        values.push(statistic(&drawn)?);
    }
    values.sort_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    Some(Estimate { value, low: values[tail], high: values[RESAMPLES - 1 - tail] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_growth_is_the_mean_factor_of_all_series() {
        let flat = vec![(1.0, &[5.0, 5.0][..]), (2.0, &[5.0][..]), (3.0, &[5.0][..])];
        let fourfold = vec![(1.0, &[1.0][..]), (2.0, &[2.0][..]), (3.0, &[4.0][..])];
        let near = |estimate: Option<Estimate>, factor: f64| {
            (estimate.unwrap().value - factor).abs() < 1e-9
        };
        assert!(near(common_growth(std::slice::from_ref(&flat), 1), 1.0));
        assert!(near(common_growth(std::slice::from_ref(&fourfold), 1), 4.0));
        assert!(near(common_growth(&[flat, fourfold], 1), 2.0));
        assert_eq!(common_growth(&[vec![(1.0, &[5.0][..])]], 1), None);
        assert_eq!(common_growth(&[vec![(1.0, &[0.0][..]), (2.0, &[1.0][..])]], 1), None);
        assert_eq!(common_growth(&[], 1), None);
    }

    #[test]
    fn common_growth_is_not_turned_by_one_repeat_in_seven_points() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut repeats = |level: f64| -> Vec<f64> {
            (0..7).map(|_| level * random.random_range(0.8..1.25)).collect()
        };
        let mut flat: Vec<Vec<f64>> = (0..5).map(|_| repeats(100.0)).collect();
        let doubled: Vec<Vec<f64>> = (0..5).map(|at| repeats(100.0 + 25.0 * at as f64)).collect();
        flat[4][3] = 7000.0;
        let growth = |levels: &[Vec<f64>]| {
            let points = levels.iter().enumerate().map(|(x, level)| (x as f64, level.as_slice()));
            common_growth(&[points.collect()], 1).unwrap()
        };
        assert!(growth(&flat).is_within(1.0 / 1.5, 1.5), "{:?}", growth(&flat));
        assert!(growth(&doubled).low > 1.5, "{:?}", growth(&doubled));
    }

    #[test]
    fn the_median_of_odd_even_and_no_values() {
        for (values, expected) in [
            (&[3.0, 1.0, 2.0][..], Some(2.0)),
            (&[4.0, 1.0, 2.0, 3.0], Some(2.5)),
            (&[4.0, 1.0], Some(2.5)),
            (&[7.0], Some(7.0)),
            (&[], None),
        ] {
            assert_eq!(median(values), expected);
        }
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(198.0));
        assert_eq!(percentile(&[5.0, 3.0], 0.99), Some(5.0));
        assert_eq!(percentile(&[], 0.99), None);
    }

    #[test]
    fn equal_repeats_have_an_interval_of_no_width() {
        let estimate = median_estimate(&[5.0; 4], 1).unwrap();
        assert_eq!(estimate, Estimate { value: 5.0, low: 5.0, high: 5.0 });
    }

    #[test]
    fn three_repeats_have_their_range_as_interval() {
        let estimate = median_estimate(&[1.0, 9.0, 2.0], 1).unwrap();
        assert_eq!(estimate, Estimate { value: 2.0, low: 1.0, high: 9.0 });
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let covered = (0..100)
            .filter(|&seed| {
                let repeats: Vec<f64> = (0..25).map(|_| random.random_range(0.0..1.0)).collect();
                let estimate = median_estimate(&repeats, seed).unwrap();
                estimate.low <= 0.5 && 0.5 <= estimate.high
            })
            .count();
        // The percentile interval is known to be a little narrow.
        assert!((85..=99).contains(&covered), "{covered} of 100");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let repeats = [1.0, 2.5, 3.0, 4.7, 5.1];
        assert_eq!(median_estimate(&repeats, 3), median_estimate(&repeats, 3));
    }

    #[test]
    fn a_line_that_triples_has_the_growth_factor_three() {
        let points = [(250.0, &[10.0, 10.0][..]), (1000.0, &[15.4545; 2]), (3000.0, &[30.0; 2])];
        let factor = growth_factor(&points, 1).unwrap();
        assert!((factor.value - 3.0).abs() < 1e-4, "{factor:?}");
        assert!(factor.is_outside(0.8, 1.25));
    }

    #[test]
    fn a_flat_line_has_the_growth_factor_one_despite_an_outlier() {
        let repeats: [&[f64]; 3] = [&[10.0, 10.1, 9.9], &[10.0, 99.0, 10.1], &[9.9, 10.0, 10.1]];
        let points: Vec<(f64, &[f64])> = std::iter::zip([250.0, 1000.0, 3000.0], repeats).collect();
        let factor = growth_factor(&points, 1).unwrap();
        assert!(factor.is_within(0.95, 1.05), "{factor:?}");
    }

    #[test]
    fn growth_of_one_point_or_from_zero_is_unknown() {
        assert_eq!(growth_factor(&[(250.0, &[1.0][..])], 1), None);
        assert_eq!(growth_factor(&[(250.0, &[0.0][..]), (500.0, &[1.0])], 1), None);
        assert_eq!(growth_factor(&[(250.0, &[][..]), (500.0, &[1.0])], 1), None);
    }

    #[test]
    fn the_ratio_is_taken_pair_by_pair() {
        let points = [vec![(1.0, 2.0); 3], vec![(100.0, 200.0); 3]];
        assert!((ratio(&points, 1).unwrap().value - 2.0).abs() < 1e-9);
        assert_eq!(ratio(&[vec![(0.0, 1.0)]], 1), None);
        assert_eq!(ratio(&[vec![]], 1), None);
        assert_eq!(ratio(&[], 1), None);
    }

    /// A machine whose speed halves at some time is the same for both; their own noise is not.
    #[test]
    fn what_a_round_has_in_common_does_not_widen_the_interval_of_a_ratio() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut pair = |speed: f64, noise: f64| {
            let mut value = |level: f64| level * speed * random.random_range(1.0..1.0 + noise);
            (value(100.0), value(110.0))
        };
        let drifts = vec![(0..20).map(|at| pair([1.0, 0.5][at / 10], 0.02)).collect()];
        let noisy = vec![(0..20).map(|_| pair(1.0, 1.0)).collect()];
        assert!(ratio(&drifts, 1).unwrap().is_within(1.08, 1.12), "{:?}", ratio(&drifts, 1));
        assert!(ratio(&noisy, 1).unwrap().relative_width() > 0.2, "{:?}", ratio(&noisy, 1));
    }

    #[test]
    fn a_disturbed_round_moves_the_ratio_by_the_mean_and_not_that_by_the_median() {
        let rounds = |after: [f64; 8]| vec![after.map(|after| (1.0, after)).to_vec()];
        let once = rounds([1.5, 1.6, 1.4, 90.0, 1.5, 1.6, 1.4, 1.5]);
        assert!(!ratio(&once, 1).unwrap().is_within(1.0, 2.0));
        let median = median_ratio(&once, 1).unwrap();
        assert!(median.is_within(1.0, 2.0) && (median.value - 1.5).abs() < 1e-9, "{median:?}");
        // What happens in every other round is no disturbance.
        let often = rounds([1.5, 90.0, 1.4, 90.0, 1.5, 90.0, 1.4, 90.0]);
        assert!(!median_ratio(&often, 1).unwrap().is_within(1.0, 2.0));
        assert_eq!(median_ratio(&[vec![(0.0, 1.0)]], 1), None);
        assert_eq!(median_ratio(&[vec![]], 1), None);
        assert_eq!(median_ratio(&[], 1), None);
    }

    #[test]
    fn an_interval_is_within_outside_or_neither() {
        let estimate = Estimate { value: 1.1, low: 0.9, high: 1.3 };
        assert!(estimate.is_within(0.8, 1.4) && !estimate.is_within(1.0, 1.4));
        assert!(estimate.is_outside(0.1, 0.8) && estimate.is_outside(1.4, 2.0));
        assert!(!estimate.is_outside(0.8, 1.25));
    }
}
