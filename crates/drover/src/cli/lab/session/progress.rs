//! How far a session has come, on stderr: on a terminal one line with the remaining time, elsewhere a line per run.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use lab::report::model::words::{self, counted};
use lab::report::terminal::plain;
use lab::run::Event as OfRun;
use lab::session::{Clock, Event, Planned};

use super::live::Live;
use usage::duration::in_words;

/// Prints the progress of a session.
#[derive(Debug)]
pub(in crate::cli::lab) struct Progress<'l> {
    bar: Option<ProgressBar>,
    experiments: usize,
    live: Option<&'l Live>,
}

impl Progress<'_> {
    /// A progress with no run done. `experiments` and `runs` are the totals of the session.
    pub(in crate::cli::lab) fn begin(
        experiments: usize,
        runs: usize,
        live: Option<&Live>,
    ) -> Progress<'_> {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(runs as u64).with_style(style)
        });
        Progress { bar, experiments, live }
    }

    /// Prints an event of the session.
    pub(in crate::cli::lab) fn tell(&self, event: &Event<'_>) {
        match event {
            Event::Folder(folder) => self.line(&format!("Session: {}", folder.display())),
            Event::Begins { planned, number, clock } => self.begins(planned, *number, clock),
            Event::Of { planned, event, clock } => self.of_run(planned, event, clock),
            Event::Refused { id, why } => self.line(&format!("{id} cannot be run here: {why}")),
            Event::Note(note) => self.line(note),
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

    fn begins(&self, planned: &Planned, number: usize, clock: &Clock) {
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
    fn show(&self, running: &str, clock: &Clock) {
        if let Some(Err(error)) = self.live.map(|live| live.begins(running, clock)) {
            self.line(&format!("--live: {error}"));
        }
    }

    fn of_run(&self, planned: &Planned, event: &OfRun<'_>, clock: &Clock) {
        let id = &planned.experiment.id;
        match event {
            OfRun::Resumed { runs } => {
                self.line(&format!("{id}: resumed after {}", counted(*runs, "run")));
            }
            OfRun::NotTestable { cell, why } => {
                let cell = words::cell(&planned.plan.cells[*cell].cell, &planned.experiment);
                self.line(&format!("{id}: not testable here: {cell}: {why}"));
            }
            OfRun::Note(note) => self.line(&format!("{id}: {note}")),
            OfRun::Begins { cell, .. } => {
                let cell = words::cell(&planned.plan.cells[*cell].cell, &planned.experiment);
                self.show(&format!("{id}: {cell}"), clock);
                if let Some(bar) = &self.bar {
                    let left = in_words(clock.remaining());
                    bar.set_length(clock.runs().1 as u64);
                    bar.set_position(clock.runs().0 as u64);
                    bar.set_message(format!("about {left} left; {id}: {cell}"));
                }
            }
            OfRun::Ended { run, .. } => {
                let (done, of) = clock.runs();
                let (cell, round) =
                    (words::cell(&run.sample.cell, &planned.experiment), run.sample.round);
                match (&self.bar, &run.sample.failure) {
                    (_, Some(why)) => {
                        self.line(&format!(
                            "{done}/{of} {id}: {cell}, round {round}: failed: {why}"
                        ));
                    }
                    (None, None) => self.line(&format!("{done}/{of} {id}: {cell}, round {round}")),
                    (Some(_), None) => {}
                }
            }
            OfRun::Round { .. } => {}
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
