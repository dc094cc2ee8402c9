//! Fits a question into its time: the number of rounds, the length of windows, and which candidates are left out if
//! not all fit.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::candidates::{Axis, Candidates};
use crate::analysis::FEWEST_ROUNDS;
use crate::digits::two_digits;
use crate::model::Sample;
use crate::report::model::words::{list, number};
use crate::spec::metric::Better;

/// The share of the time that is planned. The rest is a reserve: some runs take longer, and some are made twice.
const PLANNED: f64 = 0.85;

/// The most rounds that are made unless the user asks for more.
const MOST_ROUNDS: u32 = 20;

/// The length of a window if there is time enough, in seconds.
const WINDOW_S: f64 = 0.5;

/// The shortest window, in seconds.
pub const SHORTEST_S: f64 = 0.2;

/// The low rate, as a share of the saturation rate of the slowest candidate.
const LOW: f64 = 0.1;

/// A candidate with less than this share of the best is slow, even by a single run.
const SLOW: f64 = 0.67;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunExtent {
    /// How many rounds.
    pub rounds: u32,
    /// The length of each window, in seconds.
    pub window_s: f64,
}

/// How much the user wants to run; `None`: as time allows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wanted {
    /// How many rounds.
    pub rounds: Option<u32>,
    /// The length of each window, in seconds.
    pub window_s: Option<f64>,
}

/// The time that is left, and the time that a run takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBudget {
    /// How long all runs together may take, in seconds.
    pub left_s: f64,
    /// How long a run takes in addition to its window, in seconds: starting, warming up, opening its connections.
    pub beside_s: f64,
}

impl TimeBudget {
    /// How many rounds and how long windows fit for a number of cells; `None`: fewer rounds than an answer needs, or
    /// than the user wants.
    #[must_use]
    pub fn extent(&self, cells: usize, wanted: Wanted) -> Option<RunExtent> {
        let planned_s = PLANNED * self.left_s;
        let run_s = |window_s: f64| cells as f64 * (self.beside_s + window_s);
        let window_s = wanted.window_s.unwrap_or(WINDOW_S);
        let rounds = wanted.rounds.unwrap_or_else(|| {
            ((planned_s / run_s(window_s)) as u32).clamp(FEWEST_ROUNDS as u32, MOST_ROUNDS)
        });
        if f64::from(rounds) * run_s(window_s) <= planned_s {
            return Some(RunExtent { rounds, window_s });
        }
        let window_s = planned_s / (f64::from(rounds) * cells as f64) - self.beside_s;
        let may_be_short = wanted.window_s.is_none() && window_s >= SHORTEST_S;
        may_be_short.then_some(RunExtent { rounds, window_s })
    }

    /// How long a number of cells takes at least, in seconds.
    #[must_use]
    pub fn needed_s(&self, cells: usize, wanted: Wanted) -> f64 {
        let rounds = wanted.rounds.unwrap_or(FEWEST_ROUNDS as u32);
        let window_s = wanted.window_s.unwrap_or(SHORTEST_S);
        f64::from(rounds) * cells as f64 * (self.beside_s + window_s) / PLANNED
    }
}

/// The result of a candidate in the first look.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// The axis of the candidate.
    pub axis: Axis,
    /// Its name.
    pub name: String,
    /// The candidate's value as a share of the best value on its axis, at the load where this share is the greater
    /// one; 0 if the candidate failed.
    pub share: f64,
    /// How many candidates of the axis are simpler. 0 for the candidate that `auto` takes.
    pub simpler: usize,
}

impl Look {
    /// Whether the candidate is too slow to be measured further, by a single run at each load.
    fn is_slow(&self) -> bool {
        self.share < SLOW
    }
}

/// The candidates of an axis with their results in two first looks: at saturation and at a low rate.
#[must_use]
pub fn looks(candidates: &Candidates, saturation: &[Sample], low: &[Sample]) -> Vec<Look> {
    let of_each = [
        shares(saturation, "reply-rate", Better::Higher),
        shares(low, "cpu-per-reply", Better::Lower),
    ];
    let share = |name: &String| {
        of_each.iter().filter_map(|shares| shares.get(name)).copied().fold(0.0, f64::max)
    };
    let look = |(place, name): (usize, &String)| {
        let simpler = if candidates.auto.as_ref() == Some(name) { 0 } else { place };
        Look { axis: candidates.axis, name: name.clone(), share: share(name), simpler }
    };
    candidates.names.iter().enumerate().map(look).collect()
}

/// The value of each subject as a share of the best value.
fn shares(samples: &[Sample], metric: &str, better: Better) -> BTreeMap<String, f64> {
    let value = |sample: &Sample| {
        let value = sample.values.get(metric).copied().filter(|value| *value > 0.0)?;
        Some((
            sample.cell.subject.clone(),
            if better == Better::Higher { value } else { value.recip() },
        ))
    };
    let mut values: BTreeMap<String, f64> = samples.iter().filter_map(value).collect();
    let best = values.values().copied().fold(0.0, f64::max);
    values.values_mut().for_each(|value| *value /= best);
    values
}

/// Removes candidates until the number of those that are left fits. The slow candidates go first, then the least
/// simple ones, because one run does not show small differences. At least two candidates of each axis stay. If these
/// are too many, whole axes go from the last one on, never the first axis. Returns the removed candidates.
#[must_use]
pub fn cut(looks: &[Look], fits: impl Fn(usize) -> bool) -> Vec<Look> {
    let mut axes: Vec<Axis> = looks.iter().map(|look| look.axis).collect();
    axes.dedup();
    loop {
        let (mut left, mut out): (Vec<Look>, Vec<Look>) =
            looks.iter().cloned().partition(|look| axes.contains(&look.axis));
        while !fits(left.len()) {
            let Some(worst) = worst(&left) else { break };
            out.push(left.remove(worst));
        }
        if fits(left.len()) || axes.len() <= 1 {
            return out;
        }
        axes.pop();
    }
}

/// The candidate to remove next, from an axis with more than two candidates.
fn worst(left: &[Look]) -> Option<usize> {
    let of_axis = |axis: Axis| left.iter().filter(|look| look.axis == axis).count();
    let may_go = (0..left.len()).filter(|at| of_axis(left[*at].axis) > 2);
    let price = |at: &usize| {
        let look = &left[*at];
        let share = if look.is_slow() { look.share } else { 1.0 };
        (share, Reverse(look.simpler))
    };
    may_go.min_by(|a, b| price(a).partial_cmp(&price(b)).unwrap_or(Ordering::Equal))
}

/// A sentence that says which candidates were left out, and which `--budget` would measure all of them. The axes
/// `gone` have no candidates left.
#[must_use]
pub fn left_out_words(out: &[Look], gone: &[Axis], budget: &str) -> String {
    let others = || out.iter().filter(|look| !gone.contains(&look.axis));
    let slow = others().filter(|look| look.is_slow()).map(|look| match look.share > 0.0 {
        true => format!("{} ({} of the best)", look.name, number(look.share)),
        false => format!("{} (failed)", look.name),
    });
    let complex = others().filter(|look| !look.is_slow()).map(|look| look.name.clone());
    let complex: Vec<String> = complex.collect();
    let mut reasons = vec![list(&slow.collect::<Vec<_>>())];
    if !complex.is_empty() {
        reasons.push(format!("the less simple {}", list(&complex)));
    }
    reasons.extend(gone.iter().map(|axis| format!("all {}", axis.plural())));
    reasons.retain(|reason| !reason.is_empty());
    format!(
        "Left out after a first look, to save time: {}. --budget {budget} measures them too.",
        reasons.join("; ")
    )
}

/// A low rate that all candidates can serve: a share of the saturation rate of the slowest candidate. `None`: no
/// candidate has served requests.
#[must_use]
pub fn low_rate<'s>(saturation: impl IntoIterator<Item = &'s Sample>) -> Option<f64> {
    let rates = saturation.into_iter().filter_map(|sample| sample.values.get("reply-rate"));
    let lowest = rates.copied().filter(|rate| *rate >= 20.0).fold(f64::INFINITY, f64::min);
    lowest.is_finite().then(|| two_digits(LOW * lowest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Cell;

    const TIME: TimeBudget = TimeBudget { left_s: 300.0, beside_s: 0.5 };

    #[test]
    fn time_goes_into_rounds_then_into_windows() {
        // 255 s are planned with, a round of 10 cells takes 10 s.
        assert_eq!(
            TIME.extent(10, Wanted::default()),
            Some(RunExtent { rounds: 20, window_s: WINDOW_S })
        );
        assert_eq!(TIME.extent(30, Wanted::default()).unwrap().rounds, 8);
        let short = TIME.extent(50, Wanted::default()).unwrap();
        assert_eq!(short.rounds, 6);
        assert!((short.window_s - 0.35).abs() < 1e-9, "{short:?}");
        assert_eq!(TIME.extent(70, Wanted::default()), None);
        assert!(TIME.needed_s(70, Wanted::default()) > TIME.left_s);
        assert!(TIME.needed_s(50, Wanted::default()) < TIME.left_s);
    }

    #[test]
    fn what_the_user_says_is_not_changed() {
        let wanted = Wanted { rounds: Some(1), window_s: Some(2.0) };
        assert_eq!(TIME.extent(70, wanted), Some(RunExtent { rounds: 1, window_s: 2.0 }));
        assert_eq!(TIME.extent(70, Wanted { rounds: Some(2), ..wanted }), None);
        let rounds = Wanted { rounds: Some(30), window_s: None };
        let extent = TIME.extent(10, rounds).unwrap();
        assert!(extent.rounds == 30 && extent.window_s < WINDOW_S, "{extent:?}");
    }

    fn sample(subject: &str, metric: &str, value: f64) -> Sample {
        let cell = Cell { subject: subject.to_owned(), levels: BTreeMap::new() };
        let mut sample = Sample::new(cell, 1);
        sample.values.insert(metric.to_owned(), value);
        sample
    }

    #[test]
    fn the_slowest_at_both_loads_is_left_out_first() {
        let rates = [("a", 1000.0), ("b", 200.0), ("c", 100.0), ("d", 900.0)];
        let saturation = rates.map(|(name, rate)| sample(name, "reply-rate", rate));
        // At a low rate b is the best.
        let costs = [("a", 12.0), ("b", 10.0), ("c", 40.0), ("d", 20.0)];
        let low = costs.map(|(name, cost)| sample(name, "cpu-per-reply", cost));
        let candidates = Candidates {
            axis: Axis::Dispatch,
            flags: Vec::new(),
            names: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
            auto: Some("d".to_owned()),
        };
        let looks = looks(&candidates, &saturation, &low);
        let shares: Vec<f64> = looks.iter().map(|look| look.share).collect();
        assert_eq!(shares, [1.0, 1.0, 0.25, 0.9, 0.0]);
        assert_eq!(cut(&looks, |_| true), []);
        let names = |out: &[Look]| out.iter().map(|look| look.name.clone()).collect::<Vec<_>>();
        let out = cut(&looks, |left| left <= 3);
        assert_eq!(names(&out), ["e", "c"]);
        let words = left_out_words(&out, &[], "12m");
        assert!(words.contains("e (failed) and c (0.25 of the best). --budget 12m"), "{words}");
        // None of the others is slow: a is the simplest, and d what auto takes.
        let out = cut(&looks, |left| left <= 2);
        assert_eq!(names(&out), ["e", "c", "b"]);
        let words = left_out_words(&out, &[], "12m");
        assert!(words.contains("c (0.25 of the best); the less simple b. "), "{words}");
        // Two candidates stay, whether or not they fit.
        assert_eq!(names(&cut(&looks, |_| false)), ["e", "c", "b"]);
        assert_eq!(low_rate(&saturation), Some(10.0));
        assert_eq!(low_rate(&[sample("a", "reply-rate", 3.0)]), None);
    }

    #[test]
    fn an_axis_goes_as_a_whole_where_two_candidates_of_each_are_too_many() {
        let look =
            |axis, name: &str, share| Look { axis, name: name.to_owned(), share, simpler: 0 };
        let looks = [
            look(Axis::Dispatch, "a", 0.9),
            look(Axis::Dispatch, "b", 1.0),
            look(Axis::Dispatch, "c", 0.5),
            look(Axis::Dispatch, "d", 0.2),
            look(Axis::Accept, "x", 1.0),
            look(Axis::Accept, "y", 0.95),
        ];
        let names = |most| {
            let out = cut(&looks, |left| left <= most);
            out.iter().map(|look| look.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([names(4), names(3), names(1)], ["d c", "x y d", "x y d c"]);
        let words = left_out_words(&cut(&looks, |left| left <= 3), &[Axis::Accept], "9m");
        assert!(words.contains("d (0.2 of the best); all accept strategies."), "{words}");
    }
}
