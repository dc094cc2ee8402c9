//! One call of the lab: plans experiments, runs them, saves after each step, writes the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use anyhow::Context;
use mech::dispatch::{self, Features};
use mech::fileio;

use super::awake::Awake;
use super::experiment::{Compared, Crowd, Disk, Experiment};
use super::herd::executor::Herds;
use super::peers::Peer;
use super::plan::{Availability, Overrides, Plan};
use super::processes::Processes;
use super::progress::Progress;
use super::results::{Ask, Results, State};
use super::runner::{self, Executor};
use super::store::Store;
use super::{disk, utc};
use crate::error::UsageError;
use crate::report::{html, json};

/// The name that the report has in each run's folder, and in the folder of all runs.
pub const REPORT: &str = "report.html";

/// What is to be run.
#[derive(Debug)]
pub struct Session {
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
    /// The preset, by name.
    pub preset: String,
    /// What the user's flags put in the place of the preset's values.
    pub overrides: Overrides,
    /// What all random choices derive from.
    pub seed: u64,
    /// The folder that gets a folder for this session, and the newest report.
    pub out: PathBuf,
    /// The folder that holds the files to be served, for this and later sessions.
    pub pools: PathBuf,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl Session {
    /// Runs until done or `interrupted`. The report is written in either case.
    ///
    /// # Errors
    /// A [`crate::error::UsageError`] before anything was run; what cannot be written. A run that
    /// fails is no error: its result says so.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<Vec<Results>> {
        let descriptors = mech::process::open_files_limit().hard;
        let plans: Vec<Plan> = self
            .experiments
            .iter()
            .map(|experiment| {
                let available = |name: &str| availability(experiment, name);
                let obstacle = self.obstacle(experiment)?;
                let overrides = &self.overrides;
                Plan::new(experiment, &self.preset, overrides, descriptors, available, obstacle)
            })
            .collect::<Result<_, _>>()?;
        let folder = self.create_folder()?;
        let mut all: Vec<Results> = Vec::new();
        for (experiment, plan) in std::iter::zip(&self.experiments, &plans) {
            all.push(self.run_one(experiment, plan, &folder, interrupted)?);
            write_report(&folder, &all)?;
            write_report(&self.out, &all)?;
            if all.last().is_some_and(|results| results.state == State::Interrupted) {
                break;
            }
        }
        Ok(all)
    }

    fn run_one(
        &self,
        experiment: &Experiment,
        plan: &Plan,
        folder: &Path,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Results> {
        let mut results =
            Results::begin(experiment, &self.preset, plan, self.seed, self.command.clone());
        let file = folder.join(&experiment.id).with_extension("json");
        let mut progress = Progress::begin(&experiment.title, plan.runs());
        let after_each = |results: &Results| {
            progress.step(results);
            json::save(results, &file)
        };
        if experiment.compares == Compared::Waiters {
            let are_processes = experiment.workload.crowd == Some(Crowd::Processes);
            let mut herds = Herds::new(are_processes, interrupted)
                .context("cannot place the waiters and their client")?;
            measure(plan, &mut herds, &mut results, after_each)?;
            results.notes.extend(herds.instrument());
            json::save(&results, &file)?;
            return Ok(results);
        }
        let asks: Vec<Ask> = plan.points.iter().map(|point| point.ask).collect();
        let preset = experiment.preset(&self.preset)?;
        let notes = &mut results.notes;
        let store = Store::prepare(experiment, preset, &asks, &self.pools, folder, notes)?;
        let mut processes = Processes::new(experiment, preset, store, folder, interrupted)
            .context("cannot place the server and the load generator")?;
        if !processes.is_separated() {
            results.notes.push(
                "Server and load generator shared the only processor: response times contain \
                 waiting for each other."
                    .to_string(),
            );
        }
        measure(plan, &mut processes, &mut results, after_each)?;
        json::save(&results, &file)?;
        Ok(results)
    }

    /// What keeps all of an experiment from being run here.
    fn obstacle(&self, experiment: &Experiment) -> Result<Option<String>, UsageError> {
        let preset = experiment.preset(&self.preset)?;
        if experiment.workload.notes_access
            && let Some(obstacle) = mech::process::cannot_note_access_times()
        {
            return Ok(Some(obstacle));
        }
        // The real disk may turn out to be of no use.
        let serves_files = preset.file_bytes.is_some() || preset.cold_readers.is_some();
        let may_need_model = serves_files && preset.disk != Disk::Cached;
        Ok(disk::obstacle().filter(|_| may_need_model))
    }

    /// A folder that nobody has used before.
    fn create_folder(&self) -> anyhow::Result<PathBuf> {
        let name = format!("{}-{}", utc::compact(SystemTime::now()), self.preset);
        let mut folder = self.out.join(&name);
        for number in 2.. {
            if !folder.exists() {
                break;
            }
            folder = self.out.join(format!("{name}-{number}"));
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {} (--out)", folder.display()))?;
        Ok(folder)
    }
}

/// Runs `plan`. Keeps the processors from going idle meanwhile, if that is planned, and notes what is
/// to be known of them.
fn measure(
    plan: &Plan,
    executor: &mut dyn Executor,
    results: &mut Results,
    after_each: impl FnMut(&Results) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let awake = plan.awake.then(Awake::start).transpose();
    let awake = awake.context("cannot keep the processors awake (--keep-awake off)")?;
    results.notes.extend(awake.as_ref().map(|_| Awake::NOTE.to_string()));
    runner::run(plan, executor, results, after_each)?;
    results.notes.extend(awake.and_then(Awake::end));
    Ok(())
}

/// Writes the report of `all` into `folder`.
///
/// # Errors
/// What the file system says, with the path.
pub fn write_report(folder: &Path, all: &[Results]) -> anyhow::Result<PathBuf> {
    let path = folder.join(REPORT);
    json::write_whole(&path, html::render(all)?.as_bytes())?;
    Ok(path)
}

/// Whether what the experiment means by that name can be measured here.
fn availability(experiment: &Experiment, name: &str) -> Availability {
    let usable = Availability::Usable { model: false };
    if let Some(peer) = Peer::by_name(name) {
        return peer.find().map_or_else(Availability::Unusable, |_| usable);
    }
    match &experiment.compares {
        Compared::Waiters => match waiters::kind::by_name(name) {
            Some(kind) => {
                let usable = |()| Availability::Usable { model: kind.model };
                kind.probe().map_or_else(Availability::Unusable, usable)
            }
            None => Availability::Unknown,
        },
        Compared::Dispatch => match dispatch::by_name(name) {
            Some(mechanism) => {
                let model = mechanism.features.contains(Features::MODEL);
                let usable = |()| Availability::Usable { model };
                mechanism.probe().map_or_else(Availability::Unusable, usable)
            }
            None => Availability::Unknown,
        },
        Compared::Files => match fileio::by_name(name) {
            Some(backend) => backend.probe().map_or_else(Availability::Unusable, |()| usable),
            None if name == fileio::auto().name => usable,
            None => Availability::Unknown,
        },
        // Whether the flag takes it, `serve` will say.
        Compared::Flag(_) => usable,
    }
}
