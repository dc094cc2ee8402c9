//! The verdict of a claim from the verdicts on its effects: all of them have to agree, or one.

use crate::spec::claim::Which;

use super::decide::Sizes;
use super::rows::EffectRow;
use super::verdict::{Size, Verdict};

/// The claim's verdict with tests of these sizes.
///
/// A claim says that *every* effect agrees: then each effect is tested at the full size (intersection–union test: R.
/// L. Berger, Technometrics 24, 1982), and the opposite, that one of k effects disagrees, at size/k, because any of
/// the k may raise a false alarm. A claim says that *some* effect agrees: then the sizes are exchanged.
pub(super) fn verdict(rows: &[EffectRow], which: Which, sizes: Sizes) -> Verdict {
    let sizes = shared(sizes, which, rows.len());
    of(rows.iter().map(|row| row.at(sizes)).collect(), which)
}

/// The sizes of the tests of each of k effects.
pub(super) fn shared(sizes: Sizes, which: Which, k: usize) -> Sizes {
    let k = k.max(1) as f64;
    match which {
        Which::Some => Sizes { holds: sizes.holds / k, direction: sizes.direction / k, ..sizes },
        _ => Sizes { against: sizes.against / k, direction: sizes.direction / k, ..sizes },
    }
}

/// The two-sided p-value of the decision for or against the claim; `None` if the claim cannot be tested.
pub(super) fn p(rows: &[EffectRow], which: Which) -> Option<f64> {
    let tested: Vec<(f64, f64)> = rows.iter().filter_map(EffectRow::p).collect();
    if tested.is_empty() {
        return None;
    }
    let k = rows.len() as f64;
    let all = tested.len() == rows.len();
    let greatest = |side: fn(&(f64, f64)) -> f64| match all {
        true => tested.iter().map(side).fold(0.0, f64::max),
        false => 1.0,
    };
    let least = |side: fn(&(f64, f64)) -> f64| k * tested.iter().map(side).fold(1.0, f64::min);
    let (outside, inside): (f64, f64) = match which {
        Which::Some => (least(|p| p.0), greatest(|p| p.1)),
        _ => (greatest(|p| p.0), least(|p| p.1)),
    };
    Some((2.0 * outside.min(inside)).min(1.0))
}

/// The verdict on several effects from the verdict on each.
pub(super) fn of(verdicts: Vec<Verdict>, which: Which) -> Verdict {
    let most_against = verdicts.iter().filter(|v| v.speaks_against()).max_by_key(|v| weight(v));
    let least_against = verdicts.iter().filter(|v| v.speaks_against()).min_by_key(|v| weight(v));
    let first = |wanted: fn(&Verdict) -> bool| verdicts.iter().find(|verdict| wanted(verdict));
    let not_testable = first(|verdict| matches!(verdict, Verdict::NotTestable(_)));
    let not_measured = first(|verdict| matches!(verdict, Verdict::NotMeasured));
    let holds = first(|verdict| matches!(verdict, Verdict::Holds));
    let noisy = || verdicts.iter().filter(|verdict| matches!(verdict, Verdict::TooNoisy { .. }));
    let found = match which {
        Which::Some => holds
            .or(noisy().min_by_key(|verdict| needed(verdict)))
            .or(not_testable)
            .or(not_measured)
            .or(least_against),
        _ => most_against
            .or(not_testable)
            .or(not_measured)
            .or(noisy().max_by_key(|verdict| needed(verdict)))
            .or(holds),
    };
    found.cloned().unwrap_or(Verdict::NotMeasured)
}

/// How much a verdict speaks against a claim.
fn weight(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Fails { .. } => 6,
        Verdict::Opposite => 5,
        Verdict::Differs { .. } => 4,
        Verdict::NoEffect => 3,
        Verdict::SmallerOrNone => 2,
        Verdict::SameDirection { size: Size::Smaller } => 1,
        _ => 0,
    }
}

fn needed(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::TooNoisy { rounds, .. } => rounds.unwrap_or(usize::MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::verdict::Reason;

    #[test]
    fn every_effect_has_to_agree_or_one_of_them() {
        let noisy = |rounds| Verdict::TooNoisy { rounds: Some(rounds), direction_shown: false };
        let limited = Verdict::NotTestable(Reason::KneeNotReached);
        let all = |verdicts: &[Verdict]| of(verdicts.to_vec(), Which::Every);
        let some = |verdicts: &[Verdict]| of(verdicts.to_vec(), Which::Some);
        let holds = Verdict::Holds;
        assert_eq!(all(&[holds.clone(), holds.clone()]), holds);
        assert_eq!(all(&[holds.clone(), Verdict::NoEffect, Verdict::Opposite]), Verdict::Opposite);
        assert_eq!(all(&[noisy(7), limited.clone(), Verdict::NoEffect]), Verdict::NoEffect);
        assert_eq!(all(&[holds.clone(), noisy(7), limited.clone()]), limited);
        assert_eq!(all(&[holds.clone(), noisy(7), noisy(9)]), noisy(9));
        assert_eq!(some(&[Verdict::Opposite, limited.clone(), holds.clone()]), holds);
        assert_eq!(some(&[Verdict::Opposite, noisy(7), noisy(9), limited.clone()]), noisy(7));
        assert_eq!(some(&[Verdict::Opposite, Verdict::NoEffect]), Verdict::NoEffect);
        assert_eq!(all(&[]), Verdict::NotMeasured);
    }
}
