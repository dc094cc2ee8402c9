//! CPU time of the subject with all its processes, and how long the processes waited for a processor.

use std::time::Duration;

use serde_json::json;

use super::{Instrument, Readings, reading};
use crate::failure::Failure;
use crate::process::Hierarchy;
use crate::subject::Running;

/// Reads the subject's CPU time from its control group (from the process tree if control groups are not allowed), and
/// the waiting time from the scheduler's statistics.
#[derive(Debug, Default)]
pub struct Cpu {
    before: Duration,
    waited_before: Option<Duration>,
}

impl Instrument for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn begin(&mut self, subject: &mut Running) -> Result<(), Failure> {
        self.waited_before = subject.process.wait_time();
        self.before = read(subject)?;
        Ok(())
    }

    fn end(&mut self, subject: &mut Running, _: f64) -> Result<Readings, Failure> {
        let used = read(subject)?.saturating_sub(self.before);
        let waited = subject.process.wait_time();
        let mut readings = Readings::default();
        readings.set(reading::CPU_S, used.as_secs_f64());
        if let (Some(after), Some(before)) = (waited, self.waited_before) {
            readings.set(reading::WAITED_S, after.saturating_sub(before).as_secs_f64());
        }
        if let Some(bytes) = resident(&subject.process.members()) {
            readings.set("memory", bytes as f64 / 1e6);
        }
        let by = match subject.process.cgroup().map(crate::process::Cgroup::hierarchy) {
            Some(Hierarchy::V2) => "control group (version 2)",
            Some(Hierarchy::Cpuacct) => "control group (cpuacct)",
            None => "process tree",
        };
        readings.notes = json!({ "by": by, "why_no_cgroup": subject.process.why_no_cgroup() });
        Ok(readings)
    }
}

fn read(subject: &mut Running) -> Result<Duration, Failure> {
    let time = subject.process.cpu_time();
    let time = time.map_err(|error| Failure::failed(format!("the subject's CPU time: {error}")))?;
    time.ok_or_else(|| Failure::failed("the subject is not billed"))
}

/// Resident memory of processes in bytes. A shared page counts for each process that has it.
pub(super) fn resident(processes: &[u32]) -> Option<u64> {
    let pages = processes.iter().filter_map(|pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let pages: Vec<u64> = pages.collect();
    (!pages.is_empty()).then(|| pages.iter().sum::<u64>() * drover_mech::files::bytes::page_size())
}
