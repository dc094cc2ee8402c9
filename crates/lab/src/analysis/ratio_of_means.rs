//! The ratio of two means, by the method of Fieller.

use super::student::t_quantile;
use super::summary::{deviation, mean};

/// The ratio of the means of two rows of positive values, paired by round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RatioOfMeans {
    rounds: f64,
    means: (f64, f64),
    variances: (f64, f64),
    covariance: f64,
}

impl RatioOfMeans {
    /// `None` if a mean is not positive.
    pub(super) fn new(above: &[f64], below: &[f64]) -> Option<RatioOfMeans> {
        let means = (mean(above), mean(below));
        let rounds = above.len() as f64;
        let products = std::iter::zip(above, below).map(|(a, b)| (a - means.0) * (b - means.1));
        let covariance = products.sum::<f64>() / (rounds - 1.0);
        let variances = (deviation(above).powi(2), deviation(below).powi(2));
        let is_positive = means.0 > 0.0 && means.1 > 0.0;
        is_positive.then_some(RatioOfMeans { rounds, means, variances, covariance })
    }

    pub(super) fn estimate(&self) -> f64 {
        self.means.0 / self.means.1
    }

    pub(super) fn freedom(&self) -> f64 {
        self.rounds - 1.0
    }

    /// Student's t of above − `ratio` · below, whose mean is 0 if that is the ratio.
    pub(super) fn t(&self, ratio: f64) -> f64 {
        // For an infinite ratio, below alone decides.
        let (one, ratio) = if ratio.is_finite() { (1.0, ratio) } else { (0.0, 1.0) };
        let variance = one * self.variances.0 - 2.0 * one * ratio * self.covariance
            + ratio * ratio * self.variances.1;
        (one * self.means.0 - ratio * self.means.1) / (variance / self.rounds).sqrt()
    }

    /// The ratios whose t is below the quantile: 0 and ∞ where there is no end.
    pub(super) fn interval(&self, level: f64) -> (f64, f64) {
        let q = t_quantile((1.0 - level) / 2.0, self.freedom()).powi(2) / self.rounds;
        // The ends solve a·x² − 2·b·x + c = 0.
        let a = self.means.1.powi(2) - q * self.variances.1;
        let b = self.means.0 * self.means.1 - q * self.covariance;
        let c = self.means.0.powi(2) - q * self.variances.0;
        let root = (b * b - a * c).max(0.0).sqrt();
        match (a > 0.0, c > 0.0) {
            (true, true) => ((b - root) / a, (b + root) / a),
            (true, false) => (0.0, (b + root) / a),
            (false, true) => (c / (b + root), f64::INFINITY),
            (false, false) => (0.0, f64::INFINITY),
        }
    }
}
