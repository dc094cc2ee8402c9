//! What rounds say of an effect at every level of confidence: an interval for each level, and a
//! p-value for each bound.
//!
//! This is a *confidence curve* (T. Schweder, N. L. Hjort, *Confidence, Likelihood, Probability*, 2016,
//! §3): the interval at level 1 − α consists of the effects that no one-sided test of size α/2 rejects.
//! It lets one analysis serve a claim's own interval, an equivalence test and a correction for many
//! claims.

use std::sync::Arc;

use serde::Serialize;

use super::censored::Bound;
use super::max_t::MaxT;
use super::ratio_of_means::RatioOfMeans;
use super::student::{t_quantile, t_tail};
use super::summary::{deviation, mean};
use super::{FEWEST_COUNTED, FEWEST_ROUNDS};

/// An estimate with the interval that covers the truth at this level of confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower end; −∞ (0 for a ratio) where nothing bounds the effect from below.
    pub low: f64,
    /// The upper end; ∞ where nothing bounds the effect from above.
    pub high: f64,
    /// The level of confidence, 0.95 for instance.
    pub level: f64,
}

impl Interval {
    /// Whether the value is in the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The scale on which rounds are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AverageScale {
    /// As it is: exponents, shares.
    Linear,
    /// Logarithms: ratios, and quantities that vary by factors.
    Log,
}

impl AverageScale {
    /// The effect on this scale; a logarithm of nothing is −∞.
    pub fn to(self, effect: f64) -> f64 {
        match self {
            AverageScale::Linear => effect,
            AverageScale::Log => effect.max(0.0).ln(),
        }
    }

    /// The effect back from this scale.
    pub fn from(self, scaled: f64) -> f64 {
        match self {
            AverageScale::Linear => scaled,
            AverageScale::Log => scaled.exp(),
        }
    }
}

/// Where intervals and p-values come from.
#[derive(Clone, Debug)]
enum Form {
    /// Student's t: the standard error and the degrees of freedom. With `joint`, the estimate is one of
    /// several that are judged together.
    T { error: f64, freedom: f64, joint: Option<Arc<MaxT>> },
    /// Student's t of a ratio of means.
    Ratio(RatioOfMeans),
    /// The greatest of several effects, or the least.
    Extreme { members: Vec<Curve>, extreme: Extreme },
    /// A number without noise.
    Exact,
    /// A number that was counted again and again, and its certainty: bounds nearer than `reach` are not certain.
    Counted { half_range: f64, reach: f64 },
}

/// Which of several effects counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The greatest.
    Greatest,
    /// The least.
    Least,
}

/// Which member's bound counts, and whether all members have to be considered for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// Each member's bound as if it were alone.
    Alone,
    /// Bounds that hold for all members together.
    Together,
}

/// What rounds say of an effect at every level of confidence.
#[derive(Clone, Debug)]
pub struct Curve {
    scale: AverageScale,
    centre: f64,
    rounds: usize,
    form: Form,
    bound: Bound,
}

impl Curve {
    /// Student's t over one value per round, each on this scale already.
    ///
    /// `None` of fewer than [`FEWEST_ROUNDS`], or if a value is not finite. ("Student", "The probable
    /// error of a mean", Biometrika 6, 1908.)
    pub fn of_rounds(scaled: &[f64], scale: AverageScale) -> Option<Curve> {
        Curve::of_few_rounds(scaled, scale).filter(|curve| curve.rounds >= FEWEST_ROUNDS)
    }

    /// The same of two rounds or more, for a first answer: t is wide enough for few rounds, but so few
    /// rounds cannot show whether their noise is of the kind that t is for.
    ///
    /// `None` of fewer than two rounds, or if a value is not finite.
    pub fn of_few_rounds(scaled: &[f64], scale: AverageScale) -> Option<Curve> {
        if scaled.len() < 2 || !scaled.iter().all(|value| value.is_finite()) {
            return None;
        }
        let rounds = scaled.len();
        let error = deviation(scaled) / (rounds as f64).sqrt();
        let form = Form::T { error, freedom: rounds as f64 - 1.0, joint: None };
        Some(Curve { scale, centre: mean(scaled), rounds, form, bound: Bound::Exact })
    }

    /// Welch's t over two samples that have no round in common, each value on this scale already: the mean of
    /// the first minus that of the second. Of its rounds the smaller number counts.
    ///
    /// `None` of fewer than [`FEWEST_ROUNDS`] on a side, or if a value is not finite.
    pub(super) fn of_samples(above: &[f64], below: &[f64], scale: AverageScale) -> Option<Curve> {
        let rounds = above.len().min(below.len());
        if rounds < FEWEST_ROUNDS || !above.iter().chain(below).all(|value| value.is_finite()) {
            return None;
        }
        let of_mean = |sample: &[f64]| deviation(sample).powi(2) / sample.len() as f64;
        let (one, other) = (of_mean(above), of_mean(below));
        let beside = |sample: &[f64]| sample.len() as f64 - 1.0;
        let error = (one + other).sqrt();
        let freedom = match error > 0.0 {
            true => {
                (one + other).powi(2)
                    / (one.powi(2) / beside(above) + other.powi(2) / beside(below))
            }
            false => beside(above) + beside(below),
        };
        let form = Form::T { error, freedom, joint: None };
        let centre = mean(above) - mean(below);
        Some(Curve { scale, centre, rounds, form, bound: Bound::Exact })
    }

    /// A number without noise: what a document states.
    pub fn exact(effect: f64, scale: AverageScale) -> Curve {
        Curve::exact_scaled(scale.to(effect), scale)
    }

    /// A number without noise that is on this scale already.
    pub fn exact_scaled(scaled: f64, scale: AverageScale) -> Curve {
        Curve { scale, centre: scaled, rounds: 0, form: Form::Exact, bound: Bound::Exact }
    }

    /// A number that is counted anew in each round, each on this scale already. It is certain to be on one side of a
    /// bound that is three times the difference of the rounds away; its interval goes from the least to the greatest.
    ///
    /// `None` of fewer than two rounds, or if a value is not finite.
    pub fn counted(scaled: &[f64], scale: AverageScale) -> Option<Curve> {
        if scaled.len() < FEWEST_COUNTED || !scaled.iter().all(|value| value.is_finite()) {
            return None;
        }
        let low = scaled.iter().copied().fold(f64::INFINITY, f64::min);
        let high = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let form = Form::Counted { half_range: (high - low) / 2.0, reach: 3.0 * (high - low) };
        let rounds = scaled.len();
        Some(Curve { scale, centre: f64::midpoint(low, high), rounds, form, bound: Bound::Exact })
    }

    /// The ratio of two means over rounds, on a logarithmic scale.
    pub(super) fn of_ratio(ratio: RatioOfMeans, rounds: usize) -> Curve {
        let centre = ratio.estimate().ln();
        let form = Form::Ratio(ratio);
        Curve { scale: AverageScale::Log, centre, rounds, form, bound: Bound::Exact }
    }

    /// The same estimate as one of several that are judged together.
    pub(super) fn jointly(mut self, together: Arc<MaxT>) -> Curve {
        if let Form::T { joint, .. } = &mut self.form {
            *joint = Some(together);
        }
        self
    }

    /// The greatest or the least of several effects; see [`super::estimate::best`]. `None` of none.
    pub fn extreme(members: Vec<Curve>, extreme: Extreme) -> Option<Curve> {
        let first = members.first()?;
        let (scale, rounds) = (first.scale, first.rounds);
        let centres = members.iter().map(|member| member.centre);
        let centre = match extreme {
            Extreme::Greatest => centres.fold(f64::NEG_INFINITY, f64::max),
            Extreme::Least => centres.fold(f64::INFINITY, f64::min),
        };
        let form = Form::Extreme { members, extreme };
        Some(Curve { scale, centre, rounds, form, bound: Bound::Exact })
    }

    /// The same as a bound only: an effect that is at least what was measured has no upper end.
    pub fn bounded(self, bound: Bound) -> Curve {
        Curve { bound, ..self }
    }

    /// What the estimate says of the effect: itself, or a bound of it.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// The estimate.
    pub fn value(&self) -> f64 {
        self.scale.from(self.centre)
    }

    /// Whether the effect is counted ([`Curve::counted`]), so that it is certain or open, and never so by chance.
    pub fn is_counted(&self) -> bool {
        match &self.form {
            Form::Counted { .. } => true,
            Form::Extreme { members, .. } => members.iter().all(Curve::is_counted),
            _ => false,
        }
    }

    /// The number of rounds behind it; 0 for a number without noise.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// How far the estimate is above `bound`, in standard deviations of one round; negative below it.
    /// NaN on the bound without noise.
    pub fn distance(&self, bound: f64) -> f64 {
        let root = (self.rounds as f64).sqrt();
        let apart = self.centre - self.scale.to(bound);
        match &self.form {
            Form::T { error, .. } => apart / (error * root),
            Form::Ratio(ratio) => ratio.t(bound) / root,
            Form::Exact | Form::Counted { .. } => apart / 0.0,
            Form::Extreme { members, .. } => members
                .iter()
                .min_by(|a, b| {
                    let off = |member: &Curve| (member.centre - self.centre).abs();
                    off(a).total_cmp(&off(b))
                })
                .map_or(f64::NAN, |member| member.distance(bound)),
        }
    }

    /// The interval at this level of confidence, equal tails.
    pub fn interval(&self, level: f64) -> Interval {
        let members = self.members();
        Interval {
            value: self.value(),
            low: self.scale.from(self.lower(level, members)),
            high: self.scale.from(self.upper(level, members)),
            level,
        }
    }

    /// One of several effects that are shown together is bounded together with them; of the members of
    /// an extreme, only those bounds that need it are.
    fn members(&self) -> Members {
        match self.form {
            Form::Extreme { .. } => Members::Alone,
            _ => Members::Together,
        }
    }

    /// The lower end on the curve's scale. The greatest effect is above a bound if any member is, so
    /// that the members' bounds have to hold together; the least is if every member is, and each
    /// may stand alone (the intersection–union test: R. L. Berger, Technometrics 24, 1982).
    fn lower(&self, level: f64, members: Members) -> f64 {
        if !self.bound.bounds_below() {
            return f64::NEG_INFINITY;
        }
        match &self.form {
            Form::Extreme { members: all, extreme: Extreme::Greatest } => all
                .iter()
                .map(|one| one.lower(level, Members::Together))
                .fold(f64::NEG_INFINITY, f64::max),
            Form::Extreme { members: all, extreme: Extreme::Least } => {
                all.iter().map(|one| one.lower(level, members)).fold(f64::INFINITY, f64::min)
            }
            Form::Ratio(ratio) => ratio.interval(level).0.ln(),
            _ => self.centre - self.half_width(level, members),
        }
    }

    /// The upper end on the curve's scale.
    fn upper(&self, level: f64, members: Members) -> f64 {
        if !self.bound.bounds_above() {
            return f64::INFINITY;
        }
        match &self.form {
            Form::Extreme { members: all, extreme: Extreme::Least } => all
                .iter()
                .map(|one| one.upper(level, Members::Together))
                .fold(f64::INFINITY, f64::min),
            Form::Extreme { members: all, extreme: Extreme::Greatest } => {
                all.iter().map(|one| one.upper(level, members)).fold(f64::NEG_INFINITY, f64::max)
            }
            Form::Ratio(ratio) => ratio.interval(level).1.ln(),
            _ => self.centre + self.half_width(level, members),
        }
    }

    fn half_width(&self, level: f64, members: Members) -> f64 {
        match &self.form {
            Form::T { error, freedom, joint: Some(joint) } if members == Members::Together => {
                error * joint.quantile(level, *freedom)
            }
            Form::T { error, freedom, .. } => error * t_quantile((1.0 - level) / 2.0, *freedom),
            Form::Counted { half_range, .. } => *half_range,
            _ => 0.0,
        }
    }

    /// The p-value of "the effect is `bound` or less": small where it is above.
    pub fn p_above(&self, bound: f64) -> f64 {
        self.p(bound, Side::Above, self.members())
    }

    /// The p-value of "the effect is `bound` or more": small where it is below.
    pub fn p_below(&self, bound: f64) -> f64 {
        self.p(bound, Side::Below, self.members())
    }

    fn p(&self, bound: f64, side: Side, members: Members) -> f64 {
        let (is_bounded, sign, open) = match side {
            Side::Above => (self.bound.bounds_below(), 1.0, f64::NEG_INFINITY),
            Side::Below => (self.bound.bounds_above(), -1.0, f64::INFINITY),
        };
        let distance = sign * (self.centre - self.scale.to(bound));
        if bound == open {
            return 0.0;
        }
        if !is_bounded {
            return 1.0;
        }
        // Without noise, a number on the bound counts as beyond it: regions contain their ends.
        let certain = if distance >= 0.0 { 0.0 } else { 1.0 };
        match &self.form {
            Form::Exact => certain,
            Form::Counted { reach, .. } if distance.abs() < *reach => 1.0,
            Form::Counted { .. } => certain,
            Form::T { error, .. } if *error == 0.0 => certain,
            Form::T { error, freedom, joint: Some(joint) } if members == Members::Together => {
                joint.tail(distance / error, *freedom)
            }
            Form::T { error, freedom, .. } => t_tail(distance / error, *freedom),
            Form::Ratio(ratio) => t_tail(sign * ratio.t(bound), ratio.freedom()),
            Form::Extreme { members: all, extreme } => match (extreme, side) {
                (Extreme::Greatest, Side::Above) | (Extreme::Least, Side::Below) => {
                    all.iter().map(|one| one.p(bound, side, Members::Together)).fold(1.0, f64::min)
                }
                _ => all.iter().map(|one| one.p(bound, side, members)).fold(0.0, f64::max),
            },
        }
    }
}

/// The side of a bound on which an effect is shown to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_tails_are_those_of_the_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
        for (tail, freedom, t) in [
            (0.025, 5.0, 2.571),
            (0.05, 5.0, 2.015),
            (0.001, 5.0, 5.893),
            (0.025, 9.0, 2.262),
            (0.025, 19.0, 2.093),
            (0.001, 19.0, 3.579),
        ] {
            assert!((t_quantile(tail, freedom) - t).abs() < 1e-3, "{tail} {freedom}");
            assert!((t_tail(t, freedom) / tail - 1.0).abs() < 5e-3, "{tail} {freedom}");
        }
        // Far out, as a correction for many claims needs it: t = 9.6776 leaves 10⁻⁴ with 5 degrees.
        assert!((t_quantile(1e-4, 5.0) - 9.6776).abs() < 1e-3);
        assert!((t_tail(9.6776, 5.0) / 1e-4 - 1.0).abs() < 1e-3);
        assert!((t_quantile(1e-9, 5.0) / 98.9 - 1.0).abs() < 1e-2, "{}", t_quantile(1e-9, 5.0));
    }

    #[test]
    fn the_interval_of_six_rounds_is_the_textbook_s() {
        let rounds = [4.0, 5.0, 6.0, 7.0, 8.0, 6.0];
        let curve = Curve::of_rounds(&rounds, AverageScale::Linear).unwrap();
        let interval = curve.interval(0.95);
        // mean 6, s = √2, 2.5706 · √2 / √6 = 1.4841
        assert!((interval.value - 6.0).abs() < 1e-12);
        assert!((interval.low - 4.5159).abs() < 1e-4 && (interval.high - 7.4841).abs() < 1e-4);
        assert!((curve.p_above(interval.low) - 0.025).abs() < 1e-9);
        assert!((curve.p_below(interval.high) - 0.025).abs() < 1e-9);
    }

    #[test]
    fn a_count_is_certain_three_differences_away_from_a_bound() {
        let curve = Curve::counted(&[10.0, 10.2], AverageScale::Linear).unwrap();
        assert_eq!((curve.p_above(9.49), curve.p_below(9.49)), (0.0, 1.0));
        assert_eq!((curve.p_above(9.6), curve.p_below(9.6)), (1.0, 1.0));
        assert_eq!((curve.p_above(10.71), curve.p_below(10.71)), (1.0, 0.0));
        let interval = curve.interval(0.95);
        assert!((interval.low - 10.0).abs() < 1e-12 && (interval.high - 10.2).abs() < 1e-12);
        let same = Curve::counted(&[3.0, 3.0], AverageScale::Linear).unwrap();
        assert_eq!((same.p_above(3.0), same.p_below(2.99)), (0.0, 1.0));
        assert!(Curve::counted(&[3.0], AverageScale::Linear).is_none());
    }

    #[test]
    fn five_rounds_and_values_that_are_no_numbers_have_no_curve() {
        assert!(Curve::of_rounds(&[1.0; 5], AverageScale::Log).is_none());
        assert!(Curve::of_rounds(&[f64::NEG_INFINITY; 6], AverageScale::Log).is_none());
    }

    #[test]
    fn a_bound_is_open_on_one_side() {
        let rounds = [0.1, 0.12, 0.08, 0.1, 0.11, 0.09];
        let curve = Curve::of_rounds(&rounds, AverageScale::Log).unwrap().bounded(Bound::AtLeast);
        let interval = curve.interval(0.95);
        assert_eq!(interval.high, f64::INFINITY);
        assert!(interval.low > 1.0 && curve.p_above(1.0) < 0.001);
        assert_eq!(curve.p_below(100.0), 1.0);
        assert_eq!(curve.bounded(Bound::AtMost).interval(0.95).low, 0.0);
    }

    #[test]
    fn what_is_exact_lies_on_one_side_of_a_bound() {
        let curve = Curve::exact(2.39, AverageScale::Log);
        assert_eq!((curve.p_above(2.39), curve.p_above(2.4), curve.p_below(2.4)), (0.0, 1.0, 0.0));
        let same = Curve::of_rounds(&[0.0; 6], AverageScale::Linear).unwrap();
        assert_eq!((same.p_below(0.5), same.p_above(0.5)), (0.0, 1.0));
    }
}
