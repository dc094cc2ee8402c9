//! Runs a planned session: one experiment after the other, with the report written anew after each round.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Clock, Planned, Session, folder};
use crate::journal::{self, Error};
use crate::process::Interrupt;
use crate::record::{self, Record};
use crate::report;
use crate::run::{self, End};

/// Writing the report may take this share of the session's time; it is skipped after a round where it would
/// take more. The last one of an experiment is never skipped.
const REPORTS: f64 = 0.05;

/// What a session needs beside its plans.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Drover's own binary.
    pub drover: PathBuf,
    /// The folder that gets a folder for each session, and the newest report.
    pub out: PathBuf,
    /// The folder of the files to be served, for this and later sessions.
    pub pools: PathBuf,
    /// Whether to go on although the kernel, the program or the experiment is another one.
    pub is_forced: bool,
    /// The flag that ends the session.
    pub interrupt: Interrupt,
}

/// What a session tells while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// The session's folder, before anything is run.
    Folder(&'e Path),
    /// An experiment begins. There is a report of the session by now.
    Begins {
        /// The experiment with its plan.
        planned: &'e Planned,
        /// Its number in the session, from 0.
        number: usize,
        /// How long the session still takes.
        clock: &'e Clock,
    },
    /// Something of the experiment that runs.
    Of {
        /// The experiment with its plan.
        planned: &'e Planned,
        /// What happens.
        event: run::Event<'e>,
        /// How long the session still takes.
        clock: &'e Clock,
    },
    /// An experiment cannot be run here, and the others go on.
    Refused {
        /// The experiment's id.
        id: &'e str,
        /// Why.
        why: &'e str,
    },
    /// Something that a reader has to know.
    Note(&'e str),
}

/// How a session ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The session's folder.
    pub folder: PathBuf,
    /// The newest report, in the folder of all sessions.
    pub report: PathBuf,
    /// Whether the user, or the system, has asked for the end.
    pub is_interrupted: bool,
    /// Everything that was measured.
    pub record: Record,
}

impl Outcome {
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
}

impl Session {
    /// Runs the session.
    ///
    /// Children die with the thread that calls this, so call it on a thread that lives until the end of the
    /// process. A run that fails is a result; an experiment that cannot be run is recorded as refused; the
    /// others go on.
    ///
    /// # Errors
    /// What is to be resumed differs ([`Error::Differs`]; [`Session::differences`] says so before) or is
    /// written to by another lab ([`Error::InUse`]); the session's folder, or the last report, cannot be
    /// written.
    pub fn run(
        mut self,
        settings: &Settings,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Outcome, Error> {
        let folder = self.prepare(settings)?;
        // Held until the session has ended, however it ends.
        let _lock = folder::lock(&folder)?;
        if self.resumed.is_some() {
            record::write_session(&folder, &self.record)?;
        }
        tell(Event::Folder(&folder));
        let mut running = Running {
            reporter: Reporter::new(&folder, &settings.out),
            clock: Clock::default(),
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
                || running.experiment(&mut self, number, tell)? == Some(End::Interrupted);
            if is_interrupted {
                break;
            }
        }
        let (record, report) = running.reporter.write()?;
        Ok(Outcome { folder, report, is_interrupted, record })
    }

    /// Makes the session's folder, with everything that it can be resumed from.
    fn prepare(&mut self, settings: &Settings) -> Result<PathBuf, Error> {
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

/// A session at work.
struct Running<'s> {
    folder: PathBuf,
    settings: &'s Settings,
    reporter: Reporter,
    clock: Clock,
    start: Instant,
    /// What is left of the time limits of the experiments so far: the next one may use it.
    saved: Duration,
}

impl Running<'_> {
    /// Shares out the rest of the session's time among the experiments from `first` on.
    fn share_out(&mut self, session: &mut Session, first: usize) {
        session.share_out(self.start.elapsed(), first);
        for (number, one) in session.planned.iter().enumerate().skip(first) {
            self.clock.limit(number, one.budget());
        }
    }

    /// Runs one experiment; `None`: it could not be run. The first one is run in any time.
    fn experiment(
        &mut self,
        session: &mut Session,
        number: usize,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<End>, Error> {
        self.share_out(session, number);
        self.clock.begin(number);
        if number > 0 && session.budget.is_some_and(|budget| self.start.elapsed() >= budget) {
            let why = "the session's time was over before it began (--budget sets another limit)";
            self.refuse(session, number, why, tell)?;
            return Ok(None);
        }
        let limit = match session.budget {
            // Shared out already.
            Some(_) => None,
            None => session.planned[number].budget().map(|own| own + self.saved),
        };
        if let Some(limit) = limit {
            session.planned[number].set_budget(limit);
        }
        let planned = session.planned[number].clone();
        let begun = Instant::now();
        tell(Event::Begins { planned: &planned, number, clock: &self.clock });
        let own = self.folder.join(&planned.experiment.id);
        let options = run::Options {
            drover: self.settings.drover.clone(),
            pools: self.settings.pools.clone(),
            resumes: own.join(journal::PLAN).exists(),
            is_forced: self.settings.is_forced,
            interrupt: self.settings.interrupt.clone(),
            folder: own,
        };
        let Planned { experiment, selection, plan, .. } = &planned;
        let ended = run::run(experiment, selection, plan, &options, &mut |event| {
            if let run::Event::Ended { run, .. } = event {
                self.clock.ended(super::seconds(run.took_s));
            }
            tell(Event::Of { planned: &planned, event, clock: &self.clock });
            if let run::Event::Round { .. } = event {
                // What came before this round is in the report.
                if let Err(why) = self.reporter.write_if_cheap() {
                    tell(Event::Note(&format!("The report cannot be written: {why}")));
                }
            }
        });
        if let Some(limit) = limit {
            self.saved = limit.saturating_sub(begun.elapsed());
        }
        match ended {
            Ok(end) => {
                if let Err(why) = self.reporter.write() {
                    tell(Event::Note(&format!("The report cannot be written: {why}")));
                }
                Ok(Some(end))
            }
            Err(run::Error::Journal(error @ (Error::Differs(_) | Error::InUse(_)))) => Err(error),
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
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), Error> {
        let id = session.planned[number].experiment.id.clone();
        tell(Event::Refused { id: &id, why });
        session.record.refused.push((id, why.to_owned()));
        record::write_session(&self.folder, &session.record)
    }
}

/// Writes a session's report, into its folder and into that of all sessions.
struct Reporter {
    folder: PathBuf,
    out: PathBuf,
    /// When the last report was written, and how long that took.
    last: Option<(Instant, Duration)>,
}

impl Reporter {
    fn new(folder: &Path, out: &Path) -> Reporter {
        Reporter { folder: folder.to_owned(), out: out.to_owned(), last: None }
    }

    /// Writes the report unless that has become too dear to be done so often.
    fn write_if_cheap(&mut self) -> Result<(), Error> {
        let is_dear = self.last.is_some_and(|(when, took)| took > when.elapsed().mul_f64(REPORTS));
        if !is_dear {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the report; returns what it is made of, and where the newest report is.
    fn write(&mut self) -> Result<(Record, PathBuf), Error> {
        let start = Instant::now();
        let record = Record::read(&self.folder)?;
        let newest = report::write(&self.folder, Some(&self.out), &record)?;
        self.last = Some((Instant::now(), start.elapsed()));
        Ok((record, newest))
    }
}
