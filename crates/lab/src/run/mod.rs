//! Runs a plan: every cell once in each round. Each run is a line of the journal.

mod cell;
mod metrics;
mod set;
mod unkept;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::journal::{self, Environment, Journal, Run};
use crate::model::{Level, Mark, Sample};
use crate::placement::{Processor, processors};
use crate::plan::{Plan, Selection};
use crate::process::{Guard, Interrupt};
use crate::site::Store;
use crate::spec::Experiment;
use crate::subject::{GuestMachine, TlsFiles};

pub use unkept::Unkept;

/// The settings of a session, in addition to its plan.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Drover's own binary.
    pub drover: PathBuf,
    /// The folder of the journal.
    pub folder: PathBuf,
    /// The folder of the files to be served, kept for later sessions.
    pub pools: PathBuf,
    /// Whether to continue the journal in the folder.
    pub resumes: bool,
    /// Whether to continue although the kernel, the program or the experiment differs.
    pub is_forced: bool,
    /// The flag that ends the session.
    pub interrupt: Interrupt,
    /// The virtual machine for subjects that run there, if there is one.
    pub guest: Option<GuestMachine>,
}

/// Events while a session runs.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'e> {
    /// The resumed journal already has runs.
    Resumed {
        /// The number of runs that it has.
        runs: usize,
    },
    /// A round begins.
    Round {
        /// The number of the round, from 1.
        round: u32,
    },
    /// A run begins.
    Begins {
        /// The number of the cell in the plan.
        cell: usize,
        /// The number of the round, from 1.
        round: u32,
    },
    /// A run has ended and is in the journal.
    Ended {
        /// The journal's line.
        run: &'e Run,
        /// How many runs are done.
        done: usize,
        /// How many runs there are in all.
        of: usize,
    },
    /// A cell is given up, because this machine cannot measure it.
    NotTestable {
        /// The number of the cell in the plan.
        cell: usize,
        /// The reason.
        why: &'e str,
    },
    /// A remark for readers of the result.
    Note(&'e str),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every run is in the journal.
    Complete,
    /// The user, or the system, has ended the session. The journal has what was measured.
    Interrupted,
    /// The next round would have ended after the end of the budget.
    BudgetSpent {
        /// How many rounds are complete.
        rounds: u32,
    },
}

/// Why a session could not continue.
#[derive(Debug)]
pub enum RunError {
    /// The journal cannot be written, or cannot be resumed.
    Journal(journal::JournalError),
    /// The lab itself cannot work on this machine.
    Failed(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Journal(error) => error.fmt(f),
            RunError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs the plan of an experiment.
///
/// Children die with the thread that calls this function: call it on a thread that lives until the end of the
/// process. A run that fails is a result, and the other runs continue.
///
/// # Errors
/// [`RunError::Journal`], for example when the disk is full; the journal stays readable. [`RunError::Failed`].
pub fn run(
    experiment: &Experiment,
    selection: &Selection,
    plan: &Plan,
    options: &RunOptions,
    tell: &mut dyn FnMut(RunEvent<'_>),
) -> Result<RunEnd, RunError> {
    let failed = |why: String| RunError::Failed(why);
    let mut environment = Environment::look(&options.drover)
        .map_err(|error| failed(format!("{}: {error}", options.drover.display())))?;
    environment.machine.extend(options.guest.iter().flat_map(|guest| guest.facts.clone()));
    let (mut journal, found) = match options.resumes {
        true => Journal::resume(&options.folder, plan, &environment, options.is_forced)
            .map_err(RunError::Journal)?,
        false => {
            let journal = Journal::create(&options.folder, plan, &environment);
            (journal.map_err(RunError::Journal)?, Vec::new())
        }
    };
    if options.resumes {
        tell(RunEvent::Resumed { runs: found.iter().filter(|run| run.is_measured()).count() });
    }
    for note in &plan.notes {
        tell(RunEvent::Note(note));
    }
    let guard = Guard::start().map_err(|error| failed(format!("cannot start a shell: {error}")))?;
    let mut session = Session {
        experiment,
        selection,
        plan,
        options,
        guard: Arc::new(guard),
        processors: processors().map_err(|failure| failed(failure.to_string()))?,
        store: Store::new(&options.pools),
        tls: OnceCell::new(),
        given_up: BTreeMap::new(),
        told: BTreeSet::new(),
    };
    sweep(&options.folder);
    session.rounds(&mut journal, tell)
}

/// The beginning of the name of a run's folder. The process id of the lab follows.
const WORK: &str = "work-";

/// The beginning of the name of the folder with the servers' certificate. The process id of the lab follows.
const TLS: &str = "tls-";

/// Removes the folders of labs that were killed.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| [WORK, TLS].iter().find_map(|prefix| name.strip_prefix(prefix)));
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A running session.
struct Session<'s> {
    experiment: &'s Experiment,
    selection: &'s Selection,
    plan: &'s Plan,
    options: &'s RunOptions,
    guard: Arc<Guard>,
    processors: Vec<Processor>,
    store: Store,
    /// The servers' certificate, once a cell needs it.
    tls: OnceCell<Arc<TlsFiles>>,
    /// The cells that turned out to be not testable on this machine, with the reason.
    given_up: BTreeMap<usize, String>,
    /// The remarks that were told already.
    told: BTreeSet<String>,
}

impl Session<'_> {
    fn rounds(
        &mut self,
        journal: &mut Journal,
        tell: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<RunEnd, RunError> {
        for (cell, planned) in self.plan.cells.iter().enumerate() {
            if let Some(why) = &planned.not_testable {
                tell(RunEvent::NotTestable { cell, why });
            }
        }
        let budget = self.selection.preset.budget.as_ref();
        let budget = budget.and_then(|budget| budget.resolve(&BTreeMap::new()).ok());
        let start = Instant::now();
        let mut longest = Duration::ZERO;
        for round in 1..=self.plan.rounds {
            let sets = self.plan.sets(round);
            if sets.iter().flatten().all(|cell| journal.has(*cell, round)) {
                continue;
            }
            if budget.is_some_and(|budget| round > 1 && start.elapsed() + longest > budget) {
                let rounds = round - 1;
                let of = self.plan.rounds;
                tell(RunEvent::Note(&format!(
                    "The time limit ended {} after {rounds} of {of} rounds (--budget sets another one).",
                    self.plan.experiment
                )));
                return Ok(RunEnd::BudgetSpent { rounds });
            }
            let began = Instant::now();
            tell(RunEvent::Round { round });
            for mut set in sets {
                set.retain(|cell| !self.given_up.contains_key(cell));
                if set.iter().all(|cell| journal.has(*cell, round)) {
                    continue;
                }
                tell(RunEvent::Begins { cell: set[0], round });
                let Some(runs) = self.run_well(&set, round, tell) else {
                    return Ok(RunEnd::Interrupted);
                };
                for run in &runs {
                    // Of a set that was cut, some cells are in the journal.
                    if journal.has(run.cell, round) {
                        continue;
                    }
                    if run.sample.failure.is_some() {
                        self.try_to_write().map_err(RunError::Journal)?;
                    }
                    journal.append(run).map_err(RunError::Journal)?;
                    let done = journal.runs();
                    tell(RunEvent::Ended { run, done, of: self.plan.runs() });
                }
                self.tell_notes(tell);
            }
            longest = longest.max(began.elapsed());
        }
        Ok(RunEnd::Complete)
    }

    /// Runs the cells of a set, and once more if a run was not steady or the lab itself failed: within a round every subject
    /// is compared with the others, so that one such run would spoil the whole round. `None` if the session is to end.
    fn run_well(
        &mut self,
        set: &[usize],
        round: u32,
        tell: &mut dyn FnMut(RunEvent<'_>),
    ) -> Option<Vec<Run>> {
        // The better the runs, the lower.
        let rank = |runs: &[Run]| {
            let cold = |run: &&Run| run.sample.validity.contains(&Mark::Cold);
            let unmeasured = runs.iter().filter(|run| !run.is_measured()).count();
            (unmeasured, runs.iter().filter(cold).count())
        };
        let first = self.run_once(set, round, tell)?;
        if rank(&first) == (0, 0) {
            return Some(first);
        }
        let again = self.run_once(set, round, tell)?;
        Some(if rank(&again) < rank(&first) { again } else { first })
    }

    /// Runs the cells of a set once; `None` if the session is to end.
    fn run_once(
        &mut self,
        set: &[usize],
        round: u32,
        tell: &mut dyn FnMut(RunEvent<'_>),
    ) -> Option<Vec<Run>> {
        let began = journal::now_s();
        let start = Instant::now();
        let measured = match set {
            [cell] if !self.plan.cells[*cell].takes_turns => vec![self.measure(*cell, round)],
            _ => self.measure_set(set, round),
        };
        let took_s = start.elapsed().as_secs_f64() / set.len() as f64;
        let run = |(cell, measured)| {
            let (sample, artefacts) = self.sample(cell, round, measured, tell)?;
            Some(Run { cell, sample, artefacts, began, took_s })
        };
        std::iter::zip(set.iter().copied(), measured).map(run).collect()
    }

    /// The sample of a run of a cell; `None` if the session is to end.
    fn sample(
        &mut self,
        cell: usize,
        round: u32,
        measured: Result<cell::Measurement, Failure>,
        tell: &mut dyn FnMut(RunEvent<'_>),
    ) -> Option<(Sample, Value)> {
        let planned = &self.plan.cells[cell].cell;
        let mut sample = Sample::new(planned.clone(), round);
        let mut artefacts = Value::Null;
        match measured {
            Err(Failure::Interrupted) => return None,
            Err(failure) => {
                // A failure after an interrupt says nothing about the cell.
                if self.options.interrupt.is_set() {
                    return None;
                }
                if let Failure::NotTestable(why) = &failure {
                    tell(RunEvent::NotTestable { cell, why });
                    self.given_up.insert(cell, why.clone());
                    sample.validity.insert(Mark::Unavailable);
                }
                if let Failure::NotMeasured(_) = &failure {
                    sample.validity.insert(Mark::NotMeasured);
                }
                sample.failure = Some(failure.to_string());
            }
            Ok(measured) => {
                sample.values = measured.values;
                sample.validity = measured.marks;
                artefacts = measured.artefacts;
            }
        }
        Some((sample, artefacts))
    }

    /// Writes about as much as a run's files have. If this fails too, a failed run may have failed because the lab's
    /// own disk is full: the failure then says nothing about the cell, and a resumed session runs the cell again.
    fn try_to_write(&self) -> Result<(), journal::JournalError> {
        let path = self.options.folder.join("trial");
        let written = std::fs::write(&path, vec![0; 1 << 20]);
        let _ = std::fs::remove_file(&path);
        written.map_err(|error| journal::JournalError::Io(self.options.folder.clone(), error))
    }

    fn tell_notes(&mut self, tell: &mut dyn FnMut(RunEvent<'_>)) {
        for note in std::mem::take(&mut self.store.notes) {
            if self.told.insert(note.clone()) {
                tell(RunEvent::Note(&note));
            }
        }
    }

    /// The folder of a run's files.
    fn work(&self) -> PathBuf {
        self.own_folder(WORK)
    }

    /// A folder of this lab in the folder of the journal.
    fn own_folder(&self, prefix: &str) -> PathBuf {
        self.options.folder.join(format!("{prefix}{}", std::process::id()))
    }

    /// The certificate for a cell over TLS, made for the first of them; `None` for other cells.
    fn tls(&self, levels: &BTreeMap<String, Level>) -> Result<Option<Arc<TlsFiles>>, Failure> {
        if !self.experiment.is_tls(levels).map_err(Failure::failed)? {
            return Ok(None);
        }
        if let Some(made) = self.tls.get() {
            return Ok(Some(Arc::clone(made)));
        }
        let made = Arc::new(TlsFiles::make(&self.options.drover, &self.own_folder(TLS))?);
        Ok(Some(Arc::clone(self.tls.get_or_init(|| made))))
    }
}
