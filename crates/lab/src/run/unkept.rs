//! Runs whose journal is not kept: what is found decides what is run next.

use std::path::{Path, PathBuf};

use super::{End, Error, Event, Options, run};
use crate::model::Sample;
use crate::plan::{Plan, Selection};
use crate::process::Interrupt;
use crate::spec::Experiment;

/// What such runs need beside their plan.
#[derive(Clone, Debug)]
pub struct Unkept<'u> {
    /// Drover's own binary.
    pub drover: &'u Path,
    /// A folder of this process, which is made, and removed with all that is in it.
    pub folder: PathBuf,
    /// The folder of the files to be served, for these and other runs.
    pub pools: &'u Path,
    /// The flag that ends them.
    pub interrupt: &'u Interrupt,
}

impl Unkept<'_> {
    /// Runs the plan; returns a sample of each run, and of each cell that this machine cannot measure.
    ///
    /// # Errors
    /// As [`run`].
    pub fn samples(
        &self,
        experiment: &Experiment,
        selection: &Selection,
        plan: &Plan,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Vec<Sample>, End), Error> {
        // A process that was killed, and whose number this one has now, has left a journal: containers give the
        // same numbers again.
        let _ = std::fs::remove_dir_all(&self.folder);
        let options = Options {
            drover: self.drover.to_owned(),
            folder: self.folder.clone(),
            pools: self.pools.to_owned(),
            resumes: false,
            is_forced: false,
            interrupt: self.interrupt.clone(),
        };
        let mut samples = plan.unavailable();
        let end = run(experiment, selection, plan, &options, &mut |event| {
            if let Event::Ended { run, .. } = event {
                samples.push(run.sample.clone());
            }
            tell(event);
        });
        let _ = std::fs::remove_dir_all(&self.folder);
        Ok((samples, end?))
    }
}
