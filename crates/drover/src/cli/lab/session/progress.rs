//! How far a session has come, on stderr: on a terminal one line with the remaining time, elsewhere a line per run.

use std::io::{self, IsTerminal, Write};

use drover_lab::report::model::words::{self, counted};
use drover_lab::report::terminal::plain;
use drover_lab::run::RunEvent;
use drover_lab::session::{Planned, SessionClock, SessionEvent};
use indicatif::{ProgressBar, ProgressStyle};

use super::live::Live;
use drover_usage::duration::in_words;

/// Prints the progress of a session.
#[derive(Debug)]
pub(in crate::cli::lab) struct ProgressPrinter<'l> {
    bar: Option<ProgressBar>,
    experiments: usize,
    live: Option<&'l Live>,
}

impl ProgressPrinter<'_> {
    /// A progress with no run done. `experiments` and `runs` are the totals of the session.
    pub(in crate::cli::lab) fn begin(
        experiments: usize,
        runs: usize,
        live: Option<&Live>,
    ) -> ProgressPrinter<'_> {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(runs as u64).with_style(style)
        });
        ProgressPrinter { bar, experiments, live }
    }

    /// Prints an event of the session.
    pub(in crate::cli::lab) fn tell(&self, event: &SessionEvent<'_>) {
        match event {
            SessionEvent::Folder(folder) => self.line(&format!("Session: {}", folder.display())),
            SessionEvent::Begins { planned, number, clock } => self.begins(planned, *number, clock),
            SessionEvent::Of { planned, event, clock } => self.of_run(planned, event, clock),
            SessionEvent::Refused { id, why } => {
                self.line(&format!("{id} cannot be run here: {why}"))
            }
            SessionEvent::Note(note) => self.line(note),
        }
    }

    /// Prints a line above the bar.
    pub(in crate::cli::lab) fn line(&self, text: &str) {
        let text = plain(text);
        match &self.bar {
            Some(bar) => bar.println(text),
            // An error of stderr is ignored: there is no other place for the message.
            None => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    fn begins(&self, planned: &Planned, number: usize, clock: &SessionClock) {
        self.line(&format!(
            "{} ({} of {}): {} in {}, about {}",
            planned.experiment.id,
            number + 1,
            self.experiments,
            counted(planned.missing(), "run"),
            counted(planned.plan.rounds as usize, "round"),
            in_words(planned.estimate())
        ));
        self.show(&format!("{} begins", planned.experiment.id), clock);
    }

    /// Writes what is under way for a page that is shown live.
    fn show(&self, running: &str, clock: &SessionClock) {
        if let Some(Err(error)) = self.live.map(|live| live.begins(running, clock)) {
            self.line(&format!("--live: {error}"));
        }
    }

    fn of_run(&self, planned: &Planned, event: &RunEvent<'_>, clock: &SessionClock) {
        let id = &planned.experiment.id;
        match event {
            RunEvent::Resumed { runs } => {
                self.line(&format!("{id}: resumed after {}", counted(*runs, "run")));
            }
            RunEvent::NotTestable { cell, why } => {
                let cell = words::cell(&planned.plan.cells[*cell].cell, &planned.experiment);
                self.line(&format!("{id}: not testable here: {cell}: {why}"));
            }
            RunEvent::Note(note) => self.line(&format!("{id}: {note}")),
            RunEvent::Begins { cell, .. } => {
                let cell = words::cell(&planned.plan.cells[*cell].cell, &planned.experiment);
                self.show(&format!("{id}: {cell}"), clock);
                if let Some(bar) = &self.bar {
                    let left = in_words(clock.remaining());
                    bar.set_length(clock.runs().1 as u64);
                    bar.set_position(clock.runs().0 as u64);
                    bar.set_message(format!("about {left} left; {id}: {cell}"));
                }
            }
            RunEvent::Ended { run, .. } => {
                let (done, of) = clock.runs();
                let (cell, round) =
                    (words::cell(&run.sample.cell, &planned.experiment), run.sample.round);
                match (&self.bar, &run.sample.failure) {
                    (_, Some(why)) => {
                        // Of a run in which the lab itself failed, the reason begins with "not measured".
                        let failed = if run.is_measured() { "failed: " } else { "" };
                        self.line(&format!(
                            "{done}/{of} {id}: {cell}, round {round}: {failed}{why}"
                        ));
                    }
                    (None, None) => self.line(&format!("{done}/{of} {id}: {cell}, round {round}")),
                    (Some(_), None) => {}
                }
            }
            RunEvent::Round { .. } => {}
        }
    }
}

impl Drop for ProgressPrinter<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
