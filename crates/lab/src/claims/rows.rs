//! The effects by which a claim is judged: one for each combination of a subject, a subject that it is compared with,
//! and a group of cells.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::estimate::best::best;
use crate::analysis::estimate::simultaneous::{DRAWS, simultaneous};
use crate::analysis::estimate::spread;
use crate::analysis::{AverageScale, Bound, Curve, Extreme, Interval};
use crate::model::{Level, Mark};
use crate::spec::claim::{Claim, Effect, Side, Which};
use crate::spec::metric::Better;

use super::decide::{Criterion, Sizes};
use super::effects::{self, Joined, Member, SubjectStatistics};
use super::rounds::Rounds;
use super::runs::{Certainty, LevelByFactor, RunCounts, Runs, common};
use super::verdict::{Reason, Verdict};

/// With more effects than this that are judged together, Bonferroni's bound replaces a simulation.
const MOST_SIMULATED: usize = 12;

/// One effect with its estimate and verdict.
#[derive(Clone, Debug, Serialize)]
pub struct EffectRow {
    /// The subjects in the numerator: one subject, or several of which the best counts.
    pub of: Vec<String>,
    /// The subjects in the denominator; none if the effect has no denominator.
    pub against: Vec<String>,
    /// The levels of the cells. The level of the factor `over` is there only if the effect belongs to one level.
    pub place: LevelByFactor,
    /// The estimate with its own interval of 95 %, where the samples allow one.
    pub interval: Option<Interval>,
    /// Whether the estimate is the effect, or a bound of it.
    pub bound: Bound,
    /// The number of rounds of the estimate; 0 for published numbers.
    pub rounds: usize,
    /// The outcomes of the runs.
    pub tally: RunCounts,
    /// The verdict on this effect as if it were the only one.
    pub alone: Verdict,
    /// The verdict on this effect as one of a report.
    pub verdict: Verdict,
    #[serde(skip)]
    basis: Basis,
}

/// What a verdict rests on.
#[derive(Clone, Debug)]
enum Basis {
    Effect { curve: Curve, criterion: Criterion, is_bounded: bool },
    Nothing(Verdict),
}

impl EffectRow {
    /// The one-sided p-values of "the effect is outside the claim's region" and of "the effect is in the region";
    /// `None` if the samples allow no test.
    pub(super) fn p(&self) -> Option<(f64, f64)> {
        match &self.basis {
            Basis::Effect { curve, .. } if curve.is_counted() => None,
            Basis::Effect { curve, criterion, .. } => {
                let (outside, inside) = criterion.p(curve);
                // Where some runs failed, the other runs do not show that a claim holds.
                Some(if self.tally.failed > 0 { (1.0, inside) } else { (outside, inside) })
            }
            Basis::Nothing(_) => None,
        }
    }

    /// The verdict with tests of these sizes.
    pub(super) fn at(&self, sizes: Sizes) -> Verdict {
        let (curve, criterion, is_bounded) = match &self.basis {
            Basis::Effect { curve, criterion, is_bounded } => (curve, criterion, *is_bounded),
            Basis::Nothing(verdict) => return verdict.clone(),
        };
        match criterion.decide(curve, sizes) {
            Some(Verdict::Holds) if self.tally.failed > 0 => {
                Verdict::NotTestable(failed(&self.tally))
            }
            Some(verdict) => verdict,
            None if curve.is_counted() && !is_bounded => Verdict::NotTestable(Reason::NearEnd),
            None if is_bounded => Verdict::NotTestable(limit(&self.tally)),
            None => criterion.too_noisy(curve, sizes),
        }
    }
}

fn failed(tally: &RunCounts) -> Reason {
    let reason = tally.first_failure.clone().unwrap_or_default();
    Reason::Failed { runs: tally.failed, of: tally.runs, reason }
}

/// Why a value is a bound.
fn limit(tally: &RunCounts) -> Reason {
    match tally.bounded.is_empty() {
        true => Reason::KneeNotReached,
        false => Reason::Bounded { marks: tally.bounded.clone(), of: tally.runs },
    }
}

/// Why there are too few rounds.
pub(crate) fn too_few(tally: &RunCounts, rounds: usize, needed: usize) -> Verdict {
    if let Some(reason) = &tally.unavailable {
        return Verdict::NotTestable(Reason::Unavailable(reason.clone()));
    }
    if rounds == 0 && tally.failed == 0 && tally.left_out.is_empty() {
        // There is no run, or no run has the metric.
        return Verdict::NotMeasured;
    }
    let most: Option<(&Mark, &usize)> = tally.left_out.iter().max_by_key(|(_, runs)| **runs);
    Verdict::NotTestable(match most {
        _ if tally.failed > 0 => failed(tally),
        Some((mark, runs)) => {
            Reason::Unusable { mark: *mark, runs: *runs, of: tally.runs, rounds, needed }
        }
        None => Reason::TooFewRounds { rounds, needed },
    })
}

/// A claim's effect before it is judged: numbers by round, one series for each pair of alternatives of numerator and
/// denominator.
struct Draft {
    of: Vec<String>,
    against: Vec<String>,
    place: LevelByFactor,
    pairs: Vec<Vec<Rounds>>,
    tally: RunCounts,
    fails: bool,
    /// Whether one of the subjects was not measured at all.
    lacks_subject: bool,
}

/// Turns a claim's samples into rows.
pub(super) struct Rows<'a> {
    pub(super) claim: &'a Claim,
    pub(super) runs: Runs<'a>,
    pub(super) better: Better,
    /// How the values of rounds are to be read.
    pub(super) certainty: Certainty,
}

impl Rows<'_> {
    /// The rows of an effect: of the claim's own, or of its effect for a further subject.
    pub(super) fn of(&self, effect: &Effect) -> Vec<EffectRow> {
        let mut rows = Vec::new();
        let beside = effect.against().map_or(vec![Vec::new()], |side| alternatives(side, effect));
        for of in alternatives(effect.of(), effect) {
            for against in &beside {
                let mut drafts = Vec::new();
                for group in self.groups(&of, against, effect) {
                    let (scale, joined, more) = self.drafts(effect, &of, against, &group);
                    match effect.which() {
                        Which::Mean => drafts.extend(more.into_iter().map(|draft| (scale, draft))),
                        _ if joined == Joined::Together && of.len() == 1 => {
                            rows.extend(self.together(more, scale));
                        }
                        _ => rows
                            .extend(more.into_iter().map(|draft| self.row(draft, scale, effect))),
                    }
                }
                rows.extend(mean(drafts).map(|(scale, draft)| self.row(draft, scale, effect)));
            }
        }
        rows
    }

    /// The groups of cells of numerator and denominator. One group without levels if nothing was measured.
    fn groups(&self, of: &[String], against: &[String], effect: &Effect) -> Vec<LevelByFactor> {
        let subjects: Vec<String> = of.iter().chain(against).cloned().collect();
        let groups = self.runs.groups(&subjects, effect.over());
        if groups.is_empty() { vec![LevelByFactor::new()] } else { groups }
    }

    fn statistics(
        &self,
        effect: &Effect,
        subjects: &[String],
        group: &LevelByFactor,
    ) -> Vec<SubjectStatistics> {
        let of_one = |subject: &String| {
            effects::statistics(effect, &self.runs.cells(subject, group, effect.over()))
        };
        subjects.iter().map(of_one).collect()
    }

    /// The effects in one group of cells.
    fn drafts(
        &self,
        effect: &Effect,
        of: &[String],
        against: &[String],
        group: &LevelByFactor,
    ) -> (AverageScale, Joined, Vec<Draft>) {
        let above = self.statistics(effect, of, group);
        let below = self.statistics(effect, against, group);
        let scale = above.first().map_or(AverageScale::Log, |one| one.scale);
        let joined = above.first().map_or(Joined::Each, |one| one.joined);
        let lacks_subject = above.iter().chain(&below).any(|one| one.members.is_empty());
        let draft = |level: Option<&Level>, above: Vec<&Member>, below: Vec<&Member>| {
            let mut place = group.clone();
            if let (Some(over), Some(level)) = (effect.over(), level) {
                place.insert(over.to_owned(), level.clone());
            }
            let mut tally = RunCounts::default();
            above.iter().chain(&below).for_each(|member| tally.add(&member.tally));
            let row = |above: &&Member| match against.is_empty() {
                true => vec![above.rounds.clone()],
                false => {
                    below.iter().map(|below| difference(&above.rounds, &below.rounds)).collect()
                }
            };
            let fails = above.iter().all(|member| member.fails) && !above.is_empty();
            let pairs = above.iter().map(row).collect();
            let (of, against) = (of.to_vec(), against.to_vec());
            Draft { of, against, place, pairs, tally, fails, lacks_subject }
        };
        let all = |side: &'_ [SubjectStatistics]| -> Vec<Member> {
            side.iter().flat_map(|one| one.members.iter().cloned()).collect()
        };
        let (above, below) = (all(&above), all(&below));
        let drafts = if joined == Joined::Greatest || !against.is_empty() || above.is_empty() {
            vec![draft(None, above.iter().collect(), below.iter().collect())]
        } else {
            // Level by level: where the best of several subjects counts, the best is found at each level.
            let mut levels: Vec<&Option<Level>> = Vec::new();
            for member in &above {
                if !levels.contains(&&member.level) {
                    levels.push(&member.level);
                }
            }
            let at = |level: &Option<Level>| {
                let members = above.iter().filter(|member| member.level == *level).collect();
                draft(level.as_ref(), members, Vec::new())
            };
            levels.into_iter().map(at).collect()
        };
        (scale, joined, drafts)
    }

    fn criterion(&self, scale: AverageScale, bound: Bound) -> Criterion {
        let mut region = self.claim.holds;
        let is_offered = matches!(self.claim.effect, Effect::Offered(_)) && bound == Bound::AtLeast;
        // A server answers at most all requests that it gets. A lower bound of the answered share is therefore also
        // bounded by 1 from above, and does not cross the upper end of a region around 1.
        if is_offered && region.above.is_some() && region.below.is_some_and(|below| below >= 1.0) {
            region.below = None;
        }
        Criterion { region, null: self.claim.null(), scale }
    }

    /// Effects with simultaneous bounds. An effect with too few rounds is judged apart, so that the other effects
    /// keep their rounds.
    fn together(&self, drafts: Vec<Draft>, scale: AverageScale) -> Vec<EffectRow> {
        let rounds_of = |draft: &Draft| draft.pairs.first().and_then(|row| row.first()).cloned();
        let fewest = self.certainty.fewest_rounds();
        let has_enough = |draft: &Draft| rounds_of(draft).is_some_and(|r| r.len() >= fewest);
        let (judged, others): (Vec<Draft>, Vec<Draft>) = drafts.into_iter().partition(has_enough);
        let numbers: Vec<Rounds> = judged.iter().filter_map(rounds_of).collect();
        let rounds = common(&numbers);
        let curves = self.curves(&numbers, &rounds, scale);
        let mut rows: Vec<EffectRow> = others
            .into_iter()
            .map(|draft| {
                let rounds = rounds_of(&draft).map_or(0, |rounds| rounds.len());
                self.without(draft, rounds)
            })
            .collect();
        match curves {
            Ok(curves) => rows.extend(std::iter::zip(judged, curves).map(|(draft, curve)| {
                let is_bounded = curve.bound() != Bound::Exact;
                self.with(draft, curve, scale, is_bounded)
            })),
            Err(()) => {
                rows.extend(judged.into_iter().map(|draft| self.without(draft, rounds.len())));
            }
        }
        rows.sort_by(|a, b| a.place.partial_cmp(&b.place).unwrap_or(std::cmp::Ordering::Equal));
        rows
    }

    /// One effect that is judged alone.
    fn row(&self, draft: Draft, scale: AverageScale, effect: &Effect) -> EffectRow {
        let flat: Vec<Rounds> = draft.pairs.iter().flatten().cloned().collect();
        let rounds = common(&flat);
        if draft.lacks_subject {
            return finish(draft, Basis::Nothing(Verdict::NotMeasured), None, 0);
        }
        let is_bounded =
            rounds.iter().any(|round| flat.iter().any(|one| one[round].1 != Bound::Exact));
        if let (Effect::Spread(spread), false) = (effect, self.certainty == Certainty::Published) {
            return self.spread(draft, spread, scale);
        }
        let Ok(mut curves) = self.curves(&flat, &rounds, scale) else {
            return self.without(draft, rounds.len());
        };
        let curve = if curves.len() == 1 {
            curves.pop()
        } else {
            let (above, below) = self.extremes(effect);
            let mut curves = curves.into_iter();
            let rows = draft.pairs.iter().map(|row| curves.by_ref().take(row.len()).collect());
            best(rows.collect(), above, below)
        };
        match curve {
            Some(curve) => self.with(draft, curve, scale, is_bounded),
            None => self.without(draft, rounds.len()),
        }
    }

    /// The ratio of the spreads of two subjects, over the rounds that both subjects have.
    fn spread(
        &self,
        draft: Draft,
        effect: &crate::spec::claim::SpreadEffect,
        scale: AverageScale,
    ) -> EffectRow {
        let log_values = |subjects: &[String]| {
            let effect = Effect::Spread(effect.clone());
            let all = self.statistics(&effect, subjects, &draft.place);
            all.into_iter().next().and_then(|one| one.members.into_iter().next())
        };
        let sides = log_values(&draft.of).zip(log_values(&draft.against));
        let Some((of, against)) = sides else { return self.without(draft, 0) };
        let rounds = common([&of.rounds, &against.rounds]);
        let values = |side: &Rounds| -> Vec<f64> {
            rounds.iter().map(|round| side[round].0.exp()).collect()
        };
        let is_bounded = [&of, &against]
            .iter()
            .any(|side| side.rounds.values().any(|(_, bound)| *bound != Bound::Exact));
        match spread::spread(&values(&of.rounds), &values(&against.rounds)) {
            // The spread of values that the generator has limited tells of the generator only.
            Some(curve) => {
                let bound = if is_bounded { Bound::Unknown } else { Bound::Exact };
                self.with(draft, curve.bounded(bound), scale, is_bounded)
            }
            None => self.without(draft, rounds.len()),
        }
    }

    /// A curve for each series of numbers. Several series are judged simultaneously.
    fn curves(
        &self,
        numbers: &[Rounds],
        rounds: &[u32],
        scale: AverageScale,
    ) -> Result<Vec<Curve>, ()> {
        let fewest = self.certainty.fewest_rounds();
        if numbers.is_empty() || rounds.len() < fewest {
            return Err(());
        }
        let values = |one: &Rounds| rounds.iter().map(|round| one[round].0).collect::<Vec<f64>>();
        let bound = |one: &Rounds| rounds.iter().map(|round| one[round].1).collect::<Bound>();
        let all: Vec<Vec<f64>> = numbers.iter().map(values).collect();
        let counted = |one: &Vec<f64>| Curve::counted(one, scale);
        let curves = match self.certainty {
            Certainty::Published => {
                all.iter().map(|one| Curve::exact_scaled(one[0], scale)).collect()
            }
            Certainty::Counted { .. } => all.iter().map(counted).collect::<Option<_>>().ok_or(())?,
            Certainty::Sampled => {
                let draws = if all.len() <= MOST_SIMULATED { DRAWS } else { 0 };
                simultaneous(&all, scale, draws).ok_or(())?
            }
        };
        let bounded = std::iter::zip(curves, numbers).map(|(curve, one)| curve.bounded(bound(one)));
        Ok(bounded.collect())
    }

    /// Whether the highest or the lowest of several alternatives counts, in the numerator and in the denominator.
    fn extremes(&self, effect: &Effect) -> (Extreme, Extreme) {
        let is_high = match effect {
            Effect::Peak(_) | Effect::Knee(_) => true,
            _ => self.better == Better::Higher,
        };
        match is_high {
            true => (Extreme::Greatest, Extreme::Least),
            false => (Extreme::Least, Extreme::Greatest),
        }
    }

    fn with(&self, draft: Draft, curve: Curve, scale: AverageScale, is_bounded: bool) -> EffectRow {
        let criterion = self.criterion(scale, curve.bound());
        let mut given = self.claim.given.iter();
        let basis = match given.find(|(metric, _)| draft.tally.unmet.contains(*metric)) {
            Some((metric, region)) => {
                let reason = Reason::Unmet { metric: metric.clone(), region: *region };
                Basis::Nothing(Verdict::NotTestable(reason))
            }
            None if draft.fails => Basis::Nothing(fails(&draft.tally)),
            None if draft.tally.disagreeing > 0 => {
                let reason = Reason::Disagreeing { cells: draft.tally.disagreeing };
                Basis::Nothing(Verdict::NotTestable(reason))
            }
            None => Basis::Effect { curve: curve.clone(), criterion, is_bounded },
        };
        let rounds = curve.rounds();
        finish(draft, basis, Some(&curve), rounds)
    }

    fn without(&self, draft: Draft, rounds: usize) -> EffectRow {
        let needed = self.certainty.fewest_rounds();
        let is_complete = rounds >= needed;
        let verdict = match draft.fails {
            true => fails(&draft.tally),
            false if is_complete => Verdict::NotTestable(Reason::NoNumber),
            false => too_few(&draft.tally, rounds, needed),
        };
        finish(draft, Basis::Nothing(verdict), None, rounds)
    }
}

fn fails(tally: &RunCounts) -> Verdict {
    let reason = tally.first_failure.clone().unwrap_or_default();
    Verdict::Fails { runs: tally.failed, of: tally.runs, reason }
}

fn finish(draft: Draft, basis: Basis, curve: Option<&Curve>, rounds: usize) -> EffectRow {
    let mut row = EffectRow {
        of: draft.of,
        against: draft.against,
        place: draft.place,
        interval: curve.map(|curve| curve.interval(0.95)),
        bound: curve.map_or(Bound::Exact, Curve::bound),
        rounds,
        tally: draft.tally,
        alone: Verdict::NotMeasured,
        verdict: Verdict::NotMeasured,
        basis,
    };
    row.alone = row.at(super::OWN);
    row.verdict = row.alone.clone();
    row
}

/// The alternatives of a side: each subject alone, or the set of all subjects of which the best counts. A spread has
/// no best: each subject counts.
fn alternatives(side: &Side, effect: &Effect) -> Vec<Vec<String>> {
    match side {
        Side::Best(best) if !matches!(effect, Effect::Spread(_)) => vec![best.best.clone()],
        side => side.subjects().iter().map(|subject| vec![subject.clone()]).collect(),
    }
}

/// The difference of two series on their scale, in the rounds that both series have.
fn difference(above: &Rounds, below: &Rounds) -> Rounds {
    let pair = |(round, (above, of)): (&u32, &(f64, Bound))| {
        let (below, against) = below.get(round)?;
        Some((*round, (above - below, of.over(*against))))
    };
    above.iter().filter_map(pair).collect()
}

/// The mean of several effects, in each round that all effects have. The units of the estimate are rounds, not cells.
fn mean(drafts: Vec<(AverageScale, Draft)>) -> Option<(AverageScale, Draft)> {
    let count = drafts.len() as f64;
    let mut drafts = drafts.into_iter();
    let (scale, mut sum) = drafts.next()?;
    for (_, draft) in drafts {
        sum.tally.add(&draft.tally);
        sum.fails |= draft.fails;
        sum.lacks_subject |= draft.lacks_subject;
        sum.place.retain(|factor, level| draft.place.get(factor) == Some(level));
        let add = |a: &Rounds, b: &Rounds| {
            let both = common([a, b]);
            let add =
                |round: u32| (round, (a[&round].0 + b[&round].0, a[&round].1.and(b[&round].1)));
            both.into_iter().map(add).collect::<BTreeMap<_, _>>()
        };
        let is_alike = sum.pairs.len() == draft.pairs.len();
        let rows = std::iter::zip(&sum.pairs, &draft.pairs)
            .map(|(a, b)| std::iter::zip(a, b).map(|(a, b)| add(a, b)).collect())
            .collect();
        sum.pairs = if is_alike { rows } else { Vec::new() };
    }
    for rounds in sum.pairs.iter_mut().flatten() {
        rounds.values_mut().for_each(|(value, _)| *value /= count);
    }
    Some((scale, sum))
}
