//! What `drover tune` shows while it measures: a bar on a terminal, or a line for each step.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use drover_lab::tune::{Step, TuneEvent};
use drover_usage::duration;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::stdout::stdout;

/// Progress on stderr, until `end` at the latest.
pub(super) struct TuneProgress {
    bar: Option<ProgressBar>,
    end: Instant,
}

impl TuneProgress {
    pub(super) fn begin(end: Instant) -> TuneProgress {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        TuneProgress { bar, end }
    }

    /// Shows what is measured.
    pub(super) fn take(&self, event: TuneEvent<'_>) {
        match event {
            TuneEvent::FirstLook => self.tell("a first look at what auto takes"),
            TuneEvent::Step(knob, Step { extent, names, is_last, .. }) => {
                let what = if *is_last { "last candidates" } else { "candidates" };
                let (candidates, rounds) = (names.len(), extent.rounds);
                self.tell(&format!("{}: {candidates} {what}, {rounds} rounds", knob.name()));
            }
            TuneEvent::Runs { done, of } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(of as u64);
                    bar.set_position(done as u64);
                }
            }
        }
    }

    fn tell(&self, text: &str) {
        let left = duration::in_words(self.end.saturating_duration_since(Instant::now()));
        match &self.bar {
            Some(bar) => bar.set_message(format!("{text}; at most {left} left")),
            // An error of stderr is ignored: there is no other place for the message.
            None => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    /// Prints above the bar.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
        let print = || write!(stdout(), "\n{text}").and_then(|()| stdout().flush());
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar off the terminal.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
