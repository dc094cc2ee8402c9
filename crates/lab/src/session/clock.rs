//! How long a session still takes: its plans' estimates, corrected by what its runs have taken.

use std::time::Duration;

/// How many runs of an experiment weigh as much as its estimate.
const TRUST: f64 = 3.0;

/// What is known of the time of one experiment.
#[derive(Clone, Debug, Default)]
struct Part {
    runs: usize,
    done: usize,
    spent_s: f64,
    /// What its plan says of a run.
    planned_s: f64,
    limit_s: Option<f64>,
}

impl Part {
    /// A run in the mean; `pace` is how much longer runs take here than their plans say.
    fn run_s(&self, pace: f64) -> f64 {
        (self.planned_s * pace * TRUST + self.spent_s) / (TRUST + self.done as f64)
    }

    fn remaining_s(&self, pace: f64) -> f64 {
        let left = self.runs.saturating_sub(self.done) as f64 * self.run_s(pace);
        self.limit_s.map_or(left, |limit| left.min((limit - self.spent_s).max(0.0)))
    }
}

/// The clock of a session.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    parts: Vec<Part>,
    now: usize,
}

impl Clock {
    /// Adds an experiment of so many runs, which together may take `estimate`.
    pub fn plan(&mut self, runs: usize, estimate: Duration) {
        let planned_s = estimate.as_secs_f64() / runs.max(1) as f64;
        self.parts.push(Part { runs, planned_s, ..Part::default() });
    }

    /// Sets the time limit of an experiment, by its number from 0.
    pub fn limit(&mut self, experiment: usize, limit: Option<Duration>) {
        self.parts[experiment].limit_s = limit.map(|limit| limit.as_secs_f64());
    }

    /// The experiment with this number begins; those before it have ended, with however many runs.
    pub fn begin(&mut self, experiment: usize) {
        self.now = experiment;
    }

    /// A run of the present experiment has ended.
    pub fn ended(&mut self, took: Duration) {
        let part = &mut self.parts[self.now];
        part.done += 1;
        part.spent_s += took.as_secs_f64();
    }

    /// The number of runs done, and of all runs that there are to be. An experiment that has ended has no
    /// more than it has made, be it that its time was over or that this machine cannot make the others.
    #[must_use]
    pub fn runs(&self) -> (usize, usize) {
        let done = self.parts.iter().map(|part| part.done).sum();
        let (ended, others) = self.parts.split_at(self.now);
        let ended: usize = ended.iter().map(|part| part.done).sum();
        (done, ended + others.iter().map(|part| part.runs).sum::<usize>())
    }

    /// How long the rest may take.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let planned: f64 = self.parts.iter().map(|it| it.done as f64 * it.planned_s).sum();
        let spent: f64 = self.parts.iter().map(|part| part.spent_s).sum();
        let (done, _) = self.runs();
        // A few runs say little of the runs of other experiments.
        let trust = done as f64 / (done as f64 + TRUST);
        let pace = if planned > 0.0 { 1.0 + trust * (spent / planned - 1.0) } else { 1.0 };
        let left = self.parts[self.now.min(self.parts.len())..].iter();
        super::seconds(left.map(|part| part.remaining_s(pace)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn remaining_s(clock: &Clock) -> f64 {
        clock.remaining().as_secs_f64()
    }

    #[test]
    fn the_plans_are_believed_until_runs_say_otherwise() {
        let mut clock = Clock::default();
        clock.plan(10, s(10));
        clock.plan(100, s(100));
        assert_eq!(remaining_s(&clock), 110.0);
        // Runs take twice as long as planned: what is left approaches twice the plan.
        let mut before = 110.0;
        for _ in 0..9 {
            clock.ended(s(2));
            assert!(remaining_s(&clock) > before - 2.0, "{}", remaining_s(&clock));
            before = remaining_s(&clock);
        }
        assert!((150.0..=202.0).contains(&before), "{before}");
        assert_eq!(clock.runs(), (9, 110));
    }

    #[test]
    fn what_has_ended_early_is_not_waited_for() {
        let mut clock = Clock::default();
        clock.plan(10, s(10));
        clock.plan(5, s(5));
        assert_eq!(clock.runs(), (0, 15));
        clock.begin(1);
        assert_eq!((remaining_s(&clock), clock.runs()), (5.0, (0, 5)));
        for _ in 0..5 {
            clock.ended(s(1));
        }
        assert_eq!(remaining_s(&clock), 0.0);
    }

    #[test]
    fn nothing_takes_longer_than_its_limit() {
        let mut clock = Clock::default();
        clock.plan(100, s(100));
        clock.limit(0, Some(s(20)));
        assert_eq!(remaining_s(&clock), 20.0);
        clock.ended(s(5));
        assert_eq!(remaining_s(&clock), 15.0);
    }
}
