//! Where the level of a series of sessions changes: binary segmentation with stretches.
//!
//! A level may change and stay, or change and come back. Plain binary segmentation, which tries one cut at a
//! time, misses the second kind: the halves on both sides of a cut have nearly one mean. Here each step
//! compares every *stretch* of neighbouring values with all values around it, as circular binary segmentation
//! does (A. B. Olshen et al., "Circular binary segmentation for the analysis of array-based DNA copy number
//! data", Biostatistics 5, 2004); a stretch that reaches an end of the series is a cut. The strongest stretch
//! splits the series in two or three parts, and each part is searched again.
//!
//! The p-value of the strongest stretch is that of its t statistic times the number of stretches
//! (Bonferroni). Permutations, which the paper uses, cannot give a small p-value to a level that is young:
//! three new values among thirty are one choice of 4060, however far they are away, and a history of hundreds
//! of series needs less. The price is an assumption: values vary around their level as normal logarithms do,
//! each by itself. A machine that is slow for a week has another level for a week, and that is what is said.

use crate::analysis::curve::{AverageScale, Interval};
use crate::analysis::student::{t_quantile, t_tail};
use crate::analysis::summary::mean;

/// The fewest values that a level has: what a session or two did is no level.
pub const SHORTEST: usize = 3;

/// The fewest values of a series that can be searched: two levels.
pub const FEWEST_VALUES: usize = 2 * SHORTEST;

/// The standard deviation of a logarithm is taken to be no less than this: a count that is equal in six
/// sessions may be another in the seventh, by less than a per cent, and nothing has changed.
const LEAST_DEVIATION: f64 = 0.005;

/// Values from `from` up to `to` that differ from those around them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    from: usize,
    to: usize,
    p: f64,
}

/// The two-sided p-value of "the series has one level"; 1 of fewer than [`FEWEST_VALUES`] logarithms.
#[must_use]
pub fn p_of_one_level(logs: &[f64]) -> f64 {
    strongest(logs).map_or(1.0, |stretch| stretch.p)
}

/// The index of the first value of every level but the first, where tests of this two-sided size find them.
#[must_use]
pub fn change_points(logs: &[f64], size: f64) -> Vec<usize> {
    let mut found = Vec::new();
    split(logs, 0, size, &mut found);
    found.sort_unstable();
    // Three parts may have been two: a boundary stays if the levels beside it differ by themselves.
    while let Some((weakest, p)) = weakest(logs, &found) {
        if p <= size {
            break;
        }
        found.remove(weakest);
    }
    found
}

/// The factor between each level and the one before it, with its interval; `change_points` as
/// [`change_points`] gives them. All levels share one variance (the analysis of variance). The change points are taken
/// as given: that they were looked for makes the interval a little too narrow.
#[must_use]
pub fn factors(logs: &[f64], change_points: &[usize], level: f64) -> Vec<Interval> {
    let (variance, freedom) = residual(logs, change_points);
    let t = t_quantile((1.0 - level) / 2.0, freedom);
    let steps = levels(logs, change_points);
    let factor = |pair: &[&[f64]]| {
        let (centre, error) = step(pair[0], pair[1], variance);
        Interval {
            value: AverageScale::Log.from(centre),
            low: AverageScale::Log.from(centre - t * error),
            high: AverageScale::Log.from(centre + t * error),
            level,
        }
    };
    steps.windows(2).map(factor).collect()
}

/// The values of each level.
#[must_use]
pub fn levels<'v>(values: &'v [f64], change_points: &[usize]) -> Vec<&'v [f64]> {
    let ends = change_points.iter().copied().chain([values.len()]);
    let mut from = 0;
    ends.map(|to| &values[std::mem::replace(&mut from, to)..to]).collect()
}

/// Adds the change points of a part of the series, whose first value has the index `offset`.
fn split(part: &[f64], offset: usize, size: f64, found: &mut Vec<usize>) {
    let Some(stretch) = strongest(part).filter(|stretch| stretch.p <= size) else { return };
    let bounds = [0, stretch.from, stretch.to, part.len()];
    found.push(offset + stretch.from);
    if stretch.to < part.len() {
        found.push(offset + stretch.to);
    }
    for pair in bounds.windows(2) {
        split(&part[pair[0]..pair[1]], offset + pair[0], size, found);
    }
}

/// The stretch that differs most from what is around it. Every part that it leaves is long enough for a level.
fn strongest(logs: &[f64]) -> Option<Stretch> {
    let n = logs.len();
    if n < FEWEST_VALUES {
        return None;
    }
    // Sums from the mean on, so that no digits are lost.
    let centre = mean(logs);
    let mut sums = vec![0.0; n + 1];
    for (at, value) in logs.iter().enumerate() {
        sums[at + 1] = sums[at] + (value - centre);
    }
    let squares: f64 = logs.iter().map(|value| (value - centre).powi(2)).sum();
    let freedom = n as f64 - 2.0;
    let (mut tried, mut best) = (0usize, (0.0f64, 0, 0));
    // A stretch from the first value on is what another stretch leaves.
    for from in SHORTEST..=n - SHORTEST {
        let to_the_end = n;
        for to in (from + SHORTEST..=n - SHORTEST).chain([to_the_end]) {
            let inside = (to - from) as f64;
            let lengths = 1.0 / inside + 1.0 / (n as f64 - inside);
            let apart = (sums[to] - sums[from]) * lengths;
            let variance = (squares - apart * apart / lengths) / freedom;
            let t = apart.abs() / (variance.max(LEAST_DEVIATION.powi(2)) * lengths).sqrt();
            tried += 1;
            if t > best.0 && has_two_levels(logs, from, to) {
                best = (t, from, to);
            }
        }
    }
    let (t, from, to) = best;
    let p = (2.0 * t_tail(t, freedom) * tried as f64).min(1.0);
    Some(Stretch { from, to, p })
}

/// Whether enough values are nearer to the mean of their side than to that of the other: three values of which
/// two are ordinary are no level, however far the third is away.
fn has_two_levels(logs: &[f64], from: usize, to: usize) -> bool {
    let (inside, outside) = (&logs[from..to], [&logs[..from], &logs[to..]].concat());
    let (own, other) = (mean(inside), mean(&outside));
    let near = |values: &[f64], own: f64, other: f64| {
        values.iter().filter(|value| (*value - own).abs() < (*value - other).abs()).count()
    };
    near(inside, own, other) >= SHORTEST && near(&outside, other, own) >= SHORTEST
}

/// The change point beside which the levels differ least, by its place in the list, and the p-value.
fn weakest(logs: &[f64], change_points: &[usize]) -> Option<(usize, f64)> {
    if change_points.is_empty() {
        return None;
    }
    let (variance, freedom) = residual(logs, change_points);
    let steps = levels(logs, change_points);
    let p = steps.windows(2).map(|pair| {
        let (centre, error) = step(pair[0], pair[1], variance);
        2.0 * t_tail(centre.abs() / error, freedom)
    });
    p.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// How far the second level is above the first, and the standard error of that.
fn step(before: &[f64], after: &[f64], variance: f64) -> (f64, f64) {
    let lengths = 1.0 / before.len() as f64 + 1.0 / after.len() as f64;
    (mean(after) - mean(before), (variance * lengths).sqrt())
}

/// The variance of values around their levels, and its degrees of freedom.
fn residual(logs: &[f64], change_points: &[usize]) -> (f64, f64) {
    let levels = levels(logs, change_points);
    let freedom = (logs.len() - levels.len()) as f64;
    let squares = levels.iter().flat_map(|level| {
        let centre = mean(level);
        level.iter().map(move |value| (value - centre).powi(2))
    });
    ((squares.sum::<f64>() / freedom).max(LEAST_DEVIATION.powi(2)), freedom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{covered, normal};

    /// Values around levels of given lengths, with a deviation of 1 %.
    fn series(levels: &[(usize, f64)]) -> Vec<f64> {
        let noise = [0.7, -1.2, 0.3, 1.4, -0.6, -0.9, 0.1, 1.1, -0.4, -0.5, 0.9, -1.0, 0.2];
        let truths = levels.iter().flat_map(|(length, level)| std::iter::repeat_n(*level, *length));
        std::iter::zip(truths, noise.iter().cycle()).map(|(it, noise)| it + 0.01 * noise).collect()
    }

    #[test]
    fn a_level_that_changes_and_stays_is_found_where_it_changes() {
        for (before, after) in [(3, 3), (10, 3), (3, 10), (20, 15)] {
            let logs = series(&[(before, 2.0), (after, 2.3)]);
            assert!(p_of_one_level(&logs) < 1e-3, "{before} {after}");
            assert_eq!(change_points(&logs, 1e-3), [before]);
        }
    }

    #[test]
    fn a_level_that_comes_back_is_found_twice() {
        let logs = series(&[(9, 1.0), (4, 1.2), (9, 1.0)]);
        assert_eq!(change_points(&logs, 1e-4), [9, 13]);
        let logs = series(&[(5, 1.0), (6, 1.2), (7, 1.5), (5, 1.0)]);
        assert_eq!(change_points(&logs, 1e-4), [5, 11, 18]);
    }

    #[test]
    fn what_one_or_two_sessions_did_is_no_level() {
        for outliers in [1, 2] {
            let logs = series(&[(9, 1.0), (outliers, 1.5), (9, 1.0)]);
            assert_eq!(change_points(&logs, 1e-3), [0; 0], "{outliers}");
        }
        assert_eq!(p_of_one_level(&series(&[(3, 1.0), (2, 9.0)])), 1.0);
        assert_eq!(change_points(&[], 1.0), [0; 0]);
    }

    #[test]
    fn counts_that_are_nearly_equal_have_not_changed_and_others_have() {
        let logs = |values: [f64; 8]| values.map(f64::ln);
        let nearly = logs([2.0, 2.0, 2.0, 2.0, 2.004, 2.004, 2.004, 2.004]);
        assert!(p_of_one_level(&nearly) > 0.05);
        let twice = logs([2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]);
        assert_eq!(change_points(&twice, 1e-6), [4]);
        let [factor] = factors(&twice, &[4], 0.95)[..] else { panic!("one") };
        assert!((factor.value - 2.0).abs() < 1e-9 && factor.low > 1.97 && factor.high < 2.03);
    }

    #[test]
    fn one_level_is_called_several_as_rarely_as_it_is_said() {
        for n in [6, 12, 30] {
            let alarms = covered(1000, 1, |random| {
                let logs: Vec<f64> = (0..n).map(|_| normal(random)).collect();
                p_of_one_level(&logs) <= 0.05
            });
            assert!(alarms <= 0.06, "{n} values: {alarms}");
        }
    }

    #[test]
    fn the_factor_s_interval_covers_the_truth() {
        let share = covered(1000, 2, |random| {
            let logs: Vec<f64> =
                (0..15).map(|at| 0.05 * normal(random) + f64::from(u8::from(at >= 9))).collect();
            factors(&logs, &[9], 0.95)[0].contains(1f64.exp())
        });
        assert!((0.93..=0.97).contains(&share), "{share}");
    }

    /// Cells of the table in docs/lab.md: a change after 30 sessions, the deviation, and the sessions since.
    #[test]
    fn changes_are_found_as_soon_as_the_documentation_says() {
        let cells =
            [(1.05, 0.01, 3), (1.1, 0.03, 7), (1.2, 0.03, 3), (1.5, 0.1, 5), (1.2, 0.1, 30)];
        for (by, deviation, since) in cells {
            let by: f64 = by;
            let found = covered(300, 3, |random| {
                let truth = |at| if at < 30 { 0.0 } else { by.ln() };
                let logs: Vec<f64> =
                    (0..30 + since).map(|at| deviation * normal(random) + truth(at)).collect();
                p_of_one_level(&logs) <= 0.01 / 50.0
            });
            assert!((0.87..).contains(&found), "{by} at {deviation} in {since}: {found}");
        }
    }
}
