//! Runs with a temporary journal. The results decide what is run next.

use std::path::{Path, PathBuf};

use super::{RunEnd, RunError, RunEvent, RunOptions, run};
use crate::model::Sample;
use crate::plan::{Plan, Selection};
use crate::process::Interrupt;
use crate::spec::Experiment;

/// The settings of runs with a temporary journal.
#[derive(Clone, Debug)]
pub struct Unkept<'u> {
    /// Drover's own binary.
    pub drover: &'u Path,
    /// A folder of this process. It is created for the runs and removed with its content.
    pub folder: PathBuf,
    /// The folder of the files to be served, kept for other runs.
    pub pools: &'u Path,
    /// The flag that ends the runs.
    pub interrupt: &'u Interrupt,
}

impl Unkept<'_> {
    /// Runs the plan. Returns a sample of each run, and of each cell that this machine cannot measure. Leaves out runs
    /// in which the lab itself failed.
    ///
    /// # Errors
    /// The errors of [`run`]; [`RunError::Failed`] if the lab itself failed in every run.
    pub fn samples(
        &self,
        experiment: &Experiment,
        selection: &Selection,
        plan: &Plan,
        tell: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<(Vec<Sample>, RunEnd), RunError> {
        // A killed process with the same process id may have left a journal: process ids repeat, above all in
        // containers.
        let _ = std::fs::remove_dir_all(&self.folder);
        let options = RunOptions {
            guest: None,
            drover: self.drover.to_owned(),
            folder: self.folder.clone(),
            pools: self.pools.to_owned(),
            resumes: false,
            is_forced: false,
            interrupt: self.interrupt.clone(),
        };
        let mut samples = plan.unavailable();
        let mut unmeasured = None;
        let end = run(experiment, selection, plan, &options, &mut |event| {
            match event {
                RunEvent::Ended { run, .. } if run.is_measured() => {
                    samples.push(run.sample.clone());
                }
                RunEvent::Ended { run, .. } => unmeasured = run.sample.failure.clone(),
                _ => {}
            }
            tell(event);
        });
        let _ = std::fs::remove_dir_all(&self.folder);
        match unmeasured {
            Some(why) if samples.is_empty() => Err(RunError::Failed(why)),
            _ => Ok((samples, end?)),
        }
    }
}
