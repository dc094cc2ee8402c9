//! Chooses one of the last candidates, by a rule.

use serde::Serialize;

use super::MARGIN;
use super::halving::Out;
use super::knob::Knob;
use super::reading::{Contender, common};
use crate::analysis::decision::best::{BesideBest, FAMILY};
use crate::analysis::summary::median;
use crate::analysis::{Bound, Extreme, FEWEST_ROUNDS, Interval};
use crate::claims::{PairedRatio, Rounds};

/// The confidence of the intervals that stand beside the ruling.
const LEVEL: f64 = 0.95;

/// Why a candidate is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RulingReason {
    /// The candidate is worse in no measure. Every other candidate is worse in one.
    Best,
    /// The candidate is worse in no measure. These others are not worse either, and come later in the order of
    /// preference.
    Tie(Vec<String>),
    /// Each candidate is worse in one measure. The taken one has most responses per second and per CPU time together.
    Trade,
    /// Each candidate is worse in one measure. These others have as many responses per second and per CPU time
    /// together, and come later in the order of preference.
    TradeTie(Vec<String>),
    /// The candidate is the only one that could be measured.
    Only,
    /// There is nothing to choose, or there was no result, for this reason. The flag stays at what `auto` takes.
    NotMeasured(String),
}

/// A candidate of the last rounds, with its ratios to the candidate that is taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finalist {
    /// The name of the candidate.
    pub name: String,
    /// The median of the CPU time per response, in microseconds.
    pub cost: f64,
    /// The median of responses per second.
    pub speed: f64,
    /// The cost ÷ the cost of the candidate that is taken; `None` for the taken one itself.
    pub cost_ratio: Option<Interval>,
    /// The speed ÷ the speed of the candidate that is taken; `None` for the taken one itself.
    pub speed_ratio: Option<Interval>,
}

/// What is taken for a flag.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ruling {
    /// The flag.
    pub knob: Knob,
    /// The candidate that is taken; `None`: there was nothing to choose.
    pub taken: Option<String>,
    /// The candidate that `auto` takes, or that is the default.
    pub auto: Option<String>,
    /// The rule that decided.
    pub rule: RulingReason,
    /// The candidates of the last rounds; the taken one is the first.
    pub places: Vec<Finalist>,
    /// The number of the last rounds.
    pub rounds: usize,
    /// The candidates that were removed earlier, with the reasons.
    pub out: Vec<Out>,
}

impl Ruling {
    /// The ruling of a flag that stays at what `auto` takes.
    #[must_use]
    pub fn not_measured(knob: Knob, auto: Option<String>, why: impl Into<String>) -> Ruling {
        let rule = RulingReason::NotMeasured(why.into());
        Ruling { knob, taken: None, auto, rule, places: Vec::new(), rounds: 0, out: Vec::new() }
    }

    /// The candidate that is taken, if `auto` takes another one.
    #[must_use]
    pub fn change(&self) -> Option<&str> {
        self.taken.as_deref().filter(|taken| self.auto.as_deref() != Some(taken))
    }
}

/// Chooses one of `finalists`, which are in the order of preference: what `auto` takes, then the simpler ones.
#[must_use]
pub fn rule(
    knob: Knob,
    auto: Option<String>,
    finalists: &[Contender],
    mut out: Vec<Out>,
) -> Ruling {
    let (left, failed): (Vec<&Contender>, Vec<&Contender>) =
        finalists.iter().partition(|it| it.failure.is_none());
    let why = |it: &&Contender| Some(Out { name: it.name.clone(), why: it.failure.clone()? });
    out.extend(failed.iter().filter_map(why));
    let rounds = common(&left);
    let stays = |why: String, out| Ruling {
        rounds: rounds.len(),
        out,
        ..Ruling::not_measured(knob, auto.clone(), why)
    };
    if left.is_empty() {
        return stays("no candidate could be measured".to_owned(), out);
    }
    if rounds.len() < FEWEST_ROUNDS && left.len() > 1 {
        let made = rounds.len();
        return stays(format!("there was time for {made} of {FEWEST_ROUNDS} rounds"), out);
    }
    let (taken, rule) = choose(&left, &rounds);
    if knob == Knob::Workers
        && let Some(auto) = left.iter().find(|it| Some(&it.name) == auto.as_ref())
        && may_be_faster(auto, left[taken], &rounds)
    {
        // More workers are for more responses per second.
        let why =
            "the load generator was the limit, so that it is not known what more workers can do";
        let places = places(&left, auto, &rounds);
        return Ruling { places, ..stays(why.to_owned(), out) };
    }
    let places = places(&left, left[taken], &rounds);
    let taken = Some(left[taken].name.clone());
    Ruling { knob, taken, auto, rule, places, rounds: rounds.len(), out }
}

/// Whether a candidate may be faster than the taken one without a known limit.
fn may_be_faster(it: &Contender, taken: &Contender, rounds: &[u32]) -> bool {
    let interval = ratio(&it.speed, &taken.speed, rounds).interval(LEVEL);
    it.name != taken.name && interval.is_none_or(|it| it.high.is_infinite())
}

/// The index of the candidate that is taken, and the rule.
fn choose(left: &[&Contender], rounds: &[u32]) -> (usize, RulingReason) {
    let not_worse = |measures: &[Measure]| -> Vec<usize> {
        let worse = measures.iter().map(|it| it.worse(left, rounds, measures.len()));
        let worse: Vec<Vec<bool>> = worse.collect();
        (0..left.len()).filter(|at| !worse.iter().any(|all| all[*at])).collect()
    };
    let names = |others: &[usize]| others.iter().map(|at| left[*at].name.clone()).collect();
    match (left.len(), not_worse(&[Measure::Cost, Measure::Speed]).as_slice()) {
        (1, _) => return (0, RulingReason::Only),
        (_, [one]) => return (*one, RulingReason::Best),
        (_, [first, others @ ..]) => return (*first, RulingReason::Tie(names(others))),
        (_, []) => {}
    }
    match not_worse(&[Measure::Both]).as_slice() {
        [one] => (*one, RulingReason::Trade),
        [first, others @ ..] => (*first, RulingReason::TradeTie(names(others))),
        // The best candidate is never worse than itself.
        [] => (0, RulingReason::Only),
    }
}

/// A measure by which candidates are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Cost,
    Speed,
    /// The geometric mean of cost and speed, like the scores of halving.
    Both,
}

impl Measure {
    /// A candidate's value in a round, of which less is better.
    fn value(self, of: &Contender, round: u32) -> (f64, Bound) {
        let (cost, speed) = (of.cost[&round], of.speed[&round]);
        let time = (1.0 / speed.0, speed.1.inverse());
        match self {
            Measure::Cost => cost,
            Measure::Speed => time,
            Measure::Both => ((cost.0 * time.0).sqrt(), cost.1.and(time.1)),
        }
    }

    /// Which candidates are worse than the best of the others, by more than noise ([`BesideBest`]; `measures` are
    /// looked at together) and more than the margin.
    fn worse(self, left: &[&Contender], rounds: &[u32], measures: usize) -> Vec<bool> {
        let values = |it: &&Contender| rounds.iter().map(|at| self.value(it, *at)).collect();
        let values: Vec<Vec<_>> = left.iter().map(values).collect();
        let error = FAMILY / (values.len() * measures) as f64;
        let is_worse = |at| {
            let beside = BesideBest::of(&values, at, Extreme::Least);
            beside.is_some_and(|it| it.p_worse() <= error && it.factor() >= MARGIN)
        };
        (0..values.len()).map(is_worse).collect()
    }
}

/// One quantity ÷ another in these rounds, which both have.
fn ratio(of: &Rounds, to: &Rounds, rounds: &[u32]) -> PairedRatio {
    let within = |all: &Rounds| rounds.iter().map(|round| (*round, all[round])).collect();
    PairedRatio::of(&within(of), &within(to))
}

/// The candidates with their ratios to `first`; `first` is the first one.
fn places(left: &[&Contender], first: &Contender, rounds: &[u32]) -> Vec<Finalist> {
    let mut places: Vec<Finalist> = left.iter().map(|it| place(it, first, rounds)).collect();
    places.sort_by_key(|place| place.name != first.name);
    places
}

fn place(of: &Contender, taken: &Contender, rounds: &[u32]) -> Finalist {
    let values = |all: &Rounds| -> Vec<f64> { rounds.iter().map(|round| all[round].0).collect() };
    let beside = |of: &Rounds, to: &Rounds| ratio(of, to, rounds).interval(LEVEL);
    let is_taken = of.name == taken.name;
    Finalist {
        name: of.name.clone(),
        cost: median(&values(&of.cost)).unwrap_or(f64::NAN),
        speed: median(&values(&of.speed)).unwrap_or(f64::NAN),
        cost_ratio: if is_taken { None } else { beside(&of.cost, &taken.cost) },
        speed_ratio: if is_taken { None } else { beside(&of.speed, &taken.speed) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::reading::for_test;

    /// Values of six rounds around a mean, with noise.
    fn about(value: f64, noise: f64) -> Vec<f64> {
        [1.0, -0.8, 0.4, -0.5, 0.7, -0.9].iter().map(|it| value * (1.0 + noise * it)).collect()
    }

    fn contender(name: &str, cost: f64, speed: f64) -> Contender {
        for_test(name, &about(cost, 0.01), &about(speed, -0.01))
    }

    fn ruled(finalists: &[Contender]) -> Ruling {
        rule(Knob::Dispatch, Some("auto".to_owned()), finalists, Vec::new())
    }

    #[track_caller]
    fn takes(finalists: &[Contender], name: &str, rule: RulingReason) -> Ruling {
        let ruling = ruled(finalists);
        assert_eq!((ruling.taken.as_deref(), &ruling.rule), (Some(name), &rule), "{ruling:?}");
        ruling
    }

    #[test]
    fn a_clear_winner_is_taken_with_its_figures() {
        let all = [contender("auto", 12.0, 1000.0), contender("b", 10.0, 1200.0)];
        let ruling = takes(&all, "b", RulingReason::Best);
        assert_eq!(ruling.change(), Some("b"));
        assert_eq!(ruling.places[0].name, "b");
        assert_eq!(ruling.places[0].cost_ratio, None);
        let ratio = ruling.places[1].cost_ratio.unwrap();
        assert!((ratio.value - 1.2).abs() < 0.01 && ratio.low > 1.1, "{ratio:?}");
        assert_eq!(ruling.rounds, 6);
    }

    /// Both for a known tie and for an undecided comparison.
    #[test]
    fn a_tie_goes_to_who_comes_first() {
        let tie = RulingReason::Tie(vec!["b".to_owned()]);
        let ruling = takes(
            &[contender("auto", 10.2, 1000.0), contender("b", 10.0, 1010.0)],
            "auto",
            tie.clone(),
        );
        assert_eq!(ruling.change(), None);
        let noisy = [
            for_test("auto", &about(12.0, 0.5), &about(900.0, 0.5)),
            for_test("b", &about(10.0, -0.5), &about(1000.0, -0.4)),
        ];
        takes(&noisy, "auto", tie);
    }

    /// One candidate is as fast as any and costs more; another costs as little as any and is slower. Both lose to a
    /// third one that is worse in nothing.
    #[test]
    fn nobody_is_taken_who_is_worse_in_one_measure() {
        let all = [
            contender("a", 10.0, 700.0),
            contender("b", 14.0, 1010.0),
            contender("c", 10.1, 1000.0),
        ];
        takes(&all, "c", RulingReason::Best);
    }

    #[test]
    fn where_each_is_worse_in_one_measure_both_count() {
        let all = [contender("one", 10.0, 1000.0), contender("two", 11.0, 1900.0)];
        takes(&all, "two", RulingReason::Trade);
        let even = [contender("one", 10.0, 1000.0), contender("two", 12.0, 1205.0)];
        takes(&even, "one", RulingReason::TradeTie(vec!["two".to_owned()]));
    }

    /// A generator at its limit gives a lower bound of what a server can do.
    #[test]
    fn a_bound_rules_out_only_in_its_direction() {
        let limited = |mut it: Contender| {
            it.speed.values_mut().for_each(|(_, bound)| *bound = Bound::AtLeast);
            it
        };
        let slower = limited(contender("auto", 10.0, 900.0));
        takes(
            &[slower, contender("b", 10.0, 1000.0)],
            "auto",
            RulingReason::Tie(vec!["b".to_owned()]),
        );
        let faster = limited(contender("b", 10.0, 1000.0));
        takes(&[contender("auto", 10.0, 900.0), faster], "b", RulingReason::Best);
    }

    #[test]
    fn workers_are_not_taken_away_where_nobody_knows_what_they_can_do() {
        let mut limited = contender("2", 11.0, 1000.0);
        limited.speed.values_mut().for_each(|(_, bound)| *bound = Bound::AtLeast);
        let auto = Some("2".to_owned());
        let ruling =
            rule(Knob::Workers, auto.clone(), &[limited, contender("1", 10.0, 1000.0)], Vec::new());
        assert!(
            matches!(ruling.rule, RulingReason::NotMeasured(why) if why.contains("load generator"))
        );
        let known = [contender("2", 11.0, 1000.0), contender("1", 10.0, 1000.0)];
        assert_eq!(rule(Knob::Workers, auto, &known, Vec::new()).taken.as_deref(), Some("1"));
    }

    #[test]
    fn too_few_rounds_and_failures_leave_what_auto_takes() {
        let few = [for_test("auto", &[1.0; 5], &[1.0; 5]), for_test("b", &[0.5; 5], &[2.0; 5])];
        let ruling = ruled(&few);
        assert_eq!((ruling.taken, ruling.rounds), (None, 5));
        assert!(
            matches!(ruling.rule, RulingReason::NotMeasured(why) if why.contains("5 of 6 rounds"))
        );
        let mut failed = contender("auto", 1.0, 1.0);
        failed.failure = Some("it ended".to_owned());
        let ruling = takes(&[failed.clone(), contender("b", 2.0, 2.0)], "b", RulingReason::Only);
        assert_eq!(ruling.out[0].why, "it ended");
        assert!(matches!(ruled(&[failed]).rule, RulingReason::NotMeasured(_)));
    }
}
