//! A calibration for terminals: tables that fit 80 columns.

use std::fmt::Write;

use super::{Calibration, SlowedServer};
use crate::digits::{percent, three_digits};

/// The meaning of a star in the tables.
pub(crate) const BOUNDS: &str =
    "* a bound in some runs: the load was at its limit, or requests failed.";

impl Calibration {
    /// Which differences this machine can find, in tables of at most 80 columns.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        self.write_tables(&mut text).expect("a String takes everything");
        text
    }

    fn write_tables(&self, out: &mut String) -> std::fmt::Result {
        let Some(first) = self.metrics.first() else {
            return writeln!(
                out,
                "Nothing was measured in six rounds: nothing can be said of this machine."
            );
        };
        writeln!(
            out,
            "Smallest difference that 80 % of experiments find, by their number of rounds,"
        )?;
        writeln!(
            out,
            "and how often two names of one server seemed to differ (promised: {} %):",
            percent(100.0 * self.size)
        )?;
        let heads: String = first.smallest.iter().map(|it| format!("{:>8}", it.rounds)).collect();
        writeln!(out, "\n  {:<24}{:>14}{heads}{:>8}", "", "median", "false")?;
        let mut workload = "";
        for row in &self.metrics {
            if row.workload != workload {
                workload = &row.workload;
                writeln!(out, "{workload}, {} rounds", row.rounds)?;
            }
            let median = format!("{} {}", three_digits(row.median), row.unit);
            let smallest: String =
                row.smallest.iter().map(|it| format!("{:>6} %", percent(it.percent))).collect();
            let mark = if row.limited > 0 { " *" } else { "" };
            let median = format!("{median}{mark}");
            let alarms = percent(100.0 * row.false_alarms);
            writeln!(out, "  {:<24}{median:>14}{smallest}{alarms:>6} %", row.title)?;
        }
        if self.metrics.iter().any(|row| row.limited > 0) {
            writeln!(out, "{BOUNDS}")?;
        }
        if !self.slowed.is_empty() {
            self.write_slowed(out)?;
        }
        Ok(())
    }

    fn write_slowed(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\nServers that spin for a known share of their CPU time per request, and how often"
        )?;
        writeln!(out, "random subsets of so many rounds found them (in brackets: as predicted):")?;
        let longest = self.slowed.iter().max_by_key(|it| it.found.len());
        let rounds = longest.into_iter().flat_map(|it| &it.found).map(|it| it.rounds);
        let heads: String = rounds.map(|rounds| format!("{rounds:>13}")).collect();
        writeln!(out, "\n  {:<8}{:>18}{heads}", "slower", "measured")?;
        let mut workload = "";
        for row in &self.slowed {
            if row.workload != workload {
                workload = &row.workload;
                writeln!(out, "{workload}")?;
            }
            writeln!(
                out,
                "  {:<8}{:>18}{}",
                format!("{} %", row.percent),
                row.measured(),
                row.times()
            )?;
        }
        Ok(())
    }
}

impl SlowedServer {
    fn measured(&self) -> String {
        let (low, high) = self.interval_percent;
        format!("{} ({} … {})", percent(self.measured_percent), percent(low), percent(high))
    }

    fn times(&self) -> String {
        let one = |found: f64, predicted: f64| {
            format!("{:>5.0} ({:>3.0}) %", 100.0 * found, 100.0 * predicted)
        };
        self.found.iter().map(|it| format!("{:>13}", one(it.found, it.predicted))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Found, MetricNoise, ROUNDS, SCHEMA, SIZE, Smallest};
    use super::*;
    use crate::journal::Environment;

    fn calibration() -> Calibration {
        let metric = |workload: &str, title: &str, limited| MetricNoise {
            workload: workload.to_owned(),
            metric: "cpu-per-response".to_owned(),
            title: title.to_owned(),
            unit: "µs".to_owned(),
            median: 123_456.7,
            rounds: 20,
            limited,
            splits: 400,
            split_rounds: 10,
            false_alarms: 0.0525,
            within_rounds: 0.04,
            between_rounds: 0.1,
            smallest: ROUNDS
                .map(|rounds| Smallest { rounds, percent: 100.0 / rounds as f64 })
                .into(),
        };
        Calibration {
            schema: SCHEMA.to_owned(),
            version: "0".to_owned(),
            began: 0.0,
            seed: 1,
            size: SIZE,
            power: 0.8,
            environment: Environment::default(),
            metrics: vec![
                metric("saturation", "CPU per response", 0),
                metric("low", "Response rate", 3),
            ],
            slowed: vec![SlowedServer {
                workload: "saturation".to_owned(),
                metric: "cpu-per-response".to_owned(),
                percent: 12.5,
                spin_us: 1.0,
                measured_percent: 12.9,
                interval_percent: (-10.25, 114.9),
                found: ROUNDS
                    .map(|rounds| Found { rounds, subsets: 400, found: 1.0, predicted: 0.876 })
                    .into(),
            }],
        }
    }

    #[test]
    fn tables_fit_a_terminal_and_say_what_was_found() {
        let text = calibration().table();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        for expected in
            ["  16.7 %", "   5.2 %", "123457 µs *", "  100 ( 88) %", "12.9 (-10.2 … 115)"]
        {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        let none = Calibration { metrics: Vec::new(), ..calibration() };
        assert!(none.table().contains("Nothing was measured"));
    }
}
