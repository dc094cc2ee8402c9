//! Runs a plan: every cell once in each round, a line of the journal for each run.

mod cell;
mod metrics;
mod unkept;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::journal::{self, Environment, Journal, Run};
use crate::model::{Mark, Sample};
use crate::placement::{Processor, processors};
use crate::plan::{Plan, Selection};
use crate::process::{Guard, Interrupt};
use crate::site::Store;
use crate::spec::Experiment;

pub use unkept::Unkept;

/// What a session needs beside the plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// Drover's own binary.
    pub drover: PathBuf,
    /// The folder of the journal.
    pub folder: PathBuf,
    /// The folder of the files to be served, for this and later sessions.
    pub pools: PathBuf,
    /// Whether to go on with the journal that is in the folder.
    pub resumes: bool,
    /// Whether to go on although the kernel, the program or the experiment is another one.
    pub is_forced: bool,
    /// The flag that ends the session.
    pub interrupt: Interrupt,
}

/// What a session tells while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// Runs that a resumed journal has already.
    Resumed {
        /// How many.
        runs: usize,
    },
    /// A round begins.
    Round {
        /// Its number, from 1.
        round: u32,
    },
    /// A run begins.
    Begins {
        /// The number of the cell in the plan.
        cell: usize,
        /// The round.
        round: u32,
    },
    /// A run has ended and is in the journal.
    Ended {
        /// What is in the journal.
        run: &'e Run,
        /// How many runs are done.
        done: usize,
        /// How many there are to be.
        of: usize,
    },
    /// A cell is given up: this machine cannot measure it.
    NotTestable {
        /// The number of the cell in the plan.
        cell: usize,
        /// Why.
        why: &'e str,
    },
    /// Something that a reader has to know.
    Note(&'e str),
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every run is in the journal.
    Complete,
    /// The user, or the system, has asked for the end. What was measured is in the journal.
    Interrupted,
    /// The next round would have ended beyond the budget.
    BudgetSpent {
        /// How many rounds are complete.
        rounds: u32,
    },
}

/// Why a session could not go on.
#[derive(Debug)]
pub enum Error {
    /// The journal cannot be written, or not be resumed.
    Journal(journal::Error),
    /// The lab itself cannot work here.
    Failed(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Journal(error) => error.fmt(f),
            Error::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

/// Runs the plan of an experiment.
///
/// Children die with the thread that calls this, so call it on a thread that lives until the end of the
/// process. A run that fails is a result, and the others go on.
///
/// # Errors
/// [`Error::Journal`], as for a full disk: what is in the journal stays readable; [`Error::Failed`].
pub fn run(
    experiment: &Experiment,
    selection: &Selection,
    plan: &Plan,
    options: &Options,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<End, Error> {
    let failed = |why: String| Error::Failed(why);
    let environment = Environment::look(&options.drover)
        .map_err(|error| failed(format!("{}: {error}", options.drover.display())))?;
    let (mut journal, found) = match options.resumes {
        true => Journal::resume(&options.folder, plan, &environment, options.is_forced)
            .map_err(Error::Journal)?,
        false => {
            let journal = Journal::create(&options.folder, plan, &environment);
            (journal.map_err(Error::Journal)?, Vec::new())
        }
    };
    if options.resumes {
        tell(Event::Resumed { runs: found.len() });
    }
    for note in &plan.notes {
        tell(Event::Note(note));
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
        given_up: BTreeMap::new(),
        told: BTreeSet::new(),
    };
    sweep(&options.folder);
    session.rounds(&mut journal, tell)
}

/// How the folder of a run's own files begins; the number of the lab's process follows.
const WORK: &str = "work-";

/// Removes what runs of labs that were killed have left behind.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(WORK));
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A session at work.
struct Session<'s> {
    experiment: &'s Experiment,
    selection: &'s Selection,
    plan: &'s Plan,
    options: &'s Options,
    guard: Arc<Guard>,
    processors: Vec<Processor>,
    store: Store,
    /// The cells that have turned out not to be testable here, with the reason.
    given_up: BTreeMap<usize, String>,
    /// The notes that were told.
    told: BTreeSet<String>,
}

impl Session<'_> {
    fn rounds(
        &mut self,
        journal: &mut Journal,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<End, Error> {
        for (cell, planned) in self.plan.cells.iter().enumerate() {
            if let Some(why) = &planned.not_testable {
                tell(Event::NotTestable { cell, why });
            }
        }
        let budget = self.selection.preset.budget.as_ref();
        let budget = budget.and_then(|budget| budget.resolve(&BTreeMap::new()).ok());
        let start = Instant::now();
        let mut longest = Duration::ZERO;
        for round in 1..=self.plan.rounds {
            let order = self.plan.order(round);
            if order.iter().all(|cell| journal.has(*cell, round)) {
                continue;
            }
            if budget.is_some_and(|budget| round > 1 && start.elapsed() + longest > budget) {
                let rounds = round - 1;
                let of = self.plan.rounds;
                tell(Event::Note(&format!(
                    "The time limit ended {} after {rounds} of {of} rounds (--budget sets another one).",
                    self.plan.experiment
                )));
                return Ok(End::BudgetSpent { rounds });
            }
            let began = Instant::now();
            tell(Event::Round { round });
            for cell in order {
                if journal.has(cell, round) || self.given_up.contains_key(&cell) {
                    continue;
                }
                tell(Event::Begins { cell, round });
                let mut run = self.run_one(cell, round, tell);
                // Round by round every subject is compared with the others: for one run that was not
                // steady the whole round would be void.
                if run.as_ref().is_some_and(|run| run.sample.validity.contains(&Mark::Cold)) {
                    let again = self.run_one(cell, round, tell);
                    run = again.map(|again| match again.sample.validity.contains(&Mark::Cold) {
                        true => run.unwrap_or(again),
                        false => again,
                    });
                }
                let Some(run) = run else { return Ok(End::Interrupted) };
                if run.sample.failure.is_some() {
                    self.try_to_write().map_err(Error::Journal)?;
                }
                journal.append(&run).map_err(Error::Journal)?;
                let done = journal.runs();
                tell(Event::Ended { run: &run, done, of: self.plan.runs() });
                self.tell_notes(tell);
            }
            longest = longest.max(began.elapsed());
        }
        Ok(End::Complete)
    }

    /// Runs a cell once; `None` if the session is to end.
    fn run_one(&mut self, cell: usize, round: u32, tell: &mut dyn FnMut(Event<'_>)) -> Option<Run> {
        let began = journal::now_s();
        let start = Instant::now();
        let planned = &self.plan.cells[cell].cell;
        let mut sample = Sample::new(planned.clone(), round);
        let mut artefacts = Value::Null;
        match self.measure(cell, round) {
            Err(Failure::Interrupted) => return None,
            Err(failure) => {
                // A failure while the lab is told to end says nothing of the cell.
                if self.options.interrupt.is_set() {
                    return None;
                }
                if let Failure::NotTestable(why) = &failure {
                    tell(Event::NotTestable { cell, why });
                    self.given_up.insert(cell, why.clone());
                    sample.validity.insert(Mark::Unavailable);
                }
                sample.failure = Some(failure.to_string());
            }
            Ok(measured) => {
                sample.values = measured.values;
                sample.validity = measured.marks;
                artefacts = measured.artefacts;
            }
        }
        Some(Run { cell, sample, artefacts, began, took_s: start.elapsed().as_secs_f64() })
    }

    /// Writes about as much as the files of a run have. A run that has failed where that fails too may have
    /// failed by the lab's own full disk: it says nothing of the cell, and a resumed session runs it again.
    fn try_to_write(&self) -> Result<(), journal::Error> {
        let path = self.options.folder.join("trial");
        let written = std::fs::write(&path, vec![0; 1 << 20]);
        let _ = std::fs::remove_file(&path);
        written.map_err(|error| journal::Error::Io(self.options.folder.clone(), error))
    }

    fn tell_notes(&mut self, tell: &mut dyn FnMut(Event<'_>)) {
        for note in std::mem::take(&mut self.store.notes) {
            if self.told.insert(note.clone()) {
                tell(Event::Note(&note));
            }
        }
    }

    /// The folder of a run's own files.
    fn work(&self) -> PathBuf {
        self.options.folder.join(format!("{WORK}{}", std::process::id()))
    }
}
