//! Fits a question into its time: the number of rounds and the length of windows. Candidates are never left out: a
//! short time gives a less certain answer about all of them.

use crate::analysis::FEWEST_ROUNDS;
use crate::digits::two_digits;
use crate::model::Sample;

/// The share of the time that is planned. The rest is a reserve: some runs take longer, and some are made twice.
const PLANNED: f64 = 0.85;

/// The most rounds that are made unless the user asks for more.
const MOST_ROUNDS: u32 = 20;

/// The length of a window if there is time enough, in seconds.
const WINDOW_S: f64 = 0.5;

/// The shortest window, in seconds.
pub const SHORTEST_S: f64 = 0.2;

/// The least that a run takes in addition to its window, in seconds: starting a process is never free.
const LEAST_BESIDE_S: f64 = 0.05;

/// The low rate, as a share of the saturation rate of the slowest candidate.
const LOW: f64 = 0.1;

/// How far the last of the rounds that a verdict needs may exceed the time, as a share of the time.
const GRACE: f64 = 0.1;

/// The least number of responses per second that can be compared.
pub const LEAST_RATE: f64 = 20.0;

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

/// How long a run takes in addition to its window, by one that took `run_s` in all, in seconds.
#[must_use]
pub fn beside_s(run_s: f64, window_s: f64) -> f64 {
    (run_s - window_s).max(LEAST_BESIDE_S)
}

impl Wanted {
    /// The most rounds that are made. Estimates of the time may be wrong, so that all of them are planned, and the
    /// time ends the session between two rounds.
    #[must_use]
    pub fn most_rounds(&self) -> u32 {
        self.rounds.unwrap_or(MOST_ROUNDS)
    }
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

    /// How many rounds and how long windows fit for a number of cells, even if the rounds are too few for a verdict;
    /// at least one round.
    #[must_use]
    pub fn extent_or_less(&self, cells: usize, wanted: Wanted) -> RunExtent {
        self.extent(cells, wanted).unwrap_or_else(|| {
            let window_s = wanted.window_s.unwrap_or(SHORTEST_S);
            let round_s = cells as f64 * (self.beside_s + window_s);
            let rounds = (PLANNED * self.left_s / round_s) as u32;
            RunExtent { rounds: rounds.min(wanted.rounds.unwrap_or(u32::MAX)).max(1), window_s }
        })
    }

    /// How long a number of rounds of cells takes at least, in seconds, with the reserve.
    #[must_use]
    pub fn needed_s(&self, cells: usize, rounds: u32, wanted: Wanted) -> f64 {
        let window_s = wanted.window_s.unwrap_or(SHORTEST_S);
        f64::from(rounds) * cells as f64 * (self.beside_s + window_s) / PLANNED
    }

    /// The time after which no further round begins, in seconds. Exactly as many rounds as a verdict needs may take a
    /// little longer, because the verdict would be lost for a moment.
    #[must_use]
    pub fn limit_s(&self, extent: RunExtent) -> f64 {
        let is_least = extent.rounds as usize == FEWEST_ROUNDS;
        self.left_s * if is_least { 1.0 + GRACE } else { 1.0 }
    }
}

/// The responses per second of a run, if they can be compared.
pub(crate) fn comparable_rate(sample: &Sample) -> Option<f64> {
    sample.values.get("response-rate").copied().filter(|rate| *rate >= LEAST_RATE)
}

/// A low rate that all candidates can serve: a share of the saturation rate of the slowest candidate. `None`: no
/// candidate has served requests.
#[must_use]
pub fn low_rate<'s>(saturation: impl IntoIterator<Item = &'s Sample>) -> Option<f64> {
    let lowest = saturation.into_iter().filter_map(comparable_rate).fold(f64::INFINITY, f64::min);
    lowest.is_finite().then(|| two_digits(LOW * lowest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        assert!(TIME.needed_s(70, 6, Wanted::default()) > TIME.left_s);
        assert!(TIME.needed_s(50, 6, Wanted::default()) < TIME.left_s);
    }

    #[test]
    fn little_time_makes_fewer_rounds_of_every_candidate() {
        // A round of 70 cells takes 49 s, of 255 s.
        let extent = TIME.extent_or_less(70, Wanted::default());
        assert_eq!(extent, RunExtent { rounds: 5, window_s: SHORTEST_S });
        assert_eq!(TIME.limit_s(extent), TIME.left_s);
        assert_eq!(TIME.extent_or_less(1000, Wanted::default()).rounds, 1);
        assert_eq!(TIME.extent_or_less(10, Wanted::default()).rounds, 20);
        let two = Wanted { rounds: Some(2), window_s: Some(2.0) };
        assert_eq!(TIME.extent_or_less(70, two), RunExtent { rounds: 1, window_s: 2.0 });
        let least = TIME.extent_or_less(50, Wanted::default());
        assert!(least.rounds == 6 && TIME.limit_s(least) > TIME.left_s, "{least:?}");
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
    fn the_low_rate_is_one_that_the_slowest_can_serve() {
        let rates = [("a", 1000.0), ("b", 200.0), ("c", 100.0), ("d", 900.0)];
        let saturation = rates.map(|(name, rate)| sample(name, "response-rate", rate));
        assert_eq!(low_rate(&saturation), Some(10.0));
        assert_eq!(low_rate(&[sample("a", "response-rate", 3.0)]), None);
        assert_eq!(low_rate(&[]), None);
    }
}
