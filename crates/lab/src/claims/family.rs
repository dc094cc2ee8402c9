//! The claims of one experiment are a family: the more claims it has, the stronger the evidence that each needs.
//!
//! What is asked is one experiment's question, so that an experiment's verdicts stand or fall together. A report says how many of
//! all its verdicts may be due to chance.

use crate::analysis::decision::holm::holm;

use super::combine;
use super::decide::Sizes;
use super::{Judgement, OWN};

/// The probability that any verdict of a family is wrong, if the values are nothing but noise.
pub const FALSE_ALARMS: f64 = 0.05;

/// Sets the verdict of every claim of a family. Counted effects are certain or open, and are not part of it.
///
/// Holm's procedure over all claims that can be tested decides whether an effect lies in the claim's region. The side
/// of the null value on which an effect outside the region lies is a second statement about the claim. Holm's sizes
/// of that second statement would add up over claims, so it is tested at the family's rate divided by the number of
/// claims. Effects of further subjects are shown with the sizes of their claim and decide nothing.
pub fn judge(family: &mut [Judgement]) {
    let mut tested: Vec<&mut Judgement> = family.iter_mut().filter(|one| one.p.is_some()).collect();
    let p: Vec<f64> = tested.iter().map(|one| one.p.unwrap_or(1.0)).collect();
    let each = FALSE_ALARMS / p.len().max(1) as f64;
    for (one, held) in std::iter::zip(&mut tested, holm(&p, FALSE_ALARMS)) {
        let size = held.size.min(OWN.holds);
        let sizes = Sizes { holds: size, against: size, direction: each };
        let of_rows = combine::shared(sizes, one.which, one.rows.len());
        for row in one.rows.iter_mut().chain(&mut one.also) {
            row.verdict = row.at(of_rows);
        }
        let verdicts = one.rows.iter().map(|row| row.verdict.clone()).collect();
        one.verdict = combine::of(verdicts, one.which);
        one.adjusted_p = Some(held.adjusted);
        one.size = size;
    }
}
