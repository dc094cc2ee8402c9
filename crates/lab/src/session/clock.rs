//! Estimates how long a session still takes, from its plans and from the time that its runs have taken.

use std::time::Duration;

/// After this many runs of an experiment, their mean and the plan's estimate have equal weight.
const TRUST: f64 = 3.0;

/// The times of one experiment.
#[derive(Clone, Debug, Default)]
struct Part {
    runs: usize,
    done: usize,
    spent_s: f64,
    /// The plan's estimate of one run, in seconds.
    planned_s: f64,
    limit_s: Option<f64>,
}

impl Part {
    /// The expected time of a run, in seconds. `pace` is how many times as long as planned runs take here.
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
pub struct SessionClock {
    parts: Vec<Part>,
    now: usize,
}

impl SessionClock {
    /// Adds an experiment with `runs` runs, which together may take `estimate`.
    pub fn plan(&mut self, runs: usize, estimate: Duration) {
        let planned_s = estimate.as_secs_f64() / runs.max(1) as f64;
        self.parts.push(Part { runs, planned_s, ..Part::default() });
    }

    /// Sets the time limit of an experiment. The first experiment has the number 0.
    pub fn limit(&mut self, experiment: usize, limit: Option<Duration>) {
        self.parts[experiment].limit_s = limit.map(|limit| limit.as_secs_f64());
    }

    /// Begins the experiment with this number. All earlier experiments have ended, whether or not all of their runs
    /// were made.
    pub fn begin(&mut self, experiment: usize) {
        self.now = experiment;
    }

    /// Records the end of a run of the current experiment.
    pub fn ended(&mut self, took: Duration) {
        let part = &mut self.parts[self.now];
        part.done += 1;
        part.spent_s += took.as_secs_f64();
    }

    /// The number of ended runs, and of all runs. An experiment that ended early counts only the runs that it has
    /// made, whether its time was over or this machine could not make the others.
    #[must_use]
    pub fn runs(&self) -> (usize, usize) {
        let done = self.parts.iter().map(|part| part.done).sum();
        let (ended, others) = self.parts.split_at(self.now);
        let ended: usize = ended.iter().map(|part| part.done).sum();
        (done, ended + others.iter().map(|part| part.runs).sum::<usize>())
    }

    /// How long the remaining runs may take.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let planned: f64 = self.parts.iter().map(|it| it.done as f64 * it.planned_s).sum();
        let spent: f64 = self.parts.iter().map(|part| part.spent_s).sum();
        let (done, _) = self.runs();
        // A few runs say little about the runs of other experiments.
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

    fn remaining_s(clock: &SessionClock) -> f64 {
        clock.remaining().as_secs_f64()
    }

    #[test]
    fn the_plans_are_believed_until_runs_say_otherwise() {
        let mut clock = SessionClock::default();
        clock.plan(10, s(10));
        clock.plan(100, s(100));
        assert_eq!(remaining_s(&clock), 110.0);
        // Runs take twice as long as planned: the remaining time approaches twice the plan.
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
        let mut clock = SessionClock::default();
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
        let mut clock = SessionClock::default();
        clock.plan(100, s(100));
        clock.limit(0, Some(s(20)));
        assert_eq!(remaining_s(&clock), 20.0);
        clock.ended(s(5));
        assert_eq!(remaining_s(&clock), 15.0);
    }
}
