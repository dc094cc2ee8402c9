//! What the machine as a whole did in the window: time that its host stole, interrupts, load.

use std::fs;

use serde_json::json;

use super::{Instrument, Readings};
use crate::failure::Failure;
use crate::model::Mark;
use crate::subject::Running;

/// The share of the processors' time that may be stolen without a mark.
const STOLEN: f64 = 0.03;

/// Reads proc_stat(5) around the window.
#[derive(Debug, Default)]
pub struct Machine {
    before: Ticks,
}

/// Times of all processors together, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    total: u64,
    interrupts: u64,
    steal: u64,
}

impl Ticks {
    fn read() -> Ticks {
        fs::read_to_string("/proc/stat")
            .ok()
            .and_then(|text| Ticks::parse(&text))
            .unwrap_or_default()
    }

    /// `cpu user nice system idle iowait irq softirq steal …`: guest times are part of user's.
    fn parse(text: &str) -> Option<Ticks> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some(Ticks {
            total: times.iter().take(8).sum(),
            interrupts: times.get(5)? + times.get(6)?,
            steal: times.get(7).copied().unwrap_or(0),
        })
    }
}

impl Instrument for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn begin(&mut self, _: &mut Running) -> Result<(), Failure> {
        self.before = Ticks::read();
        Ok(())
    }

    fn end(&mut self, _: &mut Running, _: f64) -> Result<Readings, Failure> {
        let now = Ticks::read();
        let share = |of: fn(&Ticks) -> u64| {
            let total = now.total.saturating_sub(self.before.total).max(1);
            of(&now).saturating_sub(of(&self.before)) as f64 / total as f64
        };
        let (stolen, interrupts) = (share(|it| it.steal), share(|it| it.interrupts));
        let mut readings = Readings::default();
        if stolen > STOLEN {
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
        assert_eq!(ticks, Ticks { total: 1000, interrupts: 5, steal: 59 });
        assert_eq!(Ticks::parse("cpu  10\n"), None);
        assert!(Ticks::read().total > 0);
    }
}
