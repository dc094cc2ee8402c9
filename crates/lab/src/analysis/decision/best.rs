//! Which of several candidates is not the best: one rule for whoever compares candidates.

use crate::analysis::curve::{AverageScale, Curve, Extreme};
use crate::analysis::estimate::best::best;
use crate::analysis::estimate::simultaneous::{DRAWS, simultaneous};
use crate::analysis::{Bound, FEWEST_ROUNDS};

/// The probability that the best of the candidates is ruled out, which is shared by all comparisons that could do it.
pub const FAMILY: f64 = 0.05;

/// A candidate ÷ the best of the others.
#[derive(Clone, Debug)]
pub struct BesideBest {
    curve: Curve,
    best: Extreme,
}

impl BesideBest {
    /// `values` holds each candidate's values in the same rounds; `best` says which of them is the best, the greatest or the
    /// least.
    ///
    /// These are multiple comparisons with the best (J. C. Hsu, "Simultaneous confidence intervals for all distances
    /// from the best", Annals of Statistics 9, 1981), with max-t bounds for each candidate and Bonferroni's
    /// correction over candidates ([`FAMILY`] ÷ their number). `None`: there are fewer than two candidates, or fewer
    /// than six rounds.
    pub fn of(values: &[Vec<(f64, Bound)>], at: usize, best_is: Extreme) -> Option<BesideBest> {
        let own = values.get(at).filter(|own| own.len() >= FEWEST_ROUNDS)?;
        let others = values.iter().enumerate().filter(|(other, _)| *other != at);
        let (contrasts, bounds): (Vec<Vec<f64>>, Vec<Bound>) =
            others.map(|(_, other)| log_ratio(own, other)).unzip();
        let curves = simultaneous(&contrasts, AverageScale::Log, DRAWS)?;
        let curves = std::iter::zip(curves, bounds).map(|(curve, bound)| curve.bounded(bound));
        // The greatest ratio is the ratio to the best of the others if the least value is the best.
        let hardest = match best_is {
            Extreme::Least => Extreme::Greatest,
            Extreme::Greatest => Extreme::Least,
        };
        let curve = best(vec![curves.collect()], hardest, hardest)?;
        Some(BesideBest { curve, best: best_is })
    }

    /// The probability of values like these if the candidate were no worse than the best of the others.
    pub fn p_worse(&self) -> f64 {
        match self.best {
            Extreme::Least => self.curve.p_above(1.0),
            Extreme::Greatest => self.curve.p_below(1.0),
        }
    }

    /// By what factor the candidate is worse; below 1, it is the best.
    pub fn factor(&self) -> f64 {
        match self.best {
            Extreme::Least => self.curve.value(),
            Extreme::Greatest => 1.0 / self.curve.value(),
        }
    }
}

/// One candidate ÷ another, by round, on a logarithmic scale; and whether their quotient is exact or a bound.
fn log_ratio(of: &[(f64, Bound)], against: &[(f64, Bound)]) -> (Vec<f64>, Bound) {
    let pair = |((of, above), (against, below)): (&(f64, Bound), &(f64, Bound))| {
        (of.ln() - against.ln(), above.over(*below))
    };
    let (logs, bounds): (Vec<f64>, Vec<Bound>) = std::iter::zip(of, against).map(pair).unzip();
    (logs, bounds.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(value: f64) -> Vec<(f64, Bound)> {
        [1.0, -0.8, 0.4, -0.5, 0.7, -0.9]
            .iter()
            .map(|it| (value * (1.0 + 0.01 * it), Bound::Exact))
            .collect()
    }

    #[test]
    fn who_is_worse_is_so_against_the_best_of_the_others_in_either_direction() {
        let values = [about(10.0), about(12.0), about(30.0)];
        let beside = |at, best| BesideBest::of(&values, at, best).unwrap();
        assert!((beside(1, Extreme::Least).factor() - 1.2).abs() < 0.02);
        assert!((beside(1, Extreme::Greatest).factor() - 2.5).abs() < 0.03);
        let ruled_out = |best| [0, 1, 2].map(|at| beside(at, best).p_worse() <= FAMILY / 3.0);
        assert_eq!(ruled_out(Extreme::Least), [false, true, true]);
        assert_eq!(ruled_out(Extreme::Greatest), [true, true, false]);
    }

    /// A generator at its limit gives a lower bound of what a server can do.
    #[test]
    fn a_bound_rules_out_only_in_its_direction() {
        let at_least = |value| about(value).into_iter().map(|(it, _)| (it, Bound::AtLeast));
        let slow = [at_least(10.0).collect(), about(12.0)];
        assert!(BesideBest::of(&slow, 0, Extreme::Greatest).unwrap().p_worse() > FAMILY);
        let fast = [about(10.0), at_least(12.0).collect()];
        assert!(BesideBest::of(&fast, 0, Extreme::Greatest).unwrap().p_worse() <= FAMILY / 2.0);
    }

    #[test]
    fn one_candidate_and_few_rounds_are_not_compared() {
        assert!(BesideBest::of(&[about(1.0)], 0, Extreme::Least).is_none());
        let few = [about(1.0)[..5].to_vec(), about(2.0)[..5].to_vec()];
        assert!(BesideBest::of(&few, 0, Extreme::Least).is_none());
    }
}
