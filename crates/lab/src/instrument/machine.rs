//! The activity of the whole machine in the window: time that its host stole, interrupts, load.

use std::fs;

use serde_json::json;

use super::{Instrument, Readings, reading};
use crate::failure::Failure;
use crate::model::Mark;
use crate::subject::Running;

/// The share of the processors' time that the host may steal without a mark.
const STOLEN: f64 = 0.03;

/// Reads proc_stat(5) around the window.
#[derive(Debug)]
pub struct MachineCounters {
    subject: Vec<usize>,
    before: Option<Ticks>,
    idle_before: Option<u64>,
}

impl MachineCounters {
    /// `subject` are the processors that the subject runs on.
    #[must_use]
    pub fn new(subject: &[usize]) -> MachineCounters {
        MachineCounters { subject: subject.to_vec(), before: None, idle_before: None }
    }
}

/// Times of all processors together, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    processors: usize,
    interrupts: u64,
    steal: u64,
}

impl Ticks {
    /// `None` where /proc/stat cannot be read.
    fn read() -> Option<Ticks> {
        Ticks::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The shares of all processors' time since an earlier reading that were stolen, and that interrupts took.
    fn shares_since(&self, before: &Ticks, seconds: f64, ticks: f64) -> (f64, f64) {
        // The kernel adds idle time when a processor wakes, so that the ticks do not add up to the window.
        let all = (seconds * ticks * self.processors as f64).max(1.0);
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / all;
        (share(self.steal, before.steal), share(self.interrupts, before.interrupts))
    }

    /// Parses `cpu user nice system idle iowait irq softirq steal …`. Guest times are part of the user time.
    fn parse(text: &str) -> Option<Ticks> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let processors = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        Some(Ticks {
            processors,
            interrupts: times.get(5)? + times.get(6)?,
            steal: times.get(7).copied().unwrap_or(0),
        })
    }
}

/// The idle time of some processors since the machine's start, in clock ticks; waiting for a disk counts as idle. A
/// spinning thread of the idle counter does not count as idle: the idle counter's own reading replaces this one.
fn idle_ticks(cpus: &[usize]) -> Option<u64> {
    idle_of(&fs::read_to_string("/proc/stat").ok()?, cpus)
}

fn idle_of(text: &str, cpus: &[usize]) -> Option<u64> {
    let of = |cpu: &usize| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
        let mut times = line.split_whitespace().skip(3).map(|word| word.parse::<u64>().ok());
        Some(times.next()?? + times.next()??)
    };
    cpus.iter().map(of).sum()
}

impl Instrument for MachineCounters {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn begin(&mut self, _: &mut Running) -> Result<(), Failure> {
        self.before = Ticks::read();
        self.idle_before = idle_ticks(&self.subject);
        Ok(())
    }

    fn end(&mut self, _: &mut Running, seconds: f64) -> Result<Readings, Failure> {
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        // Without both readings, it is unknown whether the host stole time, which is no reason to doubt the run.
        let shares = match (Ticks::read(), self.before) {
            (Some(now), Some(before)) => Some(now.shares_since(&before, seconds, ticks)),
            _ => None,
        };
        let (stolen, interrupts) = shares.unzip();
        let mut readings = Readings::default();
        if let (Some(after), Some(before)) = (idle_ticks(&self.subject), self.idle_before) {
            let idle = after.saturating_sub(before) as f64 / ticks;
            let capacity = seconds * self.subject.len() as f64;
            // Both readings are rounded to a tick: 20 ms per processor are added to the idle time.
            let idle = idle + 2e-2 * self.subject.len() as f64;
            readings.set(reading::CAPACITY_S, capacity);
            readings.set(reading::IDLE_S, idle.min(capacity));
        }
        if stolen.is_some_and(|stolen| stolen > STOLEN) {
            readings.marks.insert(Mark::Stalled);
        }
        let load = fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        if let Some(load) = load {
            readings.set("load-average", load);
        }
        readings.notes = json!({ "stolen": stolen, "interrupts": interrupts });
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_and_interrupts_are_read() {
        let ticks = Ticks::parse("cpu  10 1 20 900 5 2 3 59 0 0\ncpu0 1 1 1\n").unwrap();
        assert_eq!(ticks, Ticks { processors: 1, interrupts: 5, steal: 59 });
        assert_eq!(Ticks::parse("cpu  10\n"), None);
        let text = "cpu  9 9 9 9 9\ncpu0 1 1 1 50 5 1\ncpu10 1 1 1 70 7 1\ncpu1 1 1 1 60 6 1\n";
        assert_eq!(idle_of(text, &[0, 1]), Some(121));
        assert_eq!(idle_of(text, &[2]), None);
        assert!(Ticks::read().unwrap().processors > 0);
        let before = Ticks { steal: 51, interrupts: 1, ..ticks };
        assert_eq!(ticks.shares_since(&before, 1.0, 100.0), (0.08, 0.04));
    }
}
