//! The verdict on one effect, from its values by round. It depends on the region that the claim names, the null value
//! (no effect), and the sizes of the tests.

use crate::analysis::decision::equivalence::{p_outside, p_within};
use crate::analysis::decision::power::rounds_needed;
use crate::analysis::{AverageScale, Curve};
use crate::spec::claim::Region;

use super::verdict::{Size, Verdict};

/// A ratio counts as none if it is within this factor of 1.
pub const RATIO_MARGIN: f64 = 1.05;

/// An exponent counts as none if it is within this distance of 0.
const LINEAR_MARGIN: f64 = 0.1;

/// In which region the effect lies if the claim is true, and the null value: the value of no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Criterion {
    /// The claim's region.
    pub(super) region: Region,
    /// The null value; `None`: the effect has none.
    pub(super) null: Option<f64>,
    /// The scale of the effect.
    pub(super) scale: AverageScale,
}

/// The two-sided sizes of the tests behind a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// For being in the region.
    pub holds: f64,
    /// For being outside the region.
    pub against: f64,
    /// For the direction of an effect outside the region, and for the absence of an effect.
    pub direction: f64,
}

impl Sizes {
    /// One size for all.
    pub const fn all(size: f64) -> Sizes {
        Sizes { holds: size, against: size, direction: size }
    }
}

/// On which side of the null value the claim's region lies.
enum Kind {
    /// The region is above the null value.
    Above(f64),
    /// The region is below the null value.
    Below(f64),
    /// The region encloses the null value, or there is no null value.
    Sameness,
}

impl Criterion {
    fn low(&self) -> f64 {
        self.region.above.unwrap_or(f64::NEG_INFINITY)
    }

    fn high(&self) -> f64 {
        self.region.below.unwrap_or(f64::INFINITY)
    }

    fn kind(&self) -> Kind {
        match self.null {
            Some(null) if null <= self.low() => Kind::Above(null),
            Some(null) if null >= self.high() => Kind::Below(null),
            _ => Kind::Sameness,
        }
    }

    /// The one-sided p-values of two null hypotheses: the effect is outside the region, and the effect is in the
    /// region. The first is small where the claim holds, the second where the claim does not hold.
    pub(super) fn p(&self, curve: &Curve) -> (f64, f64) {
        (p_within(curve, self.low(), self.high()), p_outside(curve, self.low(), self.high()))
    }

    /// The verdict on one effect; `None` if the interval crosses an end of the region.
    pub(super) fn decide(&self, curve: &Curve, sizes: Sizes) -> Option<Verdict> {
        let (outside, inside) = self.p(curve);
        if outside <= sizes.holds / 2.0 {
            return Some(Verdict::Holds);
        }
        let is_below = curve.value() < self.low();
        match self.kind() {
            Kind::Sameness if inside <= sizes.against / 2.0 => {
                let size = if is_below { Size::Smaller } else { Size::Larger };
                Some(Verdict::Differs { size })
            }
            Kind::Sameness => None,
            Kind::Above(null) => {
                self.directed(curve, sizes, null, inside, is_below, Curve::p_above, Curve::p_below)
            }
            Kind::Below(null) => {
                let falls_short = curve.value() > self.high();
                self.directed(
                    curve,
                    sizes,
                    null,
                    inside,
                    falls_short,
                    Curve::p_below,
                    Curve::p_above,
                )
            }
        }
    }

    /// The verdict of a claim that names a direction. `towards` tests whether the effect is on the claim's side of a
    /// bound, `away` whether the effect is on the other side.
    #[expect(clippy::too_many_arguments, reason = "the two directions differ in nothing else")]
    fn directed(
        &self,
        curve: &Curve,
        sizes: Sizes,
        null: f64,
        inside: f64,
        falls_short: bool,
        towards: fn(&Curve, f64) -> f64,
        away: fn(&Curve, f64) -> f64,
    ) -> Option<Verdict> {
        let (low, high) = self.margins(null);
        let has_direction = |p: f64| p <= sizes.direction / 2.0;
        if has_direction(p_within(curve, low, high)) {
            return Some(Verdict::NoEffect);
        }
        if has_direction(away(curve, null)) && curve.value() != null {
            return Some(Verdict::Opposite);
        }
        if inside > sizes.against / 2.0 {
            return None;
        }
        Some(match (falls_short, has_direction(towards(curve, null))) {
            (false, _) => Verdict::SameDirection { size: Size::Larger },
            (true, true) => Verdict::SameDirection { size: Size::Smaller },
            (true, false) => Verdict::SmallerOrNone,
        })
    }

    /// The range of effects that count as none: a margin around the null value, at most half-way to the region.
    fn margins(&self, null: f64) -> (f64, f64) {
        let (to, from) = (|effect| self.scale.to(effect), |scaled| self.scale.from(scaled));
        let usual = match self.scale {
            AverageScale::Log => RATIO_MARGIN.ln(),
            AverageScale::Linear => LINEAR_MARGIN,
        };
        let near = if null <= self.low() { self.low() } else { self.high() };
        let gap = (to(near) - to(null)).abs();
        let margin = if gap == 0.0 { usual } else { usual.min(gap / 2.0) };
        (from(to(null) - margin), from(to(null) + margin))
    }

    /// The verdict of an interval that crosses an end of the region.
    pub(super) fn too_noisy(&self, curve: &Curve, sizes: Sizes) -> Verdict {
        let ends = [self.region.above, self.region.below];
        // The interval crosses the nearest end.
        let distances = ends.into_iter().flatten().map(|end| curve.distance(end).abs());
        let nearest = distances.fold(f64::INFINITY, f64::min);
        let direction_shown = match self.kind() {
            Kind::Above(null) => curve.p_above(null) <= sizes.direction / 2.0,
            Kind::Below(null) => curve.p_below(null) <= sizes.direction / 2.0,
            Kind::Sameness => false,
        };
        Verdict::TooNoisy { rounds: rounds_needed(nearest, sizes.holds), direction_shown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(centre: f64, spread: f64) -> Curve {
        let rounds =
            [-1.0, 1.0, -0.5, 0.5, -0.8, 0.8, 0.0, 0.0].map(|at| centre.ln() + spread * at);
        Curve::of_rounds(&rounds, AverageScale::Log).unwrap()
    }

    fn verdict(region: (Option<f64>, Option<f64>), centre: f64, spread: f64) -> &'static str {
        let region = Region { above: region.0, below: region.1 };
        let criterion = Criterion { region, null: Some(1.0), scale: AverageScale::Log };
        let (curve, sizes) = (curve(centre, spread), Sizes::all(0.05));
        let decided = criterion.decide(&curve, sizes);
        decided.unwrap_or_else(|| criterion.too_noisy(&curve, sizes)).word()
    }

    #[test]
    fn an_effect_has_one_verdict_for_each_place_it_can_have() {
        let above = (Some(1.5), Some(3.0));
        for (centre, spread, word) in [
            (2.0, 0.02, "holds"),
            (5.0, 0.02, "same direction, larger"),
            (1.2, 0.02, "same direction, smaller"),
            (1.0, 0.02, "no effect"),
            (1.08, 0.15, "smaller or none"),
            (0.7, 0.02, "opposite"),
            (1.5, 0.02, "too noisy"),
            (1.5, 1.0, "too noisy"),
        ] {
            assert_eq!(verdict(above, centre, spread), word, "{centre} ± {spread}");
            // The reciprocal effect and the reciprocal region have the same verdict.
            assert_eq!(verdict((Some(1.0 / 3.0), Some(1.0 / 1.5)), 1.0 / centre, spread), word);
        }
        for (centre, word) in [(1.0, "holds"), (1.5, "differs: more"), (0.5, "differs: less")] {
            assert_eq!(verdict((Some(0.8), Some(1.25)), centre, 0.02), word);
        }
        assert_eq!(verdict((Some(0.8), Some(1.25)), 1.0, 1.0), "too noisy");
    }

    #[test]
    fn a_region_that_begins_at_nothing_has_no_smaller_effect() {
        for (centre, word) in [(1.005, "no effect"), (1.3, "holds"), (0.8, "opposite")] {
            assert_eq!(verdict((Some(1.0), None), centre, 0.03), word, "{centre}");
        }
    }

    #[test]
    fn what_is_too_noisy_says_how_many_rounds_would_do() {
        let region = Region { above: Some(1.2), below: None };
        let criterion = Criterion { region, null: Some(1.0), scale: AverageScale::Log };
        let needed = |centre: f64| match criterion.too_noisy(&curve(centre, 0.2), Sizes::all(0.05))
        {
            Verdict::TooNoisy { rounds, direction_shown } => (rounds, direction_shown),
            other => panic!("{other:?}"),
        };
        let (rounds, direction_shown) = needed(1.3);
        assert!((10..40).contains(&rounds.unwrap()) && direction_shown, "{rounds:?}");
        assert_eq!(needed(1.2001), (None, true));
    }

    #[test]
    fn a_number_without_noise_is_judged_by_the_same_criterion() {
        let region = Region { above: Some(2.4), below: None };
        let criterion = Criterion { region, null: Some(1.0), scale: AverageScale::Log };
        let decide =
            |effect| criterion.decide(&Curve::exact(effect, AverageScale::Log), Sizes::all(0.05));
        assert_eq!(decide(2.4), Some(Verdict::Holds));
        assert_eq!(decide(2.39), Some(Verdict::SameDirection { size: Size::Smaller }));
        assert_eq!(decide(1.0), Some(Verdict::NoEffect));
        assert_eq!(decide(0.5), Some(Verdict::Opposite));
    }
}
