//! Measures the candidates of `drover tune` on this machine, step by step, within the remaining time.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use drover_lab::decide::fit::{TimeBudget, Wanted};
use drover_lab::model::Sample;
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::run::{RunEnd, RunEvent, Unkept};
use drover_lab::session::SessionSettings;
use drover_lab::spec::Experiment;
use drover_lab::tune::experiment::{experiment, moderate};
use drover_lab::tune::{self, Contender, Contest, Knob, Ruling, Step, TakenFlags, TuneContext};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::stdout::stdout;

/// The windows of the first look: their length in seconds, and their number.
const LOOK_S: f64 = 0.2;
const LOOKS: u32 = 2;

/// The least number of responses per second that can be compared.
const FEWEST: f64 = 20.0;

/// The highest share of failing requests, in percent. A list of URLs with more failures is not for this directory.
const MOST_ERRORS: f64 = 50.0;

/// What is to be measured, and by when.
#[derive(Clone, Copy)]
pub(super) struct TuneRequest<'a> {
    pub(super) scene: &'a TuneContext,
    pub(super) settings: &'a SessionSettings,
    /// The seed of all random choices.
    pub(super) seed: u64,
    pub(super) end: Instant,
    /// The names that candidates may have; empty: any.
    pub(super) subjects: &'a [String],
    /// How long and how often the last candidates are measured, if the user says.
    pub(super) wanted: Wanted,
}

/// The machine, the load, and what was learnt from the first look.
pub(super) struct Bench<'b> {
    asked: TuneRequest<'b>,
    limits: MachineLimits,
    /// How long a run takes in addition to its window, in seconds.
    beside_s: Cell<f64>,
    /// The moderate rate, in requests per second.
    rate: f64,
    /// The share of requests that fail under any candidate, in percent.
    errors: f64,
    bar: Option<ProgressBar>,
    evidence: RefCell<Vec<Value>>,
}

impl<'b> Bench<'b> {
    /// Measures the default configuration with one worker: how many requests it answers, and how long a run takes.
    pub(super) fn begin(asked: TuneRequest<'b>) -> anyhow::Result<Bench<'b>> {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let limits = MachineLimits::look()?;
        let mut bench = Bench {
            asked,
            limits,
            beside_s: Cell::default(),
            rate: 0.0,
            errors: 0.0,
            bar,
            evidence: RefCell::default(),
        };
        bench.look()?;
        Ok(bench)
    }

    fn look(&mut self) -> anyhow::Result<()> {
        self.tell("a first look at what auto takes");
        let auto = Contest {
            knob: Knob::Files,
            names: vec!["auto".to_owned()],
            auto: None,
            flags: vec!["--workers=1".to_owned()],
            processors: 1,
            calls: None,
        };
        let made = experiment(&auto, self.asked.scene, 0.0, LOOK_S)
            .map_err(|it| anyhow::anyhow!("{it}"))?;
        let overrides = Overrides { rounds: Some(LOOKS), ..Overrides::default() };
        let mut took_s = f64::INFINITY;
        let samples = self.samples(&made, &overrides, self.asked.seed, &mut |event| {
            if let RunEvent::Ended { run, .. } = event {
                took_s = run.took_s.min(took_s);
            }
        })?;
        let last = samples.last().context("there was no run")?;
        if let Some(why) = &last.failure {
            bail!("the default configuration cannot be measured: {why}");
        }
        let value = |name: &str| last.values.get(name).copied().unwrap_or(0.0);
        self.errors = value("error-percent");
        let rate = value("reply-rate");
        ensure!(
            self.errors <= MOST_ERRORS,
            "{:.0} % of the requests fail: do the paths of --urls begin at ROOT?",
            self.errors
        );
        ensure!(
            rate >= FEWEST,
            "there are {rate:.0} responses per second, too few to compare: the files are too large, or the \
             machine is too busy; --urls FILE names smaller files"
        );
        self.beside_s.set((took_s - LOOK_S).max(0.05));
        self.rate = moderate(rate);
        Ok(())
    }

    /// Measures the candidates for a flag, if there is a choice. `rest` are the flags that come later; the remaining
    /// time is shared with them.
    pub(super) fn ruling(
        &self,
        knob: Knob,
        rest: &[Knob],
        chosen: &TakenFlags,
    ) -> anyhow::Result<Ruling> {
        let contest_for = |knob| {
            let contest = tune::contest(knob, self.asked.scene, chosen)?;
            contest.among(self.asked.subjects)
        };
        let contest = match contest_for(knob) {
            Ok(contest) => contest,
            Err(why) => return Ok(Ruling::not_measured(knob, None, why)),
        };
        let runs = |knob: &Knob| contest_for(*knob).map_or(0, |it| tune::runs(it.names.len()));
        let own = tune::runs(contest.names.len()) as f64;
        let all = own + rest.iter().map(runs).sum::<usize>() as f64;
        let share = self.left().mul_f64(own / all);
        let end = Instant::now() + share;
        let time = || TimeBudget {
            left_s: end.saturating_duration_since(Instant::now()).as_secs_f64(),
            beside_s: self.beside_s.get(),
        };
        tune::run_contest(&contest, self.asked.wanted, time, |step| self.step(&contest, step))
    }

    /// Measures one step: some candidates, in a number of rounds.
    fn step(&self, contest: &Contest, step: &Step) -> anyhow::Result<Vec<Contender>> {
        let window_s = step.extent.window_s;
        let made = experiment(contest, self.asked.scene, self.rate, window_s);
        let made = made.map_err(|faults| anyhow::anyhow!("{faults}"))?;
        let overrides = Overrides {
            rounds: Some(step.extent.rounds),
            subjects: Some(step.names.clone()),
            ..Overrides::default()
        };
        self.announce(contest, step);
        let bar = self.bar.clone();
        let begun = Instant::now();
        let samples = self.samples(
            &made,
            &overrides,
            self.asked.seed + u64::from(step.number),
            &mut |event| {
                if let (RunEvent::Ended { done, of, .. }, Some(bar)) = (event, &bar) {
                    bar.set_length(of as u64);
                    bar.set_position(done as u64);
                }
            },
        )?;
        let run_s = begun.elapsed().as_secs_f64() / samples.len().max(1) as f64;
        self.beside_s.set((run_s - window_s).max(0.05));
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
    ) -> anyhow::Result<Vec<Sample>> {
        let selection =
            Selection::new(made, tune::PRESET, overrides).map_err(anyhow::Error::msg)?;
        let plan = Plan::new(made, &selection, seed, &self.limits)?;
        let unkept = Unkept {
            drover: &self.asked.settings.drover,
            folder: self.asked.settings.out.join("runs"),
            pools: &self.asked.settings.pools,
            interrupt: &self.asked.settings.interrupt,
        };
        let (samples, end) = unkept.samples(made, &selection, &plan, tell)?;
        ensure!(end != RunEnd::Interrupted, "interrupted: nothing is written");
        Ok(samples)
    }

    fn left(&self) -> Duration {
        self.asked.end.saturating_duration_since(Instant::now())
    }

    /// Shows what is measured, on stderr: in the bar, or in a line.
    fn announce(&self, contest: &Contest, step: &Step) {
        let (rounds, candidates) = (step.extent.rounds, step.names.len());
        let what = if step.is_last { "last candidates" } else { "candidates" };
        self.tell(&format!("{}: {candidates} {what}, {rounds} rounds", contest.knob.name()));
    }

    fn tell(&self, text: &str) {
        let left = drover_usage::duration::in_words(self.left());
        match &self.bar {
            Some(bar) => bar.set_message(format!("{text}; at most {left} left")),
            // An error of stderr is ignored: there is no other place for the message.
            None => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    /// Prints above the bar.
    pub(super) fn print(&self, text: &str) -> anyhow::Result<()> {
        let print = || write!(stdout(), "\n{text}").and_then(|()| stdout().flush());
        Ok(match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }?)
    }

    /// The moderate rate, in requests per second, and everything that was measured.
    pub(super) fn finish(self) -> (f64, Value) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        (self.rate, Value::Array(self.evidence.into_inner()))
    }
}
