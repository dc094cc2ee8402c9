//! The distribution-free interval of a median, by order statistics.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::analysis::curve::Interval;

/// The interval of the median with at least this confidence; its `level` is the one it reaches.
///
/// Of n values, the k-th smallest and the k-th largest enclose the median of a continuous
/// distribution with probability 1 − 2·P(B < k), B binomial with n and ½, whatever the distribution
/// (H. A. David, H. N. Nagaraja, *Order Statistics*, 3rd ed. 2003, §7.1). The largest k that reaches
/// `level` is taken. `None` if the outermost values do not: fewer than six for 95 %.
pub fn median_interval(values: &[f64], level: f64) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let reached = |k: usize| coverage(count, k);
    let k = (1..=count / 2).rev().find(|&k| reached(k) >= level)?;
    Some(Interval {
        value: crate::analysis::summary::median(&sorted)?,
        low: sorted[k - 1],
        high: sorted[count - k],
        level: reached(k),
    })
}

/// The probability that the k-th smallest and the k-th largest of n values enclose the median.
fn coverage(n: usize, k: usize) -> f64 {
    let below = Binomial::new(0.5, n as u64).expect("one half is a probability");
    1.0 - 2.0 * below.cdf(k as u64 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{Noise, covered};

    #[test]
    fn the_coverage_reached_is_that_of_the_textbook() {
        // David & Nagaraja, and every table of the sign test: n, k, coverage.
        for (n, k, level) in
            [(6, 1, 0.96875), (7, 1, 0.984375), (10, 2, 0.978515625), (20, 6, 0.958610535)]
        {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval(&values, 0.95).unwrap();
            assert_eq!((interval.low, interval.high), (f64::from(k), f64::from(n + 1 - k)));
            assert!((interval.level - level).abs() < 1e-8, "{n}: {}", interval.level);
        }
    }

    #[test]
    fn five_values_have_no_interval_of_95_percent() {
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
        assert!(median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.90).is_some());
        assert_eq!(median_interval(&[], 0.95), None);
    }

    #[test]
    fn it_covers_the_median_of_skewed_disturbed_values_as_often_as_it_says() {
        let noise = Noise { disturbed: 0.0, ..Noise::TYPICAL };
        for n in [6, 7, 10, 20] {
            let shares = covered(400, n as u64, |random| {
                let values: Vec<f64> =
                    noise.rounds(random, n, &[100.0]).iter().map(|round| round[0]).collect();
                median_interval(&values, 0.95).unwrap().contains(100.0)
            });
            assert!(shares >= 0.94, "{n}: {shares}");
        }
    }
}
