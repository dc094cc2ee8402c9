//! Values that are bounds: what a measurement says that was limited by something other than its subject.
//!
//! A load generator that uses all of its processors measures a rate that the subject exceeds: the value
//! is *right-censored*. Replacing a censored value by its bound and averaging gives a bound of the
//! average, so a one-sided confidence limit stays valid on the side of the bound and there is none on
//! the other (J. P. Klein, M. L. Moeschberger, *Survival Analysis*, 2nd ed. 2003, ch. 3).

use serde::Serialize;

/// What a number says of a quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// It is the quantity.
    #[default]
    Exact,
    /// The quantity is this or more.
    AtLeast,
    /// The quantity is this or less.
    AtMost,
    /// Nothing: a quotient of two lower bounds, for instance.
    Unknown,
}

impl Bound {
    /// Whether the number bounds the quantity from below.
    pub fn bounds_below(self) -> bool {
        matches!(self, Bound::Exact | Bound::AtLeast)
    }

    /// Whether the number bounds the quantity from above.
    pub fn bounds_above(self) -> bool {
        matches!(self, Bound::Exact | Bound::AtMost)
    }

    /// What a sum or a mean of two such numbers says of the sum or mean of the quantities.
    #[must_use]
    pub fn and(self, other: Bound) -> Bound {
        let below = self.bounds_below() && other.bounds_below();
        let above = self.bounds_above() && other.bounds_above();
        match (below, above) {
            (true, true) => Bound::Exact,
            (true, false) => Bound::AtLeast,
            (false, true) => Bound::AtMost,
            (false, false) => Bound::Unknown,
        }
    }

    /// What the reciprocal says of the quantity's reciprocal.
    #[must_use]
    pub fn inverse(self) -> Bound {
        match self {
            Bound::AtLeast => Bound::AtMost,
            Bound::AtMost => Bound::AtLeast,
            same => same,
        }
    }

    /// What the quotient of two such numbers says of the quotient of the quantities.
    #[must_use]
    pub fn over(self, other: Bound) -> Bound {
        self.and(other.inverse())
    }
}

impl FromIterator<Bound> for Bound {
    /// What the mean of numbers says that are such bounds.
    fn from_iter<T: IntoIterator<Item = Bound>>(bounds: T) -> Bound {
        bounds.into_iter().fold(Bound::Exact, Bound::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Bound::{AtLeast, AtMost, Exact, Unknown};

    #[test]
    fn a_quotient_is_bounded_by_what_bounds_both() {
        for (of, against, quotient) in [
            (Exact, Exact, Exact),
            (AtLeast, Exact, AtLeast),
            (Exact, AtLeast, AtMost),
            (AtLeast, AtLeast, Unknown),
            (AtLeast, AtMost, AtLeast),
            (AtMost, AtLeast, AtMost),
            (Unknown, Exact, Unknown),
        ] {
            assert_eq!(of.over(against), quotient, "{of:?} over {against:?}");
        }
    }

    #[test]
    fn one_bound_makes_the_mean_a_bound() {
        assert_eq!([Exact, AtLeast, Exact].into_iter().collect::<Bound>(), AtLeast);
        assert_eq!([AtMost, AtLeast].into_iter().collect::<Bound>(), Unknown);
        assert_eq!([].into_iter().collect::<Bound>(), Exact);
    }
}
