//! The live view on a terminal: how far a run is, and how it goes second by second.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::account::seconds::{Second, SecondCounts};
use crate::output::summary::time;

/// What fills the bar.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Time(Duration),
    Responses(u64),
    /// No end: the run goes on until a signal ends it.
    None,
}

/// The view; draws on stderr if that is a terminal, and nothing otherwise.
#[derive(Debug)]
pub struct ProgressView {
    bar: ProgressBar,
    goal: Goal,
    errors: u64,
    /// The 99th percentiles of the last seconds, in microseconds.
    history: VecDeque<f64>,
    /// The last second, as it is shown.
    last: String,
}

/// How many seconds the history shows.
const HISTORY: usize = 24;

impl ProgressView {
    /// A view of a run with a `duration`, or with a number of `requests`.
    #[must_use]
    pub fn new(duration: Option<Duration>, requests: Option<u64>) -> ProgressView {
        let (goal, length, template) = match (duration, requests) {
            (Some(duration), _) => {
                let millis = duration.as_millis() as u64;
                (Goal::Time(duration), Some(millis), "{bar:20} {percent:>3} %  {wide_msg}")
            }
            (None, Some(requests)) => {
                (Goal::Responses(requests), Some(requests), "{bar:20} {percent:>3} %  {wide_msg}")
            }
            (None, None) => (Goal::None, None, "{spinner} {elapsed}  {wide_msg}"),
        };
        let bar = ProgressBar::with_draw_target(length, target());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        bar.set_message("connecting");
        ProgressView {
            bar,
            goal,
            errors: 0,
            history: VecDeque::with_capacity(HISTORY),
            last: String::new(),
        }
    }

    /// Whether the view is drawn.
    #[must_use]
    pub fn is_visible(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Shows how far a run is, once its window has begun.
    pub fn look(&self, elapsed: Option<Duration>, responses: u64) {
        let Some(elapsed) = elapsed.filter(|_| self.is_visible()) else { return };
        match self.goal {
            Goal::Time(duration) => self.bar.set_position(elapsed.min(duration).as_millis() as u64),
            Goal::Responses(requests) => self.bar.set_position(responses.min(requests)),
            Goal::None => self.bar.tick(),
        }
        if self.last.is_empty() {
            self.bar.set_message(format!("{responses} responses"));
        } else {
            self.bar.set_message(self.last.clone());
        }
    }

    /// Shows how the last second went.
    pub fn second(&mut self, second: &Second) {
        self.errors += second.counts.errors;
        let micros = |q| second.latencies.value_at_quantile(q) as f64 / 1000.0;
        let (p50, p99) = (micros(0.5), micros(0.99));
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(p99);
        self.last = line(second.counts, self.errors, p50, p99, &self.history);
        if self.is_visible() {
            self.bar.set_message(self.last.clone());
        }
    }

    /// Removes the view from the terminal.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// stderr, if it is a terminal.
fn target() -> ProgressDrawTarget {
    /// Redraws in a second, at most.
    const REDRAWS: u8 = 20;
    let term = Term::buffered_stderr();
    if term.is_term() {
        ProgressDrawTarget::term_like_with_hz(Box::new(Narrow(term)), REDRAWS)
    } else {
        ProgressDrawTarget::hidden()
    }
}

/// A terminal that seems to have a few columns less: a line that is drawn is filled up to its end, and
/// the `^C` that the terminal itself shows behind it must not begin another one. The view is taken off
/// from the line that the cursor is in.
#[derive(Debug)]
struct Narrow(Term);

/// As many columns as `^C` takes, and one for the cursor.
const MARGIN: u16 = 3;

impl TermLike for Narrow {
    fn width(&self) -> u16 {
        self.0.size().1.saturating_sub(MARGIN).max(1)
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n)
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn line(counts: SecondCounts, errors: u64, p50: f64, p99: f64, history: &VecDeque<f64>) -> String {
    let times = match counts.responses {
        0 => "no response".to_string(),
        _ => format!("p50 {}  p99 {}", time(p50), time(p99)),
    };
    format!("{}/s  {times} {}  errors {errors}", counts.responses, sparkline(history))
}

/// The values as bars between nothing and the highest of them.
fn sparkline(values: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        let height = if highest > 0.0 { value / highest * 7.0 } else { 0.0 };
        BARS[(height.round() as usize).min(7)]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_values_in_proportion_to_the_highest() {
        assert_eq!(sparkline(&VecDeque::from([0.0, 50.0, 100.0])), "▁▅█");
        assert_eq!(sparkline(&VecDeque::from([0.0, 0.0])), "▁▁");
        assert_eq!(sparkline(&VecDeque::new()), "");
    }

    #[test]
    fn a_line_tells_rate_latency_and_errors() {
        let counts = SecondCounts { responses: 1200, ..SecondCounts::default() };
        let history = VecDeque::from([1500.0]);
        let shown = line(counts, 3, 800.0, 1500.0, &history);
        assert_eq!(shown, "1200/s  p50 800.0us  p99 1.50ms █  errors 3");
        let quiet = line(SecondCounts::default(), 0, 0.0, 0.0, &VecDeque::from([0.0]));
        assert_eq!(quiet, "0/s  no response ▁  errors 0");
    }

    #[test]
    fn the_history_is_bounded() {
        let mut progress = ProgressView::new(None, Some(10));
        for _ in 0..HISTORY + 5 {
            progress.second(&Second::empty());
        }
        assert_eq!(progress.history.len(), HISTORY);
    }
}
