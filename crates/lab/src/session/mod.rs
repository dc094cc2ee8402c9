//! A session: several experiments, planned together, run one after the other, in one folder with one report.
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
//! A session is resumed from its folder alone: neither flags nor experiment files are read a second time.

mod clock;
mod folder;
mod narrow;
mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::analysis::FEWEST_ROUNDS;
use crate::journal::{self, Environment};
use crate::plan::limits::Limits;
use crate::plan::{Overrides, Plan, Selection};
use crate::record;
use crate::spec::Experiment;
use crate::spec::setting::{Setting, Time};

pub use clock::Clock;
pub use folder::newest;
pub use run::{Event, Outcome, Settings};

/// What a session is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The experiments, in their order.
    pub experiments: Vec<Experiment>,
    /// Whether the user has named them. Of experiments that nobody has named those are left out that have
    /// none of the chosen subjects, or lack a chosen factor.
    pub are_named: bool,
    /// The preset's name.
    pub preset: String,
    /// What the user says in place of the preset's values. The budget is that of the whole session.
    pub overrides: Overrides,
    /// What all random choices derive from.
    pub seed: u64,
    /// The version of Drover.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
}

/// An experiment that is to be run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The experiment.
    pub experiment: Experiment,
    /// What of it is run.
    pub selection: Selection,
    /// Its runs.
    pub plan: Plan,
    /// How many of them a session that goes on has made already.
    pub found: usize,
}

impl Planned {
    fn new(
        experiment: Experiment,
        selection: Selection,
        seed: u64,
        limits: &Limits,
    ) -> Result<Planned, String> {
        let plan = Plan::new(&experiment, &selection, seed, limits);
        let plan = plan.map_err(|failure| failure.to_string())?;
        Ok(Planned { experiment, selection, plan, found: 0 })
    }

    /// How many runs are missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.plan.runs().saturating_sub(self.found)
    }

    /// How long the missing runs may take, without any time limit.
    #[must_use]
    pub fn estimate_of_runs(&self) -> Duration {
        let missing = self.missing() as f64 / self.plan.runs().max(1) as f64;
        seconds(self.plan.estimate_s * missing)
    }

    /// How long the experiment may take: as long as its missing runs are estimated to take, or its time limit.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let whole = self.estimate_of_runs();
        self.budget().map_or(whole, |budget| budget.min(whole))
    }

    /// Its time limit.
    #[must_use]
    pub fn budget(&self) -> Option<Duration> {
        let budget = self.selection.preset.budget.as_ref()?;
        budget.resolve(&Default::default()).ok()
    }

    /// Whether its time limit ends the experiment before it has as many rounds as a verdict needs.
    #[must_use]
    pub fn lacks_time(&self) -> bool {
        let per_round = self.plan.estimate_s / f64::from(self.plan.rounds);
        let needed = FEWEST_ROUNDS.min(self.plan.rounds as usize) as f64;
        self.found == 0 && self.budget().is_some_and(|it| it < seconds(per_round * needed))
    }

    fn set_budget(&mut self, budget: Duration) {
        let text = format!("{}us", budget.as_micros());
        self.selection.preset.budget = Some(Time(Setting::Text(text)));
    }
}

/// A session that is planned.
#[derive(Clone, Debug)]
pub struct Session {
    record: record::Session,
    planned: Vec<Planned>,
    /// The time limit of the whole session, shared out among the experiments.
    budget: Option<Duration>,
    /// The folder of a session that goes on.
    resumed: Option<PathBuf>,
    notes: Vec<String>,
}

impl Session {
    /// Plans a session for a machine with these limits. An experiment that cannot be planned is recorded as
    /// refused, and the others are run.
    ///
    /// # Errors
    /// In words, what is wrong with the request: a subject or a factor that no experiment has, two
    /// experiments of one name, or no experiment at all that could be planned.
    pub fn plan(request: Request, limits: &Limits) -> Result<Session, String> {
        let Request { experiments, are_named, preset, overrides, seed, version, command } = request;
        for (at, experiment) in experiments.iter().enumerate() {
            if experiments[..at].iter().any(|other| other.id == experiment.id) {
                return Err(format!("two experiments are called {}: rename one", experiment.id));
            }
        }
        let (chosen, notes) = narrow::narrow(experiments, are_named, &overrides)?;
        let mut record = record::Session {
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

    /// Reads an interrupted session from its folder, so that it goes on where it ended. `rounds` and
    /// `budget`, if given, take the place of those that the session was begun with; the budget counts from
    /// now on.
    ///
    /// # Errors
    /// In words: the folder is no session's, or an experiment of it can no longer be planned.
    pub fn resume(
        folder: &Path,
        rounds: Option<u32>,
        budget: Option<Duration>,
        limits: &Limits,
    ) -> Result<Session, String> {
        let failed = |error: journal::Error| error.to_string();
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
                // Runs of rounds that are no longer asked for fill no gap.
                let (_, runs) = journal::read(&own).map_err(failed)?;
                let asked = |run: &&journal::Run| run.sample.round <= one.plan.rounds;
                one.found = runs.iter().filter(asked).count();
            }
            planned.push(one);
        }
        // Those that failed are tried again; those that could not be planned have left nothing to go on with.
        record.refused.retain(|(id, _)| !record.experiments.contains(id));
        let resumed = Some(folder.to_owned());
        let mut session = Session { record, planned, budget, resumed, notes: Vec::new() };
        session.share_out(Duration::ZERO, 0);
        Ok(session)
    }

    /// Shares out what `spent` leaves of the session's time among the experiments from `first` on, as their
    /// estimates ask for it.
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

    /// Why this session, which goes on, cannot go on here: each difference in words. Empty for a new one.
    ///
    /// # Errors
    /// A journal that cannot be read, or a program that cannot be.
    pub fn differences(&self, drover: &Path) -> Result<Vec<String>, journal::Error> {
        let Some(folder) = &self.resumed else { return Ok(Vec::new()) };
        let here = Environment::look(drover);
        let here = here.map_err(|error| journal::Error::Io(drover.to_owned(), error))?;
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

    /// The experiments that are to be run, in their order.
    #[must_use]
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// The experiments that cannot be planned here, each with the reason.
    #[must_use]
    pub fn refused(&self) -> &[(String, String)] {
        &self.record.refused
    }

    /// What a reader has to know before the first run.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How many runs there are to be; those that a session which goes on has made are not among them.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.planned.iter().map(Planned::missing).sum()
    }

    /// The folder of a session that goes on.
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

    /// How long all of these runs may take, without any time limit.
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
