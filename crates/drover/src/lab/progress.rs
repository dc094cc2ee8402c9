//! How far a run has come: a bar on a terminal, a line per run elsewhere. All on stderr.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use super::metric::Metric;
use super::results::{Ask, Results, Run};
use crate::report::number;

/// Tells the progress of one experiment.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    runs: u64,
    done: u64,
}

impl Progress {
    /// Begins with nothing done of so many `runs`.
    pub fn begin(title: &str, runs: u64) -> Progress {
        let bar = io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}, {eta} left\n{msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(runs).with_style(style).with_prefix(title.to_string())
        });
        Progress { bar, runs, done: 0 }
    }

    /// Tells of the last run of `results`, if it is a new one.
    pub fn step(&mut self, results: &Results) {
        let done = results.runs.len() as u64;
        let Some(run) = results.runs.last().filter(|_| done > self.done) else { return };
        self.done = done;
        match &self.bar {
            Some(bar) => {
                bar.set_message(line(run));
                bar.set_position(done);
            }
            // Nobody is left to tell when stderr is gone.
            None => drop(writeln!(io::stderr(), "{done}/{} {}", self.runs, line(run))),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(run: &Run) -> String {
    let point = &run.point;
    let counted = match point.ask {
        Ask::Descriptors(_) => "waiters",
        _ => "connections",
    };
    let place =
        format!("{}, {} {counted}, {}", point.mechanism, point.connections, point.ask.in_words());
    let Some(sample) = &run.sample else {
        return format!("{place}: failed: {}", run.error.as_deref().unwrap_or("no reason given"));
    };
    let value = |metric: Metric| {
        metric
            .of(sample)
            .map_or("–".to_string(), |value| format!("{} {}", number(value), metric.unit()))
    };
    if sample.herd.is_some() {
        return format!(
            "{place}: connect() {}, settled after {}, wake-ups {}",
            value(Metric::ConnectMedian),
            value(Metric::SettleTime),
            value(Metric::WakeUps)
        );
    }
    format!(
        "{place}: {}, CPU {}, mean response {}",
        value(Metric::ReplyRate),
        value(Metric::CpuPercent),
        value(Metric::LatencyMean)
    )
}
