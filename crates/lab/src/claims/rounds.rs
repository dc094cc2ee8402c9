//! What is compared by round: numbers, their logarithms, and the quotient of two quantities.

use std::collections::BTreeMap;

use crate::analysis::{AverageScale, Bound, Curve, Interval};

/// A number for each round, and whether the number is exact or a bound.
pub(crate) type Rounds = BTreeMap<u32, (f64, Bound)>;

/// The logarithms of the numbers.
pub(super) fn logs(rounds: &Rounds) -> Rounds {
    let log = |(round, (value, bound)): (&u32, &(f64, _))| (*round, (value.ln(), *bound));
    rounds.iter().map(log).collect()
}

/// The differences of two series on a logarithmic scale, in the rounds that both series have.
pub(super) fn over(above: &Rounds, below: &Rounds) -> Rounds {
    paired(above, below, |above, below| above - below)
}

/// A number of two series in each round that both have.
fn paired(above: &Rounds, below: &Rounds, number: impl Fn(f64, f64) -> f64) -> Rounds {
    let pair = |(round, (above, of)): (&u32, &(f64, Bound))| {
        let (below, against) = below.get(round)?;
        Some((*round, (number(*above, *below), of.over(*against))))
    };
    above.iter().filter_map(pair).collect()
}

/// The numbers above 0, which have a ratio to others.
pub(crate) fn positive(mut rounds: Rounds) -> Rounds {
    rounds.retain(|_, (value, _)| *value > 0.0);
    rounds
}

/// One quantity ÷ another, paired by round: what the runs of a round have in common cancels.
pub(crate) struct PairedRatio {
    /// The logarithm of the ratio in each round.
    pub(crate) logs: Vec<f64>,
    /// What their mean says of the logarithm of the ratio.
    pub(crate) bound: Bound,
}

impl PairedRatio {
    /// In the rounds that have both; numbers are above 0.
    pub(crate) fn of(above: &Rounds, below: &Rounds) -> PairedRatio {
        let quotients = paired(above, below, |above, below| (above / below).ln());
        let (logs, bounds): (Vec<f64>, Vec<Bound>) = quotients.into_values().unzip();
        PairedRatio { logs, bound: bounds.into_iter().collect() }
    }

    /// The geometric mean with its interval; `None`: there are too few rounds.
    pub(crate) fn interval(&self, level: f64) -> Option<Interval> {
        let curve = Curve::of_rounds(&self.logs, AverageScale::Log)?;
        Some(curve.bounded(self.bound).interval(level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_the_rounds_of_both_and_is_a_bound_if_one_number_is() {
        let above = (1..9).map(|round| (round, (8.0, Bound::Exact))).collect();
        let mut below: Rounds = (2..10).map(|round| (round, (4.0, Bound::Exact))).collect();
        let ratio = PairedRatio::of(&above, &below);
        assert_eq!((ratio.logs.len(), ratio.bound), (7, Bound::Exact));
        let interval = ratio.interval(0.95).unwrap();
        assert!((interval.value - 2.0).abs() < 1e-9, "{interval:?}");
        below.insert(3, (4.0, Bound::AtLeast));
        assert_eq!(PairedRatio::of(&above, &below).bound, Bound::AtMost);
        assert_eq!(PairedRatio::of(&above, &Rounds::new()).interval(0.95), None);
    }
}
