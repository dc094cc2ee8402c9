//! A session: several experiments, planned together and run one after the other, in one folder with one report.
//!
//! ```text
//! OUT/STAMP-PRESET/session.json                    what the session was asked for
//! OUT/STAMP-PRESET/report.html                     the report, written anew while the session runs
//! OUT/STAMP-PRESET/ID/experiment.json              an experiment, with everything that its file includes
//! OUT/STAMP-PRESET/ID/selection.json               what of it is run
//! OUT/STAMP-PRESET/ID/plan.json, runs.jsonl        its journal, once it has begun
//! OUT/report.html                                  the newest report
//! ```
//!
//! A session is resumed from its folder alone. Flags and experiment files are not read again.

mod clock;
mod folder;
mod narrow;
mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::analysis::FEWEST_ROUNDS;
use crate::journal::{self, Environment};
use crate::plan::estimate::RunPhases;
use crate::plan::limits::MachineLimits;
use crate::plan::{Overrides, Plan, PlannedCell, Selection};
use crate::record;
use crate::spec::Experiment;
use crate::spec::setting::{Setting, TimeSetting};

pub use clock::SessionClock;
pub use folder::newest;
pub use run::{SessionEvent, SessionOutcome, SessionSettings};

/// The request of a session.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// The experiments, in their order.
    pub experiments: Vec<Experiment>,
    /// Whether the user has named the experiments. If not, experiments are left out that have none of the chosen
    /// subjects, or that lack a chosen factor.
    pub are_named: bool,
    /// The preset's name.
    pub preset: String,
    /// The flags of the user, which replace the preset's values. The budget applies to the whole session.
    pub overrides: Overrides,
    /// The seed of all random choices.
    pub seed: u64,
    /// The version of Drover.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
}

/// An experiment that will be run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The experiment.
    pub experiment: Experiment,
    /// What of the experiment is run.
    pub selection: Selection,
    /// The plan of its runs.
    pub plan: Plan,
    /// How many of the runs a resumed session has already made.
    pub found: usize,
    /// How long a round takes at least, in seconds: the windows of its runs.
    least_round_s: f64,
}

impl Planned {
    fn new(
        experiment: Experiment,
        selection: Selection,
        seed: u64,
        limits: &MachineLimits,
    ) -> Result<Planned, String> {
        let plan = Plan::new(&experiment, &selection, seed, limits);
        let plan = plan.map_err(|failure| failure.to_string())?;
        let testable = plan.cells.iter().filter(|cell| cell.not_testable.is_none());
        let of_cell = |planned: &PlannedCell| {
            let phases = RunPhases::of(&experiment, &selection.preset, &planned.cell.levels);
            phases.map_or(0.0, |phases| phases.least_s(&experiment.load))
        };
        let least_round_s = testable.map(of_cell).sum();
        Ok(Planned { experiment, selection, plan, found: 0, least_round_s })
    }

    /// How many runs are missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.plan.runs().saturating_sub(self.found)
    }

    /// How long the missing runs may take, without a time limit.
    #[must_use]
    pub fn estimate_of_runs(&self) -> Duration {
        let missing = self.missing() as f64 / self.plan.runs().max(1) as f64;
        seconds(self.plan.estimate_s * missing)
    }

    /// How long the experiment may take: the estimate of its missing runs, or its time limit if that is shorter.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let whole = self.estimate_of_runs();
        self.budget().map_or(whole, |budget| budget.min(whole))
    }

    /// The experiment's time limit.
    #[must_use]
    pub fn budget(&self) -> Option<Duration> {
        let budget = self.selection.preset.budget.as_ref()?;
        budget.resolve(&Default::default()).ok()
    }

    /// Whether as many rounds as a verdict needs take longer than this time in any case.
    fn exceeds(&self, time: Duration) -> bool {
        let needed = FEWEST_ROUNDS.min(self.plan.rounds as usize) as f64;
        self.found == 0 && time < seconds(self.least_round_s * needed)
    }

    fn set_budget(&mut self, budget: Duration) {
        let text = format!("{}us", budget.as_micros());
        self.selection.preset.budget = Some(TimeSetting(Setting::Text(text)));
    }
}

/// A planned session.
#[derive(Clone, Debug)]
pub struct Session {
    record: record::RecordedSession,
    planned: Vec<Planned>,
    /// The time limit of the whole session. It is divided among the experiments.
    budget: Option<Duration>,
    /// The folder of a resumed session.
    resumed: Option<PathBuf>,
    notes: Vec<String>,
}

impl Session {
    /// Plans a session for a machine with these limits. An experiment that cannot be planned is recorded as refused,
    /// and the others are run.
    ///
    /// # Errors
    /// The text says what is wrong with the request: a subject or a factor that no experiment has, two experiments of
    /// one name, or no experiment that could be planned.
    pub fn plan(request: SessionRequest, limits: &MachineLimits) -> Result<Session, String> {
        let SessionRequest { experiments, are_named, preset, overrides, seed, version, command } =
            request;
        for (at, experiment) in experiments.iter().enumerate() {
            if experiments[..at].iter().any(|other| other.id == experiment.id) {
                return Err(format!("two experiments are called {}: rename one", experiment.id));
            }
        }
        let (chosen, notes) = narrow::narrow(experiments, are_named, &overrides)?;
        let mut record = record::RecordedSession {
            schema: record::SCHEMA.to_owned(),
            version,
            command,
            preset,
            seed,
            began: journal::now_s(),
            experiments: Vec::new(),
            refused: Vec::new(),
        };
        let mut planned = Vec::new();
        for (experiment, overrides) in chosen {
            let id = experiment.id.clone();
            let selection = Selection::new(&experiment, &record.preset, &overrides);
            match selection.and_then(|it| Planned::new(experiment, it, seed, limits)) {
                Ok(one) => {
                    record.experiments.push(id);
                    planned.push(one);
                }
                Err(why) => record.refused.push((id, why)),
            }
        }
        if planned.is_empty() {
            let why = record.refused.iter().map(|(id, why)| format!("{id}: {why}"));
            return Err(why.collect::<Vec<_>>().join("; "));
        }
        let budget = overrides.budget;
        let mut session = Session { record, planned, budget, resumed: None, notes };
        session.share_out(Duration::ZERO, 0);
        Ok(session)
    }

    /// Reads an interrupted session from its folder, to continue it. `rounds` and `budget`, if given, replace those
    /// of the original request; the budget counts from now on.
    ///
    /// # Errors
    /// The text says that the folder is no session's, or that an experiment can no longer be planned.
    pub fn resume(
        folder: &Path,
        rounds: Option<u32>,
        budget: Option<Duration>,
        limits: &MachineLimits,
    ) -> Result<Session, String> {
        let failed = |error: journal::JournalError| error.to_string();
        let mut record = record::read_session(folder).map_err(failed)?;
        let mut planned = Vec::new();
        for id in &record.experiments {
            let own = folder.join(id);
            let experiment = record::read_experiment(&own).map_err(failed)?;
            let mut selection = folder::read_selection(&own).map_err(failed)?;
            if let Some(rounds) = rounds {
                selection.preset.rounds = Some(rounds);
            }
            selection.notes.clear();
            let mut one = Planned::new(experiment, selection, record.seed, limits)?;
            if own.join(journal::PLAN).exists() {
                // Runs of rounds that are no longer requested do not count.
                let (_, runs) = journal::read(&own).map_err(failed)?;
                let asked =
                    |run: &&journal::Run| run.is_measured() && run.sample.round <= one.plan.rounds;
                one.found = runs.iter().filter(asked).count();
            }
            planned.push(one);
        }
        // Experiments that failed are tried again. Experiments that could not be planned have no folder to continue.
        record.refused.retain(|(id, _)| !record.experiments.contains(id));
        let resumed = Some(folder.to_owned());
        let mut session = Session { record, planned, budget, resumed, notes: Vec::new() };
        session.share_out(Duration::ZERO, 0);
        Ok(session)
    }

    /// Divides the session's remaining time (without `spent`) among the experiments from `first` on, in proportion to
    /// their estimates.
    fn share_out(&mut self, spent: Duration, first: usize) {
        let Some(budget) = self.budget else { return };
        let left = budget.saturating_sub(spent);
        let planned = &mut self.planned[first..];
        let all: Duration = planned.iter().map(Planned::estimate_of_runs).sum();
        for one in planned {
            let own = one.estimate_of_runs();
            let share = if all.is_zero() { 0.0 } else { own.as_secs_f64() / all.as_secs_f64() };
            one.set_budget(left.mul_f64(share));
        }
    }

    /// Why a resumed session cannot continue on this machine: each text is a difference. Empty for a new session.
    ///
    /// # Errors
    /// A journal or a program that cannot be read.
    pub fn differences(&self, drover: &Path) -> Result<Vec<String>, journal::JournalError> {
        let Some(folder) = &self.resumed else { return Ok(Vec::new()) };
        let here = Environment::look(drover);
        let here = here.map_err(|error| journal::JournalError::Io(drover.to_owned(), error))?;
        for one in &self.planned {
            let own = folder.join(&one.experiment.id);
            if !own.join(journal::PLAN).exists() {
                continue;
            }
            let (header, _) = journal::read(&own)?;
            let mut found = header.environment.differences(&here);
            found.extend(header.plan.differences(&one.plan));
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The experiments that will be run, in their order.
    #[must_use]
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// The experiments that cannot be planned here, each with the reason.
    #[must_use]
    pub fn refused(&self) -> &[(String, String)] {
        &self.record.refused
    }

    /// The number of experiments that the time limit certainly ends before they have as many rounds as a verdict needs.
    ///
    /// How long runs take is an estimate, and experiments leave time for later ones. An experiment counts only if the
    /// windows of its rounds alone are longer than its time would be if each earlier experiment took one round.
    #[must_use]
    pub fn hurried(&self) -> usize {
        let mut estimates = self.planned.iter().map(Planned::estimate_of_runs).sum::<Duration>();
        let (mut used, mut saved) = (Duration::ZERO, Duration::ZERO);
        let is_hurried = |one: &&Planned| {
            let estimate = one.estimate_of_runs();
            let share = estimate.as_secs_f64() / estimates.as_secs_f64().max(f64::MIN_POSITIVE);
            let time = match self.budget {
                Some(budget) => Some(budget.saturating_sub(used).mul_f64(share.min(1.0))),
                None => one.budget().map(|own| own + saved),
            };
            estimates = estimates.saturating_sub(estimate);
            let least = seconds(one.least_round_s);
            used += least;
            saved = time.map_or(saved, |time| time.saturating_sub(least));
            time.is_some_and(|time| one.exceeds(time))
        };
        self.planned.iter().filter(is_hurried).count()
    }

    /// Remarks for the user before the first run.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many runs will be made, without the runs that a resumed session has already made.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.planned.iter().map(Planned::missing).sum()
    }

    /// The folder of a resumed session.
    #[must_use]
    pub fn resumed(&self) -> Option<&Path> {
        self.resumed.as_deref()
    }

    /// How long the session may take.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        match self.budget {
            Some(budget) => self.estimate_of_runs().min(budget),
            None => self.planned.iter().map(Planned::estimate).sum(),
        }
    }

    /// How long all runs may take, without a time limit.
    #[must_use]
    pub fn estimate_of_runs(&self) -> Duration {
        self.planned.iter().map(Planned::estimate_of_runs).sum()
    }

    /// The preset's name.
    #[must_use]
    pub fn preset(&self) -> &str {
        &self.record.preset
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(id: &str) -> Experiment {
        let text = format!(
            "schema = 'drover.experiment/2'\nid = '{id}'\n[subject.a]\nserve = []\n[subject.b]\nserve = []\n\
             [factor.n]\nlevels = [1]\n[load.http]\nconnections = '{{n}}'\n\
             [phases]\nmeasure = {{ at_least = '1s' }}\n[presets.quick]\nrounds = 6\n"
        );
        toml::from_str(&text).unwrap()
    }

    /// Two experiments of six rounds. The windows of each take 12 s, and its runs about 26 s.
    #[test]
    fn time_that_may_be_enough_is_not_called_too_short() {
        let hurried = |budget_s: u64| {
            let overrides =
                Overrides { budget: Some(Duration::from_secs(budget_s)), ..Overrides::default() };
            let request = SessionRequest {
                experiments: vec![experiment("one"), experiment("two")],
                are_named: true,
                preset: "quick".to_owned(),
                overrides,
                seed: 1,
                version: String::new(),
                command: Vec::new(),
            };
            let session = Session::plan(request, &MachineLimits::look().unwrap()).unwrap();
            assert!(session.estimate_of_runs() > Duration::from_secs(45));
            session.hurried()
        };
        // 30 s are fewer than the estimate, and may be enough.
        assert_eq!([60, 30].map(hurried), [0, 0]);
        // The first one has 10 s; if it takes one round, the second one has 18 s.
        assert_eq!([20, 10].map(hurried), [1, 2]);
    }
}
