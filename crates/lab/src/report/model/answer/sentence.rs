//! An answer as a sentence: the best candidate with its value, what the others cost, and what is open.

use super::{AnswerKind, AnswerRule, Candidate, CandidateStanding, Finding, MARGIN};
use crate::analysis::{FEWEST_ROUNDS, Interval};
use crate::report::model::words::{counted, list, lower, number, quantity, range, ratio, sign};
use crate::spec::metric::Better;

/// How far from the best mean a candidate may be that is recommended. Another one was perhaps not shown to be worse for noise alone.
const NEAR: f64 = 1.1;

/// How many of the candidates that are ruled out are named with their ratios.
const NAMED: usize = 3;

/// What to take. `order` has the candidates as the experiment names them, the simplest first; `best` is the best level, if
/// a smaller level is enough.
pub(super) fn headline(
    finding: &Finding,
    rule: &AnswerRule,
    better: Better,
    (order, best): (&[String], Option<String>),
) -> String {
    let head = match finding.outcome {
        AnswerKind::NotMeasured => nothing(finding),
        AnswerKind::Early => ahead(finding),
        AnswerKind::OnlyOne => only(finding),
        AnswerKind::Clear | AnswerKind::Tie => head(finding, rule, best.as_deref()),
        AnswerKind::Narrowed | AnswerKind::Open => unbeaten(finding, rule, better, order),
    };
    [Some(head), worse(finding, better)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What is to be said beside a headline.
pub(super) fn remarks(finding: &Finding) -> Vec<String> {
    [limited(finding), out(finding)].into_iter().flatten().collect()
}

fn with(finding: &Finding, standing: CandidateStanding) -> Vec<&Candidate> {
    finding.candidates.iter().filter(|it| it.standing == standing).collect()
}

fn names(candidates: &[&Candidate]) -> Vec<String> {
    candidates.iter().map(|candidate| candidate.name.clone()).collect()
}

/// The reference's median with its interval and the metric.
fn figure(finding: &Finding, candidate: &Candidate) -> String {
    let Some(estimate) = candidate.estimate else { return String::new() };
    let interval = match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!(" ({})", range(low, high)),
        _ => String::new(),
    };
    let value = quantity(&number(estimate.value), &finding.unit);
    format!("{} {}{value}{interval}", lower(&finding.metric), sign(estimate.bound))
}

fn head(finding: &Finding, rule: &AnswerRule, best: Option<&str>) -> String {
    let Some(reference) = finding.candidates.first() else { return String::new() };
    let name = &reference.name;
    let figure = figure(finding, reference);
    let equal = with(finding, CandidateStanding::Equal);
    let what = what(rule);
    match finding.outcome {
        AnswerKind::Clear if best.is_some() => {
            let share = rule.enough.unwrap_or_default() * 100.0;
            format!(
                "{what}{name} is enough: {figure}, at least {} % of what {} gives.",
                number(share),
                best.unwrap_or_default()
            )
        }
        AnswerKind::Clear => format!("{what}{name} is the best: {figure}."),
        _ => {
            let all = [vec![name.clone()], names(&equal)].concat();
            format!("It does not matter between {what}{}, equal within 5 %: {figure}.", list(&all))
        }
    }
}

/// What a level is a level of; nothing for subjects.
fn what(rule: &AnswerRule) -> String {
    match &rule.choose {
        super::Choose::Subject => String::new(),
        super::Choose::Factor(factor) => format!("{} ", factor.replace('_', " ")),
    }
}

/// The simplest candidate that none was shown to beat and whose mean is near the best one, and how much the others may still be
/// ahead of it.
fn unbeaten(finding: &Finding, rule: &AnswerRule, better: Better, order: &[String]) -> String {
    let is_unbeaten = |candidate: &&Candidate| {
        !matches!(candidate.standing, CandidateStanding::Worse | CandidateStanding::Out)
    };
    let place = |candidate: &&Candidate| order.iter().position(|name| *name == candidate.name);
    let left: Vec<&Candidate> = finding.candidates.iter().filter(is_unbeaten).collect();
    let is_near = |one: &&Candidate| {
        one.ratio.is_none_or(|it| it.value.max(1.0 / it.value) <= NEAR || is_ahead(it, better))
    };
    let near = left.iter().copied().filter(is_near);
    let Some(simplest) = near.min_by_key(place) else { return String::new() };
    let what = what(rule);
    let head = format!("Take {what}{}: {}.", simplest.name, figure(finding, simplest));
    let others: Vec<&Candidate> =
        left.iter().copied().filter(|one| one.name != simplest.name).collect();
    // Another one ÷ the simplest, at most: both are known beside the reference, which is 1 beside itself.
    let (low, high) = (
        |one: &Candidate| one.ratio.map_or(1.0, |it| it.low),
        |one: &Candidate| one.ratio.map_or(1.0, |it| it.high),
    );
    let gain_of = |one: &Candidate| match better {
        Better::Higher => high(one) / low(simplest) - 1.0,
        Better::Lower => 1.0 - low(one) / high(simplest),
    };
    let may_gain: Vec<&Candidate> =
        others.iter().copied().filter(|one| gain_of(one) > 0.0).collect();
    let gain = may_gain.iter().map(|one| gain_of(one)).fold(0.0, f64::max);
    let ahead = list(&names(&may_gain));
    let is_bound = others.iter().chain([&simplest]).any(|one| one.is_limited);
    let word = if better == Better::Higher { "more" } else { "less" };
    let may_have = match gain.is_finite() && !is_bound {
        true if may_gain.is_empty() => String::new(),
        true => format!("; {what}{ahead} may have up to {} % {word}", number(100.0 * gain)),
        false => format!("; how far {what}{ahead} goes is not known"),
    };
    // What is equal may be worse beyond doubt, by less than the margin.
    let beaten = match simplest.standing {
        CandidateStanding::Equal => format!("beat it by {} %", number(100.0 * (MARGIN - 1.0))),
        _ => "beat it".to_owned(),
    };
    format!("{head} None was shown to {beaten}{may_have}.")
}

/// Whether a candidate's mean is better than that which it is compared with.
fn is_ahead(ratio: Interval, better: Better) -> bool {
    match better {
        Better::Higher => ratio.value > 1.0,
        Better::Lower => ratio.value < 1.0,
    }
}

/// Who is ahead in few rounds, and of whom that is not shown.
fn ahead(finding: &Finding) -> String {
    let Some(leader) = finding.candidates.first() else { return String::new() };
    let name = &leader.name;
    let figure = figure(finding, leader);
    let rounds = counted(finding.rounds, "round");
    let mut text = format!(
        "{name} is ahead in {rounds}, fewer than the {FEWEST_ROUNDS} of a verdict: {figure}."
    );
    let open: Vec<String> = with(finding, CandidateStanding::Open)
        .into_iter()
        .map(|it| match it.ratio {
            Some(ratio) => format!("{}: {}", it.name, known_ratio(&ratio)),
            None => format!("{}: no round in common", it.name),
        })
        .collect();
    if !open.is_empty() {
        text += &format!(" Not shown to be behind {name}: {}.", open.join("; "));
    }
    text
}

fn only(finding: &Finding) -> String {
    let Some(only) = finding.candidates.first() else { return String::new() };
    let (name, rounds) = (&only.name, counted(finding.rounds, "round"));
    format!("Only {name} could be measured, in {rounds}: {}.", figure(finding, only))
}

/// A ratio with its interval, or without one if a single round leaves the interval without ends.
fn known_ratio(interval: &Interval) -> String {
    match interval.low > 0.0 || interval.high.is_finite() {
        true => ratio(interval),
        false => format!("{} ×", number(interval.value)),
    }
}

fn worse(finding: &Finding, better: Better) -> Option<String> {
    // If a smaller level is enough, a candidate that is worse than the best may be better than the smaller level.
    let is_worse = |candidate: &&Candidate| {
        candidate.ratio.is_some_and(|ratio| match better {
            Better::Higher => ratio.value < 1.0,
            Better::Lower => ratio.value > 1.0,
        })
    };
    let worse: Vec<&Candidate> =
        with(finding, CandidateStanding::Worse).into_iter().filter(is_worse).collect();
    let described = worse
        .iter()
        .take(NAMED)
        .filter_map(|it| Some(format!("{}: {}", it.name, ratio(&it.ratio?))));
    let described: Vec<String> = described.collect();
    if described.is_empty() {
        return None;
    }
    let name = &finding.candidates.first()?.name;
    let word = if better == Better::Higher { "Less" } else { "More" };
    let more = match worse.len().saturating_sub(NAMED) {
        0 => String::new(),
        1 => ", and one more is worse".to_owned(),
        count => format!(", and {count} more are worse"),
    };
    Some(format!("{word} than {name}: {}{more}.", described.join("; ")))
}

fn limited(finding: &Finding) -> Option<String> {
    let limited: Vec<&Candidate> = finding
        .candidates
        .iter()
        .filter(|it| it.is_limited && it.standing != CandidateStanding::Out)
        .collect();
    (!limited.is_empty()).then(|| {
        format!(
            "What was measured of {} is a bound: the load generator was at its limit or late, or requests \
             failed.",
            list(&names(&limited))
        )
    })
}

/// The candidates that could not be compared. Candidates with one reason are listed together.
fn out(finding: &Finding) -> Option<String> {
    if finding.outcome == AnswerKind::NotMeasured {
        return None;
    }
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for candidate in with(finding, CandidateStanding::Out) {
        let reason = candidate.reason.clone().unwrap_or_default();
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(candidate.name.clone()),
            None => reasons.push((reason, vec![candidate.name.clone()])),
        }
    }
    let said: Vec<String> =
        reasons.iter().map(|(reason, names)| format!("{}: {reason}", list(names))).collect();
    (!said.is_empty()).then(|| format!("Not compared: {}.", said.join("; ")))
}

fn nothing(finding: &Finding) -> String {
    match finding.candidates.as_slice() {
        [] => "Not measured: this preset measures none of the candidates.".to_owned(),
        [only] if only.standing != CandidateStanding::Out => {
            format!("This preset measures only {}: there is nothing to compare it with.", only.name)
        }
        candidates => {
            let first = candidates.iter().find_map(|it| it.reason.clone()).unwrap_or_default();
            format!("This machine could not tell: {first}.")
        }
    }
}
