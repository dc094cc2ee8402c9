//! Runs every point of a plan, round after round in shuffled order, and saves after each step.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::claims::FEWEST_REPEATS;
use super::plan::Plan;
use super::results::{Point, Results, Run, Sample, State};

/// What runs one point. The real one starts processes; the tests' has no clock.
pub trait Executor {
    /// Runs `point` once, with requests at `offered_rate`, or as fast as they are answered.
    ///
    /// # Errors
    /// [`Failure::Failed`] if this run came to nothing; the others go on.
    fn run(
        &mut self,
        point: &Point,
        offered_rate: Option<f64>,
        window: Duration,
        seed: u64,
    ) -> Result<Sample, Failure>;

    /// The time since the experiment began.
    fn elapsed(&self) -> Duration;
}

/// Why a run gave no sample.
#[derive(Debug)]
pub enum Failure {
    /// The user wants to stop.
    Interrupted,
    /// Something went wrong, in a line.
    Failed(String),
}

/// Runs `plan` and fills `results`. `after_each` is called after every run, with what there is.
///
/// Round r contains every point once: whatever changes on the machine in the meantime changes all
/// points alike. A run that fails is recorded and the others go on.
///
/// # Errors
/// Those of `after_each`: what cannot be saved need not be measured.
pub fn run(
    plan: &Plan,
    executor: &mut dyn Executor,
    results: &mut Results,
    mut after_each: impl FnMut(&Results) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(results.seed);
    let mut longest_round = Duration::ZERO;
    for round in 1..=plan.repeats {
        let begin = executor.elapsed();
        // With fewer rounds than a verdict needs, those that there are would be of no use.
        let is_needed = round as usize <= FEWEST_REPEATS;
        let budget = if is_needed { 2 * plan.budget } else { plan.budget };
        if round > 1 && begin + longest_round > budget {
            results.state = State::OutOfTime;
            return after_each(results);
        }
        let mut points = plan.points.clone();
        points.shuffle(&mut random);
        for point in points {
            let seed = random.random();
            let offered = results.offered_rate(point.ask);
            let (sample, error) = match executor.run(&point, offered, plan.window, seed) {
                Ok(sample) => (Some(sample), None),
                Err(Failure::Failed(error)) => (None, Some(error)),
                Err(Failure::Interrupted) => {
                    results.state = State::Interrupted;
                    return after_each(results);
                }
            };
            results.runs.push(Run { round, point, seed, sample, error });
            results.elapsed_s = executor.elapsed().as_secs_f64();
            after_each(results)?;
        }
        results.rounds_done = round;
        longest_round = longest_round.max(executor.elapsed() - begin);
    }
    results.state = State::Finished;
    after_each(results)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lab::experiment::Experiment;
    use crate::lab::plan::{Availability, Overrides};
    use serde_json::json;

    /// An executor without a clock: a window of a second takes exactly a second.
    struct Mock<F> {
        elapsed: Duration,
        round_of: std::collections::HashMap<String, u32>,
        answer: F,
    }

    impl<F: FnMut(&Point, u32) -> Result<Sample, Failure>> Executor for Mock<F> {
        fn run(
            &mut self,
            point: &Point,
            _: Option<f64>,
            window: Duration,
            _: u64,
        ) -> Result<Sample, Failure> {
            self.elapsed += window;
            let round = self.round_of.entry(format!("{point:?}")).or_default();
            *round += 1;
            (self.answer)(point, *round)
        }

        fn elapsed(&self) -> Duration {
            self.elapsed
        }
    }

    /// A sample with these values, of a window of one second.
    pub(crate) fn sample(reply_rate: f64, cpu_percent: f64, mean_us: f64) -> Sample {
        Sample {
            server_command: vec!["serve".to_string()],
            load_command: vec!["load".to_string()],
            server_cpu_s: cpu_percent / 100.0,
            server_wait_s: None,
            disk: None,
            disk_written: None,
            stages: None,
            herd: None,
            window_s: 1.0,
            load: json!({"achieved_rate": reply_rate, "replies": reply_rate,
                         "latency_us": {"mean": mean_us, "p50": mean_us, "p99": mean_us}}),
        }
    }

    fn plan_of(text: &str) -> (Experiment, Plan) {
        let experiment = Experiment::parse(text, "test").unwrap();
        let usable = |_: &str| Availability::Usable { model: false };
        let plan =
            Plan::new(&experiment, "quick", &Overrides::default(), None, usable, None).unwrap();
        (experiment, plan)
    }

    /// Runs the quick preset of an experiment whose runs `answer`.
    pub(crate) fn results_of(
        text: &str,
        answer: impl FnMut(&Point, u32) -> Result<Sample, Failure>,
    ) -> Results {
        results_and_saves(text, answer).0
    }

    /// The same, and how many runs each save contained.
    fn results_and_saves(
        text: &str,
        answer: impl FnMut(&Point, u32) -> Result<Sample, Failure>,
    ) -> (Results, Vec<usize>) {
        let (experiment, plan) = plan_of(text);
        let mut results = Results::begin(&experiment, "quick", &plan, 42, Vec::new());
        let mut mock = Mock { elapsed: Duration::ZERO, round_of: Default::default(), answer };
        let mut saves = Vec::new();
        let save = |results: &Results| {
            saves.push(results.runs.len());
            Ok(())
        };
        run(&plan, &mut mock, &mut results, save).unwrap();
        (results, saves)
    }

    const TEXT: &str = include_str!("test-experiment.toml");

    #[test]
    fn each_round_holds_every_point_once_and_in_an_order_of_its_own() {
        let results = results_of(TEXT, |_, _| Ok(sample(1.0, 1.0, 1.0)));
        let orders: Vec<Vec<String>> = results
            .runs
            .chunks(12)
            .map(|round| round.iter().map(|run| format!("{:?}", run.point)).collect())
            .collect();
        assert_eq!(orders.len(), 3);
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        for mut order in orders.clone() {
            order.sort();
            order.dedup();
            assert_eq!(order.len(), 12);
        }
        assert_eq!(results.state, State::Finished);
        assert_eq!(results.rounds_done, 3);
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_the_same_loads() {
        let runs = || {
            let results = results_of(TEXT, |_, _| Ok(sample(1.0, 1.0, 1.0)));
            results.runs.into_iter().map(|run| (run.point, run.seed)).collect::<Vec<_>>()
        };
        assert_eq!(runs(), runs());
    }

    #[test]
    fn results_are_saved_after_each_step() {
        let (_, saves) = results_and_saves(TEXT, |_, _| Ok(sample(1.0, 1.0, 1.0)));
        let each_then_the_end: Vec<usize> = (1..=36).chain([36]).collect();
        assert_eq!(saves, each_then_the_end);
    }

    #[test]
    fn a_failed_run_is_recorded_and_the_others_go_on() {
        let mut count = 0;
        let results = results_of(TEXT, |_, _| {
            count += 1;
            if count == 5 {
                Err(Failure::Failed("boom".to_string()))
            } else {
                Ok(sample(1.0, 1.0, 1.0))
            }
        });
        assert_eq!((results.runs.len(), results.failures()), (36, 1));
        assert_eq!(results.runs[4].error.as_deref(), Some("boom"));
        assert_eq!(results.state, State::Finished);
    }

    #[test]
    fn an_interruption_keeps_what_there_is() {
        let mut count = 0;
        let (results, saves) = results_and_saves(TEXT, |_, _| {
            count += 1;
            if count == 15 { Err(Failure::Interrupted) } else { Ok(sample(1.0, 1.0, 1.0)) }
        });
        assert_eq!((results.runs.len(), results.rounds_done), (14, 1));
        assert_eq!(results.state, State::Interrupted);
        assert_eq!(saves.last(), Some(&14));
    }

    #[test]
    fn a_round_that_would_pass_the_budget_is_not_begun() {
        // A round takes 12 s.
        let rounds = |budget: &str| {
            let text = TEXT.replace("budget_s = 100", budget).replace("repeats = 3", "repeats = 5");
            let results = results_of(&text, |_, _| Ok(sample(1.0, 1.0, 1.0)));
            assert_eq!(results.runs.len(), 12 * results.rounds_done as usize);
            assert_eq!(results.state == State::OutOfTime, results.rounds_done < 5);
            results.rounds_done
        };
        assert_eq!(rounds("budget_s = 60"), 5);
        assert_eq!(rounds("budget_s = 59"), 4);
        // Three are what a verdict needs, and may take twice the time.
        assert_eq!(rounds("budget_s = 18"), 3);
        assert_eq!(rounds("budget_s = 17"), 2);
    }

    #[test]
    fn what_cannot_be_saved_ends_the_run() {
        let (experiment, plan) = plan_of(TEXT);
        let mut results = Results::begin(&experiment, "quick", &plan, 42, Vec::new());
        let answer = |_: &Point, _| Ok(sample(1.0, 1.0, 1.0));
        let mut mock = Mock { elapsed: Duration::ZERO, round_of: Default::default(), answer };
        let error = run(&plan, &mut mock, &mut results, |_| anyhow::bail!("disk full"));
        assert!(error.is_err());
        assert_eq!(results.runs.len(), 1);
    }
}
