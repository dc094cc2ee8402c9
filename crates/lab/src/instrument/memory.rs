//! What an idle connection costs in memory.

use serde_json::json;

use super::cpu::resident;
use super::{Instrument, Readings};
use crate::failure::Failure;
use crate::subject::Running;

/// Reads the resident memory of the subject's processes twice: before the load opens its idle connections, and when
/// all of them are open. The kernel's memory for the sockets belongs to no process and is not included.
#[derive(Debug)]
pub struct IdleMemory {
    connections: u64,
    before: Option<u64>,
    opened: Option<u64>,
}

impl IdleMemory {
    /// Reads the memory of the subject before `connections` idle connections are opened.
    #[must_use]
    pub fn before(connections: u64, subject: &Running) -> IdleMemory {
        let before = resident(&subject.process.members());
        IdleMemory { connections, before, opened: None }
    }
}

impl Instrument for IdleMemory {
    fn name(&self) -> &'static str {
        "idle memory"
    }

    fn begin(&mut self, subject: &mut Running) -> Result<(), Failure> {
        self.opened = resident(&subject.process.members());
        Ok(())
    }

    fn end(&mut self, _: &mut Running, _: f64) -> Result<Readings, Failure> {
        let mut readings = Readings::default();
        if let (Some(before), Some(opened)) = (self.before, self.opened) {
            let grown = opened as f64 - before as f64;
            readings.set("memory-per-idle", grown / 1e3 / self.connections.max(1) as f64);
        }
        readings.notes = json!({
            "connections": self.connections, "before": self.before, "opened": self.opened,
        });
        Ok(readings)
    }
}
