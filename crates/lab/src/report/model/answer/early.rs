//! An early answer: which candidate is ahead where there are fewer rounds than a verdict needs.
//!
//! A candidate that a verdict leaves out for its few rounds may still be the best one. Early answers compare such
//! candidates over the rounds that there are, and never rule a candidate out by a single round.

use super::compare::{CandidateValues, Compared, centre, common, contrast};
use super::{AnswerKind, CandidateStanding};
use crate::analysis::decision::best::FAMILY;
use crate::analysis::summary::mean;
use crate::analysis::{AverageScale, Curve, Interval};
use crate::spec::metric::Better;

/// Adds the candidates with too few rounds to a comparison.
///
/// If one of them is ahead of the comparison's best candidate, it becomes the reference and the answer is
/// [`AnswerKind::Early`], as it is where no candidate has enough rounds. A single candidate with values is
/// [`AnswerKind::OnlyOne`].
pub(super) fn consider(
    compared: Compared,
    entries: Vec<CandidateValues>,
    better: Better,
) -> Compared {
    let standing = |entry: &CandidateValues| {
        let found = compared.candidates.iter().find(|it| it.name == entry.candidate.name);
        found.map_or(CandidateStanding::Out, |it| it.standing)
    };
    let is_usable = |entry: &CandidateValues| {
        let has_ratios = entry.rounds.values().all(|(value, _)| *value > 0.0);
        !entry.is_hopeless && !entry.rounds.is_empty() && has_ratios
    };
    let (early, others): (Vec<CandidateValues>, Vec<CandidateValues>) = entries
        .into_iter()
        .partition(|entry| standing(entry) == CandidateStanding::Out && is_usable(entry));
    if early.is_empty() {
        let is_alone = compared.outcome == AnswerKind::NotMeasured
            && compared.candidates.iter().any(|it| it.standing == CandidateStanding::Reference);
        let outcome = if is_alone { AnswerKind::OnlyOne } else { compared.outcome };
        return Compared { outcome, ..compared };
    }
    let best = others.into_iter().find(|entry| standing(entry) == CandidateStanding::Reference);
    let is_judged = best.is_some();
    let field: Vec<CandidateValues> = best.into_iter().chain(early).collect();
    let Field { ranked, rounds } = Field::of(field, better);
    let leader = ranked[0].candidate.name.clone();
    let stays = is_judged && compared.candidates[0].name == leader;
    let mut candidates = compared.candidates;
    for entry in &ranked {
        if stays && entry.candidate.name == leader {
            continue;
        }
        if let Some(old) = candidates.iter_mut().find(|it| it.name == entry.candidate.name) {
            old.standing = entry.candidate.standing;
            old.ratio = entry.candidate.ratio;
        }
    }
    if stays {
        let is_open = candidates.iter().any(|it| it.standing == CandidateStanding::Open);
        let outcome = match compared.outcome {
            AnswerKind::Clear | AnswerKind::Tie if is_open => AnswerKind::Narrowed,
            outcome => outcome,
        };
        candidates.sort_by_key(|it| it.standing == CandidateStanding::Out);
        return Compared { outcome, candidates, ..compared };
    }
    if is_judged {
        // Ratios and equality were those to a candidate that is no longer the reference.
        let was_compared = |name: &str| ranked.iter().any(|it| it.candidate.name == name);
        for it in candidates.iter_mut().filter(|it| !was_compared(&it.name)) {
            it.ratio = None;
            if it.standing == CandidateStanding::Equal {
                it.standing = CandidateStanding::Open;
            }
        }
    }
    let place = |name: &str| ranked.iter().position(|it| it.candidate.name == name);
    candidates.sort_by_key(|it| {
        (it.standing == CandidateStanding::Out, place(&it.name).unwrap_or(ranked.len()))
    });
    let outcome = if ranked.len() > 1 { AnswerKind::Early } else { AnswerKind::OnlyOne };
    Compared { outcome, rounds: rounds.len(), candidates, enough: None }
}

/// Candidates in the order of their means over the rounds that they have in common.
struct Field {
    ranked: Vec<CandidateValues>,
    rounds: Vec<u32>,
}

impl Field {
    /// `entries` is not empty. A candidate without a round in common with the others comes last, and is open.
    fn of(mut entries: Vec<CandidateValues>, better: Better) -> Field {
        for entry in &mut entries {
            entry.candidate.standing = CandidateStanding::Open;
            entry.candidate.ratio = None;
        }
        let mut apart = Vec::new();
        let mut rounds = common(&entries);
        while rounds.is_empty() {
            let fewest = (0..entries.len()).min_by_key(|at| entries[*at].rounds.len());
            apart.push(entries.remove(fewest.expect("a single candidate has its rounds")));
            rounds = common(&entries);
        }
        let sign = if better == Better::Higher { -1.0 } else { 1.0 };
        entries.sort_by(|a, b| (sign * centre(a, &rounds)).total_cmp(&(sign * centre(b, &rounds))));
        let pairs = (entries.len() - 1).max(1) as f64;
        let (leader, others) = entries.split_first_mut().expect("there is a candidate");
        leader.candidate.standing = CandidateStanding::Reference;
        for other in others {
            stand(other, leader, &rounds, better, FAMILY / pairs);
        }
        entries.extend(apart);
        Field { ranked: entries, rounds }
    }
}

/// Sets the ratio of a candidate to the leader, and whether the candidate is worse at this error rate.
fn stand(
    entry: &mut CandidateValues,
    leader: &CandidateValues,
    rounds: &[u32],
    better: Better,
    size: f64,
) {
    let (logs, bound) = contrast(entry, leader, rounds);
    let Some(curve) = Curve::of_few_rounds(&logs, AverageScale::Log) else {
        let value = mean(&logs).exp();
        entry.candidate.ratio =
            Some(Interval { value, low: 0.0, high: f64::INFINITY, level: 0.95 });
        return;
    };
    let curve = curve.bounded(bound);
    entry.candidate.ratio = Some(curve.interval(0.95));
    let p = match better {
        Better::Lower => curve.p_above(1.0),
        Better::Higher => curve.p_below(1.0),
    };
    if p <= size {
        entry.candidate.standing = CandidateStanding::Worse;
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::compare;
    use super::*;
    use crate::analysis::Bound;

    fn values(name: &str, values: &[f64]) -> CandidateValues {
        let mut entry = CandidateValues::for_test(name, values, Bound::Exact);
        if values.len() < crate::analysis::FEWEST_ROUNDS {
            entry.candidate.standing = CandidateStanding::Out;
            entry.candidate.reason = Some("few rounds".to_owned());
        }
        entry
    }

    fn considered(entries: &[CandidateValues]) -> Compared {
        let compared = compare(entries.to_vec(), Better::Higher, None);
        consider(compared, entries.to_vec(), Better::Higher)
    }

    fn standings(compared: &Compared) -> Vec<(&str, CandidateStanding)> {
        compared.candidates.iter().map(|it| (it.name.as_str(), it.standing)).collect()
    }

    #[test]
    fn few_rounds_have_a_leader_and_rule_out_only_what_is_far_behind() {
        use CandidateStanding::{Open, Reference, Worse};
        let entries = [
            values("a", &[80.0, 83.0, 79.0]),
            values("b", &[100.0, 101.0, 99.0]),
            values("far", &[9.0, 9.1, 9.05]),
            values("noisy", &[50.0, 140.0, 80.0]),
        ];
        let found = considered(&entries);
        assert_eq!((found.outcome, found.rounds), (AnswerKind::Early, 3));
        let expected = [("b", Reference), ("noisy", Open), ("a", Worse), ("far", Worse)];
        assert_eq!(standings(&found), expected);
    }

    #[test]
    fn one_round_rules_out_nobody() {
        let entries = [
            values("a", &[80.0]),
            values("b", &[100.0]),
            values("far", &[1.0]),
            values("none", &[]),
        ];
        let found = considered(&entries);
        use CandidateStanding::{Open, Out, Reference};
        let expected = [("b", Reference), ("a", Open), ("far", Open), ("none", Out)];
        assert_eq!(standings(&found), expected);
        let ratio = found.candidates[1].ratio.unwrap();
        assert!((ratio.value - 0.8).abs() < 1e-9 && ratio.low == 0.0, "{ratio:?}");
        assert!(ratio.high.is_infinite(), "{ratio:?}");
    }

    /// One of six runs was not steady: the candidate has five rounds, and must not lose for that.
    #[test]
    fn a_candidate_with_a_round_too_few_can_still_be_ahead() {
        let slow = [80.0, 83.0, 79.0, 82.0, 81.0, 80.0];
        let fast = [100.0, 101.0, 99.0, 100.5, 99.5];
        let far = [9.0, 9.1, 9.05, 9.0, 9.1, 9.0];
        let found =
            considered(&[values("slow", &slow), values("fast", &fast), values("far", &far)]);
        use CandidateStanding::{Reference, Worse};
        assert_eq!((found.outcome, found.rounds), (AnswerKind::Early, 5));
        assert_eq!(standings(&found), [("fast", Reference), ("slow", Worse), ("far", Worse)]);
        // A candidate with few rounds that is behind changes nothing.
        let behind = [50.0, 51.0, 49.0, 50.5, 49.5];
        let found = considered(&[values("slow", &slow), values("far", &far), values("b", &behind)]);
        assert_eq!(found.outcome, AnswerKind::Clear);
        assert_eq!(standings(&found), [("slow", Reference), ("far", Worse), ("b", Worse)]);
        // One that may be as good leaves the answer open.
        let close = [70.0, 90.0, 75.0, 84.0];
        let found = considered(&[values("slow", &slow), values("far", &far), values("c", &close)]);
        assert_eq!(found.outcome, AnswerKind::Narrowed);
    }

    #[test]
    fn a_value_of_nothing_is_told_as_the_reason() {
        let found = considered(&[values("a", &[80.0]), values("none", &[0.0])]);
        assert_eq!(found.outcome, AnswerKind::OnlyOne);
        let reason = found.candidates[1].reason.as_deref().unwrap();
        assert!(reason.starts_with("0 in 1 of 1 rounds"), "{reason}");
    }

    #[test]
    fn candidates_without_a_common_round_are_all_told() {
        let mut other = values("b", &[100.0, 101.0]);
        other.rounds = [(7, (100.0, Bound::Exact))].into();
        let found = considered(&[values("a", &[80.0, 83.0]), other]);
        use CandidateStanding::{Open, Reference};
        assert_eq!(standings(&found), [("a", Reference), ("b", Open)]);
    }

    #[test]
    fn what_failed_or_is_not_possible_here_stays_out() {
        let mut failed = values("failed", &[200.0]);
        failed.is_hopeless = true;
        let found = considered(&[values("a", &[80.0, 81.0]), failed]);
        use CandidateStanding::{Out, Reference};
        assert_eq!(standings(&found), [("a", Reference), ("failed", Out)]);
        assert_eq!((found.outcome, found.rounds), (AnswerKind::OnlyOne, 2));
        let mut failed = values("failed", &[200.0]);
        failed.is_hopeless = true;
        let found = considered(&[values("a", &[80.0; 6]), failed]);
        assert_eq!((found.outcome, found.rounds), (AnswerKind::OnlyOne, 6));
    }
}
