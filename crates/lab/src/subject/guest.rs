//! A command of Drover that runs in the virtual machine of `drover lab run --vm`, and measures there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use serde::Deserialize;

use super::{Scene, SelfDriven, SelfMeasurement};
use crate::failure::Failure;
use crate::model::Mark;
use crate::old_names::read_under_metrics;
use crate::spec;
use crate::spec::subject::LimitSettings;

/// How long the command may take, on a busy machine: `drover lab guest` gives up earlier where the emulator works for nothing.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// The metrics of a cell that are the same in a guest whose clock counts instructions: shares, counts, and rates per second of that
/// clock. Others have units of time, which that clock has not.
const WITHOUT_TIME: [&str; 9] = [
    "cpu-percent",
    "error-percent",
    "events-per-response",
    "hung-percent",
    "lost-accepts-per-response",
    "overflows",
    "response-rate",
    "sleeps-per-response",
    "wait-calls-per-response",
];

/// The virtual machine for subjects that run there.
#[derive(Clone, Debug)]
pub struct GuestMachine {
    /// The socket that commands are sent to.
    pub socket: PathBuf,
    /// What is said of it beside the machine that it runs on, by name: its kernel, and where its modules come from.
    pub facts: BTreeMap<String, String>,
}

/// The fact that is the kernel of a virtual machine, as its `/proc/version` has it.
pub const EMULATED_KERNEL: &str = "emulated kernel";

/// The fact that is the commit of Drover's sources whose modules a virtual machine has loaded.
pub const MODULES_COMMIT: &str = "modules of commit";

/// A command that measures in the guest, and prints one line of JSON.
#[derive(Debug)]
pub struct GuestCommand<'a> {
    /// The subject's description.
    pub subject: &'a spec::SubjectSpec,
    /// The arguments of `drover`, with placeholders.
    pub words: &'a [String],
}

impl SelfDriven for GuestCommand<'_> {
    /// The window has no meaning for the command: its words say how much it does.
    fn measure(&self, scene: &Scene<'_>, _window: Duration) -> Result<SelfMeasurement, Failure> {
        let mut command = drover_in_guest(scene)?;
        command.args(scene.prepare(self.subject, None)?.fill_all(self.words)?);
        let limits = LimitSettings::default();
        let measured = scene.result_of("command in the guest", command, &limits, TIMEOUT)?;
        let mut cell = CellRecord::deserialize(&measured.result).map_err(Failure::failed)?;
        cell.values.retain(|name, _| WITHOUT_TIME.contains(&name.as_str()));
        Ok(SelfMeasurement { values: cell.values, marks: cell.marks, ..measured })
    }
}

/// What `drover lab cell` prints: metrics of the lab by their names, and marks. What other commands print has neither.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CellRecord {
    #[serde(deserialize_with = "read_under_metrics")]
    values: BTreeMap<String, f64>,
    marks: BTreeSet<Mark>,
}

/// The command to which the arguments of a `drover` in the guest are added.
///
/// # Errors
/// [`Failure::NotTestable`]: there is no guest.
pub(super) fn drover_in_guest(scene: &Scene<'_>) -> Result<process::Command, Failure> {
    let Some(guest) = scene.guest else {
        return Err(Failure::not_testable("it runs in a virtual machine: 'drover lab run --vm'"));
    };
    let mut command = process::Command::new(scene.drover);
    command.args(["lab", "guest"]).arg(guest);
    Ok(command)
}
