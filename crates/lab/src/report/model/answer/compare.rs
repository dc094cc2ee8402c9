//! Compares candidates: which one is the best, as far as the samples show.

use std::collections::BTreeMap;

use super::{AnswerKind, AnswerRule, Candidate, CandidateStanding};
use crate::analysis::decision::best::{BesideBest, FAMILY};
use crate::analysis::decision::equivalence::p_within;
use crate::analysis::{AverageScale, Bound, Curve, Extreme, FEWEST_ROUNDS};
use crate::claims::{CellRuns, LevelByFactor};
use crate::model::{Mark, Sample};
use crate::record::MeasuredExperiment;
use crate::report::model::estimate::{Estimate, estimate};
use crate::report::model::words;
use crate::spec::metric::Better;

/// Candidates count as equal if their ratio is within this factor of 1, beyond doubt.
pub const MARGIN: f64 = 1.05;

/// A candidate with the values that count, by round.
#[derive(Clone, Debug)]
pub(super) struct CandidateValues {
    pub(super) candidate: Candidate,
    pub(super) rounds: BTreeMap<u32, (f64, Bound)>,
    /// Whether more runs can do nothing for the candidate: this machine cannot run it, or it fails.
    pub(super) is_hopeless: bool,
}

/// Candidates, compared.
pub(super) struct Compared {
    pub(super) outcome: AnswerKind,
    /// How many rounds the comparison is based on.
    pub(super) rounds: usize,
    /// The reference first, then the others from the best to the worst, then the candidates that could not be
    /// compared.
    pub(super) candidates: Vec<Candidate>,
    /// The best candidate, if a smaller one is enough and is the reference.
    pub(super) enough: Option<String>,
}

/// Why a candidate cannot be compared with the others.
struct Obstacle {
    reason: String,
    is_hopeless: bool,
}

/// The candidates of a rule at one combination of levels.
pub(super) fn candidates(
    rule: &AnswerRule,
    measured: &MeasuredExperiment,
    place: &LevelByFactor,
    better: Better,
) -> Vec<CandidateValues> {
    let samples = measured.samples();
    let entry = |(name, cell): (String, crate::model::Cell)| {
        let own: Vec<&Sample> = samples.iter().filter(|sample| sample.cell == cell).collect();
        let counted = CellRuns::compared(&own, &rule.metric, better);
        let obstacle = obstacle(&own, &counted);
        let (rounds, estimate) = match rule.is_early && counted.rounds.is_empty() {
            true => unsteady(&own, &rule.metric, better),
            false => (counted.rounds, estimate(&own, &rule.metric, better)),
        };
        let candidate = Candidate {
            name,
            estimate,
            ratio: None,
            is_limited: rounds.values().any(|(_, bound)| *bound != Bound::Exact),
            standing: match obstacle {
                Some(_) => CandidateStanding::Out,
                None => CandidateStanding::Open,
            },
            reason: obstacle.as_ref().map(|it| it.reason.clone()),
        };
        let is_hopeless = obstacle.is_some_and(|it| it.is_hopeless);
        CandidateValues { candidate, rounds, is_hopeless }
    };
    rule.candidates(measured, place).into_iter().map(entry).collect()
}

/// The values of runs that were not steady, for a candidate that has no others.
fn unsteady(
    runs: &[&Sample],
    metric: &str,
    better: Better,
) -> (BTreeMap<u32, (f64, Bound)>, Option<Estimate>) {
    let mut runs: Vec<Sample> = runs.iter().map(|run| (*run).clone()).collect();
    for run in &mut runs {
        run.validity.remove(&Mark::Cold);
    }
    let runs: Vec<&Sample> = runs.iter().collect();
    (CellRuns::compared(&runs, metric, better).rounds, estimate(&runs, metric, better))
}

/// Why a candidate cannot be compared with the others.
fn obstacle(runs: &[&Sample], counted: &CellRuns) -> Option<Obstacle> {
    let rounds = counted.rounds.len();
    let reason = |run: &&&Sample| run.failure.clone();
    if let Some(run) = runs.iter().find(|run| run.validity.contains(&Mark::Unavailable)) {
        let reason = reason(&run).unwrap_or_else(|| "not possible here".to_owned());
        return Some(Obstacle { reason, is_hopeless: true });
    }
    let failed: Vec<&&Sample> = runs.iter().filter(|run| run.failure.is_some()).collect();
    if let Some(first) = failed.first().filter(|_| 2 * failed.len() >= runs.len()) {
        let why = reason(first).unwrap_or_default();
        let reason = format!("{} of {} runs failed: {why}", failed.len(), runs.len());
        // A failure among few runs may be an accident.
        return Some(Obstacle { reason, is_hopeless: runs.len() >= FEWEST_ROUNDS });
    }
    let left_out = counted.tally.left_out.iter().max_by_key(|(_, count)| **count);
    let cause = left_out.map_or(String::new(), |(mark, count)| {
        format!(" ({} in {count} of {})", words::mark(*mark), runs.len())
    });
    let reason = || match rounds {
        0 => format!("no run counts{cause}"),
        1 => format!("1 round counts{cause}, {FEWEST_ROUNDS} are needed"),
        _ => format!("{rounds} rounds count{cause}, {FEWEST_ROUNDS} are needed"),
    };
    (rounds < FEWEST_ROUNDS).then(|| Obstacle { reason: reason(), is_hopeless: false })
}

/// Compares the candidates over the rounds that all of them have.
///
/// A candidate is ruled out if it is shown to be worse than the best of the others ([`BesideBest`]). The reference is the
/// remaining candidate with the best mean.
pub(super) fn compare(
    mut entries: Vec<CandidateValues>,
    better: Better,
    enough: Option<f64>,
) -> Compared {
    entries.iter_mut().for_each(leave_out_zeros);
    let common = common(&entries);
    for entry in &mut entries {
        let is_in = entry.candidate.standing != CandidateStanding::Out;
        if is_in && common.len() < FEWEST_ROUNDS {
            entry.candidate.standing = CandidateStanding::Out;
            entry.candidate.reason = Some(format!("{} rounds in common", common.len()));
        }
    }
    let (mut judged, out): (Vec<CandidateValues>, Vec<CandidateValues>) =
        entries.into_iter().partition(|entry| entry.candidate.standing != CandidateStanding::Out);
    rule_out(&mut judged, &common, better);
    let found = reference(&judged, &common, better);
    let mut chosen = None;
    if let Some(at) = found {
        let smaller = enough.and_then(|share| smallest(&judged, at, &common, better, share));
        chosen = smaller.map(|_| judged[at].candidate.name.clone());
        stand(&mut judged, smaller.unwrap_or(at), &common);
    }
    let outcome = outcome(&judged, chosen.is_some());
    let rank = |entry: &CandidateValues| {
        let is_reference = entry.candidate.standing == CandidateStanding::Reference;
        let centre = centre(entry, &common);
        (!is_reference, if better == Better::Higher { -centre } else { centre })
    };
    judged.sort_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
    let candidates = judged.into_iter().chain(out).map(|entry| entry.candidate).collect();
    Compared { outcome, rounds: common.len(), candidates, enough: chosen }
}

/// Leaves out a candidate that has a value of zero, which has no ratio to others. A single such value would take away
/// the interval of every other comparison.
fn leave_out_zeros(entry: &mut CandidateValues) {
    let zeros = entry.rounds.values().filter(|(value, _)| *value <= 0.0).count();
    if zeros > 0 && !entry.is_hopeless {
        let rounds = entry.rounds.len();
        entry.candidate.standing = CandidateStanding::Out;
        entry.candidate.reason =
            Some(format!("0 in {zeros} of {rounds} rounds, which has no ratio"));
    }
}

/// The rounds that every comparable candidate has.
pub(super) fn common(entries: &[CandidateValues]) -> Vec<u32> {
    let mut compared =
        entries.iter().filter(|entry| entry.candidate.standing != CandidateStanding::Out);
    let Some(first) = compared.next() else { return Vec::new() };
    let others: Vec<&CandidateValues> = compared.collect();
    let in_all = |round: &&u32| others.iter().all(|entry| entry.rounds.contains_key(round));
    first.rounds.keys().filter(in_all).copied().collect()
}

/// One candidate ÷ another, by round, on a logarithmic scale; and whether the quotient is exact or a bound.
pub(super) fn contrast(
    of: &CandidateValues,
    against: &CandidateValues,
    rounds: &[u32],
) -> (Vec<f64>, Bound) {
    let log = |round: &u32| of.rounds[round].0.ln() - against.rounds[round].0.ln();
    let bound = |round: &u32| of.rounds[round].1.over(against.rounds[round].1);
    (rounds.iter().map(log).collect(), rounds.iter().map(bound).collect())
}

/// The mean of a candidate's values, as a logarithm.
pub(super) fn centre(entry: &CandidateValues, rounds: &[u32]) -> f64 {
    rounds.iter().map(|round| entry.rounds[round].0.ln()).sum::<f64>() / rounds.len() as f64
}

/// Marks every candidate that is worse than the best of the others.
fn rule_out(judged: &mut [CandidateValues], rounds: &[u32], better: Better) {
    let values = |entry: &CandidateValues| rounds.iter().map(|it| entry.rounds[it]).collect();
    let values: Vec<Vec<(f64, Bound)>> = judged.iter().map(values).collect();
    let best = match better {
        Better::Lower => Extreme::Least,
        Better::Higher => Extreme::Greatest,
    };
    let worse = |at| {
        let beside = BesideBest::of(&values, at, best);
        beside.is_some_and(|it| it.p_worse() <= FAMILY / values.len() as f64)
    };
    let worse: Vec<bool> = (0..values.len()).map(worse).collect();
    for (entry, worse) in std::iter::zip(judged, worse) {
        if worse {
            entry.candidate.standing = CandidateStanding::Worse;
        }
    }
}

/// The index of the best mean among the candidates that are not ruled out.
fn reference(judged: &[CandidateValues], rounds: &[u32], better: Better) -> Option<usize> {
    let left =
        (0..judged.len()).filter(|at| judged[*at].candidate.standing != CandidateStanding::Worse);
    let key = |at: &usize| match better {
        Better::Lower => centre(&judged[*at], rounds),
        Better::Higher => -centre(&judged[*at], rounds),
    };
    left.min_by(|a, b| key(a).total_cmp(&key(b)))
}

/// The lowest level that beyond doubt gives the share of the best value; `None` if only the best level itself does.
fn smallest(
    judged: &[CandidateValues],
    best: usize,
    rounds: &[u32],
    better: Better,
    share: f64,
) -> Option<usize> {
    let level = |at: usize| judged[at].candidate.name.parse::<f64>().ok();
    let gives = |at: &usize| {
        let (logs, bound) = contrast(&judged[*at], &judged[best], rounds);
        let Some(curve) = Curve::of_rounds(&logs, AverageScale::Log) else { return false };
        let curve = curve.bounded(bound);
        let p = match better {
            Better::Higher => curve.p_above(share),
            Better::Lower => curve.p_below(1.0 / share),
        };
        p <= FAMILY / judged.len() as f64
    };
    let below = (0..judged.len()).filter(|at| level(*at) < level(best) && level(*at).is_some());
    let enough = below.filter(gives);
    enough.min_by(|a, b| level(*a).partial_cmp(&level(*b)).unwrap_or(std::cmp::Ordering::Equal))
}

/// Sets the standing of each candidate beside the reference.
fn stand(judged: &mut [CandidateValues], reference: usize, rounds: &[u32]) {
    let against = judged[reference].clone();
    for (at, entry) in judged.iter_mut().enumerate() {
        if at == reference {
            entry.candidate.standing = CandidateStanding::Reference;
            continue;
        }
        let (logs, bound) = contrast(entry, &against, rounds);
        let Some(curve) = Curve::of_rounds(&logs, AverageScale::Log) else { continue };
        let curve = curve.bounded(bound);
        entry.candidate.ratio = Some(curve.interval(0.95));
        let is_equal = p_within(&curve, 1.0 / MARGIN, MARGIN) <= FAMILY;
        // A candidate may be both shown to be worse and equal: by less than the margin.
        if is_equal {
            entry.candidate.standing = CandidateStanding::Equal;
        }
    }
}

fn outcome(judged: &[CandidateValues], is_enough: bool) -> AnswerKind {
    let count =
        |standing| judged.iter().filter(|entry| entry.candidate.standing == standing).count();
    match (judged.len(), count(CandidateStanding::Open), count(CandidateStanding::Equal)) {
        (0 | 1, ..) => AnswerKind::NotMeasured,
        _ if is_enough => AnswerKind::Clear,
        (_, 0, 0) => AnswerKind::Clear,
        (_, 0, _) => AnswerKind::Tie,
        _ if count(CandidateStanding::Worse) > 0 => AnswerKind::Narrowed,
        _ => AnswerKind::Open,
    }
}

#[cfg(test)]
impl CandidateValues {
    /// A candidate with values, one per round.
    pub(super) fn for_test(name: &str, values: &[f64], bound: Bound) -> CandidateValues {
        let numbered = (1..).zip(values).map(|(round, value)| (round, (*value, bound)));
        let candidate = Candidate {
            name: name.to_owned(),
            estimate: None,
            ratio: None,
            is_limited: bound != Bound::Exact,
            standing: CandidateStanding::Open,
            reason: None,
        };
        CandidateValues { candidate, rounds: numbered.collect(), is_hopeless: false }
    }
}
