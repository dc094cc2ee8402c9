//! Sessions of experiments that a command makes itself: `drover lab calibrate`, `decide` and `versus`.

use std::io::Write;

use drover_lab::model::Sample;
use drover_lab::plan::limits::MachineLimits;
use drover_lab::plan::{Overrides, Plan, Selection};
use drover_lab::run::{RunEnd, Unkept};
use drover_lab::session::{Session, SessionOutcome, SessionRequest, SessionSettings};
use drover_lab::spec::Experiment;

use super::conduct;
use crate::cli::stdout::stdout;
use drover_usage::UsageError;

/// How a session is run.
pub(in crate::cli::lab) struct OwnSession {
    /// The preset of all experiments of the session. The folder's name has it.
    pub(in crate::cli::lab) preset: &'static str,
    /// What the user sets in place of the preset's values.
    pub(in crate::cli::lab) overrides: Overrides,
    /// The seed of all random choices.
    pub(in crate::cli::lab) seed: u64,
    /// Where sessions are written, and what ends them.
    pub(in crate::cli::lab) settings: SessionSettings,
}

impl OwnSession {
    /// Runs experiments one after the other, in a session folder of their own.
    pub(in crate::cli::lab) fn run(
        &self,
        experiments: Vec<Experiment>,
    ) -> anyhow::Result<SessionOutcome> {
        let request = SessionRequest {
            experiments,
            are_named: true,
            preset: self.preset.to_owned(),
            overrides: self.overrides.clone(),
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: crate::cli::lab::command_line(),
        };
        let session = Session::plan(request, &MachineLimits::look()?).map_err(UsageError::new)?;
        conduct(session, &self.settings, None)
    }

    /// The plan for a single run of an experiment.
    pub(in crate::cli::lab) fn plan(
        &self,
        experiment: &Experiment,
        overrides: &Overrides,
    ) -> anyhow::Result<(Selection, Plan)> {
        let selection = Selection::new(experiment, self.preset, overrides);
        let selection = selection.map_err(UsageError::new)?;
        let plan = Plan::new(experiment, &selection, self.seed, &MachineLimits::look()?)?;
        Ok((selection, plan))
    }

    /// Runs an experiment once. The result helps to choose how the session is run, and is not kept.
    pub(in crate::cli::lab) fn pilot(
        &self,
        experiment: &Experiment,
        what: &str,
        overrides: &Overrides,
    ) -> anyhow::Result<Vec<Sample>> {
        let (selection, plan) = self.plan(experiment, overrides)?;
        writeln!(stdout(), "{what}: {} runs, about {:.0} s", plan.runs(), plan.estimate_s)?;
        let unkept = Unkept {
            drover: &self.settings.drover,
            folder: self.settings.out.join(format!("first-look-{}", std::process::id())),
            pools: &self.settings.pools,
            interrupt: &self.settings.interrupt,
        };
        let (samples, end) = unkept.samples(experiment, &selection, &plan, &mut |_| {})?;
        anyhow::ensure!(end != RunEnd::Interrupted, "interrupted: nothing was measured");
        Ok(samples)
    }
}
