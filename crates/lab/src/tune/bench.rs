//! Measures the candidates of `drover tune` on this machine, step by step, within the remaining time.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::experiment::{experiment, moderate};
use super::{
    Contender, Contest, Knob, Ruling, Step, TakenFlags, TuneContext, contest, run_contest, runs,
};
use crate::decide::fit::{LEAST_RATE, TimeBudget, Wanted, beside_s};
use crate::model::Sample;
use crate::plan::limits::MachineLimits;
use crate::plan::{Overrides, Plan, Selection};
use crate::run::{RunEnd, RunEvent, Unkept};
use crate::session::SessionSettings;
use crate::spec::Experiment;

/// The windows of the first look: their length in seconds, and their number.
const LOOK_S: f64 = 0.2;
const LOOKS: u32 = 2;

/// The highest share of failing requests, in percent. A list of URLs with more failures is not for this directory.
const MOST_ERRORS: f64 = 50.0;

/// What the measuring of a step, or of the first look, tells.
#[derive(Clone, Copy, Debug)]
pub enum TuneEvent<'e> {
    /// The default configuration is looked at first.
    FirstLook,
    /// Candidates for a flag are measured.
    Step(Knob, &'e Step),
    /// So many of the runs of a step are made.
    Runs {
        /// How many are.
        done: usize,
        /// How many there are.
        of: usize,
    },
}

/// What is to be measured, and by when.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct TuneRequest<'a> {
    /// The files and the load.
    pub scene: &'a TuneContext,
    /// Where runs have their files, and what ends them.
    pub settings: &'a SessionSettings,
    /// The seed of all random choices.
    pub seed: u64,
    /// When the measuring is to be over.
    pub end: Instant,
    /// The names that candidates may have; empty: any.
    pub subjects: &'a [String],
    /// How long and how often the last candidates are measured, if the user says.
    pub wanted: Wanted,
    /// Is told what happens.
    pub told: &'a dyn Fn(TuneEvent<'_>),
}

/// The machine, the load, and what was learnt from the first look.
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct TuneBench<'b> {
    asked: TuneRequest<'b>,
    limits: MachineLimits,
    /// How long a run takes in addition to its window, in seconds.
    beside_s: Cell<f64>,
    /// The moderate rate, in requests per second.
    rate: f64,
    /// The share of requests that fail under any candidate, in percent.
    errors: f64,
    evidence: RefCell<Vec<Value>>,
}

impl<'b> TuneBench<'b> {
    /// Measures the default configuration with one worker: how many requests it answers, and how long a run takes.
    ///
    /// # Errors
    /// What is wrong with the machine, the load or the files, in words.
    pub fn begin(asked: TuneRequest<'b>) -> Result<TuneBench<'b>, String> {
        let limits = MachineLimits::look().map_err(|it| it.to_string())?;
        let mut bench = TuneBench {
            asked,
            limits,
            beside_s: Cell::default(),
            rate: 0.0,
            errors: 0.0,
            evidence: RefCell::default(),
        };
        bench.look()?;
        Ok(bench)
    }

    fn look(&mut self) -> Result<(), String> {
        (self.asked.told)(TuneEvent::FirstLook);
        let auto = Contest {
            knob: Knob::Files,
            names: vec!["auto".to_owned()],
            auto: None,
            flags: vec!["--workers=1".to_owned()],
            processors: 1,
            calls: None,
        };
        let made = experiment(&auto, self.asked.scene, 0.0, LOOK_S).map_err(|it| it.to_string())?;
        let overrides = Overrides { rounds: Some(LOOKS), ..Overrides::default() };
        let mut took_s = f64::INFINITY;
        let samples = self.samples(&made, &overrides, self.asked.seed, &mut |event| {
            if let RunEvent::Ended { run, .. } = event {
                took_s = run.took_s.min(took_s);
            }
        })?;
        let last = samples.last().ok_or("there was no run")?;
        if let Some(why) = &last.failure {
            return Err(format!("the default configuration cannot be measured: {why}"));
        }
        let value = |name: &str| last.values.get(name).copied().unwrap_or(0.0);
        self.errors = value("error-percent");
        let rate = value("response-rate");
        if self.errors > MOST_ERRORS {
            let errors = self.errors;
            return Err(format!(
                "{errors:.0} % of the requests fail: do the paths of --urls begin at ROOT?"
            ));
        }
        if rate < LEAST_RATE {
            return Err(format!(
                "there are {rate:.0} responses per second, too few to compare: the files are too large, or the \
                 machine is too busy; --urls FILE names smaller files"
            ));
        }
        self.beside_s.set(beside_s(took_s, LOOK_S));
        self.rate = moderate(rate);
        Ok(())
    }

    /// Measures the candidates for a flag, if there is a choice. `rest` are the flags that come later; the remaining
    /// time is shared with them.
    ///
    /// # Errors
    /// Nothing could be measured, or the user has interrupted.
    pub fn ruling(&self, knob: Knob, rest: &[Knob], chosen: &TakenFlags) -> Result<Ruling, String> {
        let contest_for = |knob| {
            let choice = contest(knob, self.asked.scene, chosen)?;
            choice.among(self.asked.subjects)
        };
        let contest = match contest_for(knob) {
            Ok(contest) => contest,
            Err(why) => return Ok(Ruling::not_measured(knob, None, why)),
        };
        let later = |knob: &Knob| contest_for(*knob).map_or(0, |it| runs(it.names.len()));
        let own = runs(contest.names.len()) as f64;
        let all = own + rest.iter().map(later).sum::<usize>() as f64;
        let share = self.left().mul_f64(own / all);
        let end = Instant::now() + share;
        let time = || TimeBudget {
            left_s: end.saturating_duration_since(Instant::now()).as_secs_f64(),
            beside_s: self.beside_s.get(),
        };
        run_contest(&contest, self.asked.wanted, time, |step| self.step(&contest, step))
    }

    /// Measures one step: some candidates, in a number of rounds.
    fn step(&self, contest: &Contest, step: &Step) -> Result<Vec<Contender>, String> {
        let window_s = step.extent.window_s;
        let made = experiment(contest, self.asked.scene, self.rate, window_s);
        let made = made.map_err(|faults| faults.to_string())?;
        let overrides = Overrides {
            rounds: Some(step.extent.rounds),
            subjects: Some(step.names.clone()),
            ..Overrides::default()
        };
        (self.asked.told)(TuneEvent::Step(contest.knob, step));
        let begun = Instant::now();
        let samples = self.samples(
            &made,
            &overrides,
            self.asked.seed + u64::from(step.number),
            &mut |event| {
                if let RunEvent::Ended { done, of, .. } = event {
                    (self.asked.told)(TuneEvent::Runs { done, of });
                }
            },
        )?;
        let run_s = begun.elapsed().as_secs_f64() / samples.len().max(1) as f64;
        self.beside_s.set(beside_s(run_s, window_s));
        let read = |name: &String| Contender::read(name, &samples, self.errors);
        let contenders: Vec<Contender> = step.names.iter().map(read).collect();
        self.evidence.borrow_mut().push(json!({
            "flag": contest.knob,
            "with": contest.flags,
            "rate": self.rate,
            "window_s": window_s,
            "rounds": step.extent.rounds,
            "candidates": contenders,
        }));
        Ok(contenders)
    }

    fn samples(
        &self,
        made: &Experiment,
        overrides: &Overrides,
        seed: u64,
        tell: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<Vec<Sample>, String> {
        let selection = Selection::new(made, super::PRESET, overrides)?;
        let plan = Plan::new(made, &selection, seed, &self.limits).map_err(|it| it.to_string())?;
        let unkept = Unkept {
            drover: &self.asked.settings.drover,
            folder: self.asked.settings.out.join("runs"),
            pools: &self.asked.settings.pools,
            interrupt: &self.asked.settings.interrupt,
        };
        let (samples, end) =
            unkept.samples(made, &selection, &plan, tell).map_err(|it| it.to_string())?;
        match end {
            RunEnd::Interrupted => Err("interrupted: nothing is written".to_owned()),
            _ => Ok(samples),
        }
    }

    fn left(&self) -> Duration {
        self.asked.end.saturating_duration_since(Instant::now())
    }

    /// The moderate rate, in requests per second, and everything that was measured.
    #[must_use]
    pub fn finish(self) -> (f64, Value) {
        (self.rate, Value::Array(self.evidence.into_inner()))
    }
}
