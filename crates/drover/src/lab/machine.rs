//! The machine that was measured: what a reader needs to doubt a number or to repeat it.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Properties of the machine, each `None` if the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel name and release.
    pub kernel: Option<String>,
    /// The processor's model.
    pub cpu_model: Option<String>,
    /// Processors that this process may use.
    pub usable_cpus: Option<usize>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// The hypervisor flag of the processor.
    pub virtual_machine: Option<bool>,
    /// Mitigations of processor faults that are active, by fault.
    pub mitigations: BTreeMap<String, String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The clock that time is read from.
    pub clock_source: Option<String>,
    /// Descriptors per process: soft limit, hard limit.
    pub open_files: (Option<u64>, Option<u64>),
    /// Queued signals per user, soft limit.
    pub pending_signals: Option<u64>,
    /// Local ports that connections may start from.
    pub port_range: Option<String>,
    /// The longest queue of connections waiting for accept(2).
    pub somaxconn: Option<u64>,
    /// What the cheapest system call costs, in nanoseconds.
    pub syscall_ns: f64,
    /// Load average over the minute before the start.
    pub load_average: Option<f64>,
    /// The version of this program.
    pub drover: String,
}

impl Machine {
    /// Looks at this machine.
    pub fn look() -> Machine {
        let files = mech::process::open_files_limit();
        let cpu = CpuInfo::read();
        Machine {
            kernel: read("/proc/sys/kernel/osrelease").map(|release| format!("Linux {release}")),
            cpu_model: cpu.model,
            usable_cpus: mech::process::usable_cpus().ok().map(|cpus| cpus.len()),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtual_machine: cpu.hypervisor,
            mitigations: mitigations(),
            memory_bytes: memory_bytes(),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            open_files: (files.soft, files.hard),
            pending_signals: mech::process::pending_signals_limit().soft,
            port_range: read("/proc/sys/net/ipv4/ip_local_port_range")
                .map(|range| range.split_whitespace().collect::<Vec<_>>().join("–")),
            somaxconn: read("/proc/sys/net/core/somaxconn").and_then(|n| n.parse().ok()),
            syscall_ns: syscall_floor_ns(),
            load_average: read("/proc/loadavg")
                .and_then(|line| line.split_whitespace().next()?.parse().ok()),
            drover: env!("CARGO_PKG_VERSION").to_string(),
        }
    }

    /// Label and value of each property, for people.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let unknown = || "not told".to_string();
        let text = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
        let number = |value: Option<u64>| value.map_or_else(unknown, |n| n.to_string());
        let limit = |value: Option<u64>| value.map_or("unlimited".to_string(), |n| n.to_string());
        let active: Vec<String> =
            self.mitigations.iter().map(|(fault, state)| format!("{fault}: {state}")).collect();
        vec![
            ("Kernel", text(&self.kernel)),
            ("Processor", text(&self.cpu_model)),
            ("Processors usable", number(self.usable_cpus.map(|n| n as u64))),
            (
                "Virtual machine",
                self.virtual_machine
                    .map_or_else(unknown, |yes| if yes { "yes" } else { "no" }.to_string()),
            ),
            ("Frequency governor", text(&self.governor)),
            ("Memory", self.memory_bytes.map_or_else(unknown, |n| format!("{} MiB", n >> 20))),
            ("Clock source", text(&self.clock_source)),
            ("Cheapest system call", format!("{:.0} ns (getppid)", self.syscall_ns)),
            (
                "Descriptors per process",
                format!("{} (hard limit {})", limit(self.open_files.0), limit(self.open_files.1)),
            ),
            ("Queued signals per user", limit(self.pending_signals)),
            ("Local ports", text(&self.port_range)),
            ("Longest accept queue", number(self.somaxconn)),
            ("Load average at start", self.load_average.map_or_else(unknown, |l| l.to_string())),
            ("Mitigations", active.join("; ")),
            ("Drover", self.drover.clone()),
        ]
    }
}

/// What `/proc/cpuinfo` says of the first processor.
struct CpuInfo {
    model: Option<String>,
    hypervisor: Option<bool>,
}

impl CpuInfo {
    fn read() -> CpuInfo {
        let text = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        CpuInfo {
            model: field("model name"),
            hypervisor: field("flags").map(|flags| flags.split(' ').any(|f| f == "hypervisor")),
        }
    }
}

/// The faults for which the kernel does something that costs time.
fn mitigations() -> BTreeMap<String, String> {
    let Ok(faults) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    faults
        .filter_map(|fault| {
            let fault = fault.ok()?;
            let state = fs::read_to_string(fault.path()).ok()?;
            let active = state.trim().strip_prefix("Mitigation: ")?.to_string();
            Some((fault.file_name().to_string_lossy().into_owned(), active))
        })
        .collect()
}

fn memory_bytes() -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The median of a few batches of getppid(2), which does nothing but enter the kernel and return.
fn syscall_floor_ns() -> f64 {
    const CALLS: u32 = 2000;
    let batches: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                black_box(std::os::unix::process::parent_id());
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    super::stats::median(&batches).unwrap_or_default()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_about_itself() {
        let machine = Machine::look();
        assert!(machine.kernel.as_deref().is_some_and(|kernel| kernel.starts_with("Linux ")));
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(machine.syscall_ns > 1.0);
        assert!(machine.rows().iter().all(|(label, _)| !label.is_empty()));
    }

    #[test]
    fn a_machine_survives_being_written_and_read() {
        let machine = Machine::look();
        let text = serde_json::to_string(&machine).unwrap();
        let read: Machine = serde_json::from_str(&text).unwrap();
        assert_eq!(read.rows(), machine.rows());
    }
}
