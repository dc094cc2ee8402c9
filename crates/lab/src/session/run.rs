//! Runs a planned session: one experiment after the other. The report is written again after each round.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Planned, Session, SessionClock, folder};
use crate::journal::{self, JournalError};
use crate::process::Interrupt;
use crate::record::{self, SessionRecord};
use crate::report;
use crate::run::{self, RunEnd};
use crate::subject::GuestMachine;

/// The largest share of the session's time that writing reports may take. A report that would exceed the share is
/// skipped, except the last report of an experiment.
const REPORTS: f64 = 0.05;

/// The settings of a session, in addition to its plans.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Drover's own binary.
    pub drover: PathBuf,
    /// The folder that gets a folder for each session, and the newest report.
    pub out: PathBuf,
    /// The folder of the files to be served, kept for later sessions.
    pub pools: PathBuf,
    /// Whether to continue although the kernel, the program or the experiment differs.
    pub is_forced: bool,
    /// The flag that ends the session.
    pub interrupt: Interrupt,
    /// The virtual machine for subjects that run there, if there is one.
    pub guest: Option<GuestMachine>,
}

/// Events while a session runs.
#[derive(Clone, Copy, Debug)]
pub enum SessionEvent<'e> {
    /// The session's folder, before anything is run.
    Folder(&'e Path),
    /// An experiment begins. The session's report exists by now.
    Begins {
        /// The experiment with its plan.
        planned: &'e Planned,
        /// Its number in the session, from 0.
        number: usize,
        /// How long the session still takes.
        clock: &'e SessionClock,
    },
    /// An event of the current experiment.
    Of {
        /// The experiment with its plan.
        planned: &'e Planned,
        /// The event.
        event: run::RunEvent<'e>,
        /// How long the session still takes.
        clock: &'e SessionClock,
    },
    /// An experiment cannot be run on this machine. The other experiments continue.
    Refused {
        /// The experiment's id.
        id: &'e str,
        /// The reason.
        why: &'e str,
    },
    /// A remark for readers of the result.
    Note(&'e str),
}

/// How a session ended.
#[derive(Clone, Debug)]
pub struct SessionOutcome {
    /// The session's folder.
    pub folder: PathBuf,
    /// The newest report, in the folder of all sessions.
    pub report: PathBuf,
    /// Whether the user, or the system, has ended the session early.
    pub is_interrupted: bool,
    /// The content of the session's folder.
    pub record: SessionRecord,
}

impl SessionOutcome {
    /// The number of runs that failed, and of all runs. A run that this machine cannot make has not failed.
    #[must_use]
    pub fn failures(&self) -> (usize, usize) {
        let runs = || self.record.measured.iter().flat_map(|one| &one.runs);
        let unavailable = crate::model::Mark::Unavailable;
        let failed = runs().filter(|run| {
            run.sample.failure.is_some() && !run.sample.validity.contains(&unavailable)
        });
        (failed.count(), runs().count())
    }

    /// The number of runs in which the lab itself failed, and the reason of the first of them.
    #[must_use]
    pub fn unmeasured(&self) -> (usize, Option<&str>) {
        let mut runs = self.record.measured.iter().flat_map(|one| &one.unmeasured);
        (runs.clone().count(), runs.find_map(|run| run.sample.failure.as_deref()))
    }
}

impl Session {
    /// Runs the session.
    ///
    /// Children die with the thread that calls this function: call it on a thread that lives until the end of the
    /// process. A run that fails is a result. An experiment that cannot be run is recorded as refused, and the other
    /// experiments continue.
    ///
    /// # Errors
    /// The resumed session differs ([`JournalError::Differs`]; call [`Session::differences`] first), or another lab writes
    /// to its folder ([`JournalError::InUse`]), or the session's folder or the last report cannot be written.
    pub fn run(
        mut self,
        settings: &SessionSettings,
        tell: &mut dyn FnMut(SessionEvent<'_>),
    ) -> Result<SessionOutcome, JournalError> {
        let folder = self.prepare(settings)?;
        // The lock is released when the session has ended, however it ends.
        let _lock = folder::lock(&folder)?;
        if self.resumed.is_some() {
            record::write_session(&folder, &self.record)?;
        }
        tell(SessionEvent::Folder(&folder));
        let mut running = Running {
            reporter: Reporter::new(&folder, &settings.out),
            clock: SessionClock::default(),
            start: Instant::now(),
            saved: Duration::ZERO,
            folder: folder.clone(),
            settings,
        };
        for one in &self.planned {
            running.clock.plan(one.missing(), one.estimate_of_runs());
        }
        running.share_out(&mut self, 0);
        running.reporter.write()?;
        let mut is_interrupted = false;
        for number in 0..self.planned.len() {
            is_interrupted = settings.interrupt.is_set()
                || running.experiment(&mut self, number, tell)? == Some(RunEnd::Interrupted);
            if is_interrupted {
                break;
            }
        }
        let (record, report) = running.reporter.write()?;
        Ok(SessionOutcome { folder, report, is_interrupted, record })
    }

    /// Creates the session's folder, with everything that a resumption needs.
    fn prepare(&mut self, settings: &SessionSettings) -> Result<PathBuf, JournalError> {
        if let Some(folder) = self.resumed.clone() {
            return Ok(folder);
        }
        let folder = folder::create(&settings.out, &self.record.preset)?;
        for one in &self.planned {
            let own = folder.join(&one.experiment.id);
            record::write_experiment(&own, &one.experiment)?;
            folder::write_selection(&own, &one.selection)?;
        }
        record::write_session(&folder, &self.record)?;
        Ok(folder)
    }
}

/// A running session.
struct Running<'s> {
    folder: PathBuf,
    settings: &'s SessionSettings,
    reporter: Reporter,
    clock: SessionClock,
    start: Instant,
    /// The unused time of the experiments so far. The next experiment may use it.
    saved: Duration,
}

impl Running<'_> {
    /// Divides the session's remaining time among the experiments from `first` on.
    fn share_out(&mut self, session: &mut Session, first: usize) {
        session.share_out(self.start.elapsed(), first);
        for (number, one) in session.planned.iter().enumerate().skip(first) {
            self.clock.limit(number, one.budget());
        }
    }

    /// Runs one experiment; `None` if it could not be run. The first experiment runs even without time left.
    fn experiment(
        &mut self,
        session: &mut Session,
        number: usize,
        tell: &mut dyn FnMut(SessionEvent<'_>),
    ) -> Result<Option<RunEnd>, JournalError> {
        self.share_out(session, number);
        self.clock.begin(number);
        if number > 0 && session.budget.is_some_and(|budget| self.start.elapsed() >= budget) {
            let why = "the session's time was over before it began (--budget sets another limit)";
            self.refuse(session, number, why, tell)?;
            return Ok(None);
        }
        let limit = match session.budget {
            // The session's time is already divided.
            Some(_) => None,
            None => session.planned[number].budget().map(|own| own + self.saved),
        };
        if let Some(limit) = limit {
            session.planned[number].set_budget(limit);
        }
        let planned = session.planned[number].clone();
        let begun = Instant::now();
        tell(SessionEvent::Begins { planned: &planned, number, clock: &self.clock });
        let own = self.folder.join(&planned.experiment.id);
        let options = run::RunOptions {
            drover: self.settings.drover.clone(),
            pools: self.settings.pools.clone(),
            resumes: own.join(journal::PLAN).exists(),
            is_forced: self.settings.is_forced,
            interrupt: self.settings.interrupt.clone(),
            guest: self.settings.guest.clone(),
            folder: own,
        };
        let Planned { experiment, selection, plan, .. } = &planned;
        let ended = run::run(experiment, selection, plan, &options, &mut |event| {
            if let run::RunEvent::Ended { run, .. } = event {
                self.clock.ended(super::seconds(run.took_s));
            }
            tell(SessionEvent::Of { planned: &planned, event, clock: &self.clock });
            if let run::RunEvent::Round { .. } = event {
                // The report has everything before this round.
                if let Err(why) = self.reporter.write_if_cheap() {
                    tell(SessionEvent::Note(&format!("The report cannot be written: {why}")));
                }
            }
        });
        if let Some(limit) = limit {
            self.saved = limit.saturating_sub(begun.elapsed());
        }
        match ended {
            Ok(end) => {
                if let Err(why) = self.reporter.write() {
                    tell(SessionEvent::Note(&format!("The report cannot be written: {why}")));
                }
                Ok(Some(end))
            }
            Err(run::RunError::Journal(
                error @ (JournalError::Differs(_) | JournalError::InUse(_)),
            )) => Err(error),
            Err(error) => {
                self.refuse(session, number, &error.to_string(), tell)?;
                Ok(None)
            }
        }
    }

    /// Records that an experiment cannot be run, and why.
    fn refuse(
        &self,
        session: &mut Session,
        number: usize,
        why: &str,
        tell: &mut dyn FnMut(SessionEvent<'_>),
    ) -> Result<(), JournalError> {
        let id = session.planned[number].experiment.id.clone();
        tell(SessionEvent::Refused { id: &id, why });
        session.record.refused.push((id, why.to_owned()));
        record::write_session(&self.folder, &session.record)
    }
}

/// Writes a session's report into its folder and into the folder of all sessions.
struct Reporter {
    folder: PathBuf,
    out: PathBuf,
    /// When the last report was written, and how long writing took.
    last: Option<(Instant, Duration)>,
}

impl Reporter {
    fn new(folder: &Path, out: &Path) -> Reporter {
        Reporter { folder: folder.to_owned(), out: out.to_owned(), last: None }
    }

    /// Writes the report, unless writing would take too large a share of the session's time.
    fn write_if_cheap(&mut self) -> Result<(), JournalError> {
        let is_dear = self.last.is_some_and(|(when, took)| took > when.elapsed().mul_f64(REPORTS));
        if !is_dear {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the report. Returns the record of the session, and the path of the newest report.
    fn write(&mut self) -> Result<(SessionRecord, PathBuf), JournalError> {
        let start = Instant::now();
        let record = SessionRecord::read(&self.folder)?;
        let newest = report::write(&self.folder, Some(&self.out), &record)?;
        self.last = Some((Instant::now(), start.elapsed()));
        Ok((record, newest))
    }
}
