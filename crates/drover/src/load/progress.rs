//! The progress bar, on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::Plan;

pub(super) struct Progress {
    bar: ProgressBar,
    duration: Option<Duration>,
}

impl Progress {
    /// On stderr if that is a terminal, and silent otherwise.
    pub(super) fn new(plan: &Plan) -> Progress {
        let length = match plan.duration {
            Some(duration) => duration.as_millis() as u64,
            None => plan.requests.unwrap_or(0),
        };
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.set_message("connecting");
        Progress { bar, duration: plan.duration }
    }

    /// Shows how far a run is that began at `start`, or will.
    pub(super) fn show(&self, start: Option<Instant>, replies: u64) {
        let Some(elapsed) = start.map(|start| start.elapsed()) else { return };
        if self.bar.is_hidden() {
            return;
        }
        match self.duration {
            Some(_) => self.bar.set_position(elapsed.as_millis() as u64),
            None => self.bar.set_position(replies),
        }
        let rate = replies as f64 / elapsed.as_secs_f64().max(0.001);
        self.bar.set_message(format!("{replies} replies, {rate:.0}/s"));
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
