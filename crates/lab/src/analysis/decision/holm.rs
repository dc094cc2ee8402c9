//! Many claims in one report: how much more each of them has to show.

/// The size of the test that each claim of a family is held to.
///
/// `p` is the two-sided p-value of each claim's decision. Holm's procedure (S. Holm, "A simple
/// sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979): the smallest
/// of m p-values is compared with α/m, the next with α/(m−1), and so on until one fails, which
/// ends it. The probability of any false decision is then at most α, however the claims depend
/// on each other. A claim that is decided has the size at which it was; all others have the size at which
/// the procedure ended. A NaN counts as 1.
///
/// That the *side* of a decision is right as often as that is proven for independent claims
/// (H. Finner, "Stepwise multiple test procedures and control of directional errors", Annals of
/// Statistics 27, 1999); the bench of coverage counts wrong sides too.
pub fn holm(p: &[f64], alpha: f64) -> Vec<Adjusted> {
    let of = |at: usize| if p[at].is_nan() { 1.0 } else { p[at] };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| of(*a).total_cmp(&of(*b)));
    let mut held = vec![Adjusted { size: alpha, adjusted: 1.0, decided: false }; p.len()];
    let (mut adjusted, mut ended_at) = (0.0f64, None);
    for (rank, &at) in order.iter().enumerate() {
        let left = (p.len() - rank) as f64;
        adjusted = adjusted.max((left * of(at)).min(1.0));
        let size = alpha / left;
        if of(at) > size {
            ended_at = ended_at.or(Some(size));
        }
        held[at] =
            Adjusted { size: ended_at.unwrap_or(size), adjusted, decided: ended_at.is_none() };
    }
    held
}

/// What the family makes of one claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adjusted {
    /// The two-sided size of the test that the claim is held to.
    pub size: f64,
    /// The claim's p-value times the number of claims it stands for: compare with the family's α.
    pub adjusted: f64,
    /// Whether the claim is decided in the family.
    pub decided: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::noise::{covered, normal};
    use statrs::distribution::{ContinuousCDF, Normal};

    #[test]
    fn the_steps_are_those_of_the_textbook() {
        let held = holm(&[0.01, 0.04, 0.03, 0.005], 0.05);
        let adjusted: Vec<f64> = held.iter().map(|held| held.adjusted).collect();
        for (found, expected) in std::iter::zip(adjusted, [0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-12);
        }
        assert_eq!(
            held.iter().map(|held| held.decided).collect::<Vec<_>>(),
            [true, false, false, true]
        );
        assert!((held[3].size - 0.0125).abs() < 1e-12 && (held[1].size - 0.025).abs() < 1e-12);
        assert!(holm(&[], 0.05).is_empty());
        assert!(!holm(&[f64::NAN], 0.05)[0].decided);
    }

    #[test]
    fn forty_claims_without_an_effect_raise_a_false_alarm_as_rarely_as_one() {
        let standard = Normal::new(0.0, 1.0).unwrap();
        let alarms = covered(1000, 1, |random| {
            let p: Vec<f64> = (0..40).map(|_| 2.0 * standard.sf(normal(random).abs())).collect();
            holm(&p, 0.05).iter().any(|held| held.decided)
        });
        assert!((0.03..=0.07).contains(&alarms), "{alarms}");
    }
}
