//! How many rounds a decision needs, and what a number of rounds can find.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::gamma::ln_gamma;

use crate::analysis::FEWEST_ROUNDS;
use crate::analysis::student::t_quantile;

/// The share of experiments that are to find what is there.
pub const POWER: f64 = 0.8;

/// More rounds than this are not worth promising.
pub const MOST_ROUNDS: usize = 1000;

/// The probability that the t test over `rounds` decides for the right side, at a two-sided size, when
/// the truth is `distance` standard deviations of one round away from the bound.
///
/// The upper tail of the noncentral t distribution (N. L. Johnson, S. Kotz, N. Balakrishnan, *Continuous
/// Univariate Distributions*, vol. 2, 2nd ed. 1995, ch. 31): the integral over the estimated deviation u of
/// Φ(distance·√n − t·u), by Simpson's rule.
pub fn power(distance: f64, rounds: usize, size: f64) -> f64 {
    let freedom = rounds as f64 - 1.0;
    let critical = t_quantile(size / 2.0, freedom);
    let shift = distance.abs() * (rounds as f64).sqrt();
    let normal = standard_normal();
    let sum: f64 = deviations(rounds)
        .iter()
        .map(|(u, weight)| weight * normal.cdf(shift - critical * u))
        .sum();
    sum.clamp(0.0, 1.0)
}

fn standard_normal() -> Normal {
    Normal::new(0.0, 1.0).expect("a standard deviation of 1")
}

/// Estimated deviations, each with its weight in an integral.
type Deviations = Rc<[(f64, f64)]>;

/// The estimated deviations of so many rounds, in true ones, at which the integral is evaluated, each with
/// the density there times its weight in Simpson's rule.
fn deviations(rounds: usize) -> Deviations {
    thread_local! {
        /// By the number of rounds: a search evaluates the integral for the same ones again and again.
        static FOUND: RefCell<HashMap<usize, Deviations>> = RefCell::default();
    }
    FOUND.with_borrow_mut(|found| {
        Rc::clone(found.entry(rounds).or_insert_with(|| find_deviations(rounds as f64 - 1.0)))
    })
}

fn find_deviations(freedom: f64) -> Deviations {
    // u = √(χ²/ν) has the density 2 (ν/2)^(ν/2) / Γ(ν/2) · u^(ν−1) · exp(−ν u²/2).
    let half = freedom / 2.0;
    let constant = 2f64.ln() + half * half.ln() - ln_gamma(half);
    let density = |u: f64| (constant + (freedom - 1.0) * u.ln() - half * u * u).exp();
    let reach = 6.0 / (2.0 * freedom).sqrt();
    let (low, high) = ((1.0 - reach).max(1e-6), 1.0 + reach);
    let steps = 64;
    let step = (high - low) / f64::from(steps);
    let at = |at: i32| {
        let u = low + step * f64::from(at);
        let weight = match at {
            0 => 1.0,
            at if at == steps => 1.0,
            at if at % 2 == 1 => 4.0,
            _ => 2.0,
        };
        (u, weight * density(u) * step / 3.0)
    };
    (0..=steps).map(at).collect()
}

/// The fewest rounds with which four of five experiments decide; `None`: more than [`MOST_ROUNDS`].
pub fn rounds_needed(distance: f64, size: f64) -> Option<usize> {
    if distance.is_nan() {
        return None;
    }
    let normal = standard_normal();
    // With a known deviation so many would do; an estimated one takes a few more.
    let sum = normal.inverse_cdf(POWER) - normal.inverse_cdf(size / 2.0);
    let fewest = (sum / distance).powi(2).floor();
    if fewest >= MOST_ROUNDS as f64 {
        return None;
    }
    let fewest = FEWEST_ROUNDS.max(fewest as usize);
    let suffices = |rounds: &usize| power(distance, *rounds, size) >= POWER;
    // An estimated deviation takes about z²/2 more (W. C. Guenther, "Sample size formulas for normal theory
    // t tests", The American Statistician 35, 1981): the search begins there.
    let more = normal.inverse_cdf(size / 2.0).powi(2) / 2.0;
    let guess = (fewest + more as usize).min(MOST_ROUNDS);
    match suffices(&guess) {
        true => (fewest..guess).rev().take_while(suffices).last().or(Some(guess)),
        false => (guess + 1..=MOST_ROUNDS).find(suffices),
    }
}

/// The smallest distance, in standard deviations of one round, that four of five experiments with this
/// many rounds find.
pub fn smallest_distance(rounds: usize, size: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while power(high, rounds, size) < POWER {
        high *= 2.0;
    }
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if power(middle, rounds, size) < POWER { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::curve::{AverageScale, Curve};
    use crate::analysis::noise::{covered, normal};

    #[test]
    fn the_power_is_that_of_the_tables() {
        // Cohen's d and pairs for a power of 0.8 at 5 %, two-sided, as G*Power 3.1 gives them.
        for (distance, rounds) in [(0.5, 34), (0.8, 15), (1.0, 10), (1.5, 6)] {
            assert_eq!(rounds_needed(distance, 0.05), Some(rounds), "{distance}");
        }
        assert_eq!(rounds_needed(0.01, 0.05), None);
        assert_eq!(rounds_needed(f64::NAN, 0.05), None);
        assert_eq!(rounds_needed(100.0, 0.05), Some(FEWEST_ROUNDS));
    }

    #[test]
    fn simulated_experiments_decide_as_often_as_the_power_says() {
        for (distance, rounds) in [(1.5, 6), (1.0, 10)] {
            let share = covered(1000, 1, |random| {
                let values: Vec<f64> = (0..rounds).map(|_| distance + normal(random)).collect();
                Curve::of_rounds(&values, AverageScale::Linear).unwrap().p_above(0.0) <= 0.025
            });
            assert!((share - power(distance, rounds, 0.05)).abs() < 0.04, "{rounds}: {share}");
        }
    }

    #[test]
    fn the_smallest_distance_is_the_one_that_needs_these_rounds() {
        for rounds in [6, 10, 20] {
            let distance = smallest_distance(rounds, 0.05);
            assert!((power(distance, rounds, 0.05) - POWER).abs() < 1e-6);
            assert_eq!(rounds_needed(distance * 1.0001, 0.05), Some(rounds));
        }
    }
}
