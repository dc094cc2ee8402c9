//! The environment of a session: what a reader needs to judge its numbers, and what has to be equal when the session
//! is resumed.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::hash::hash_file;

/// The kernel, the program under test, and the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Release and version of the kernel, as uname(2) returns them.
    pub kernel: String,
    /// A hash of Drover's binary, in hexadecimal digits.
    pub program: String,
    /// Everything else about the machine, by name.
    pub machine: BTreeMap<String, String>,
}

impl Environment {
    /// Reads the environment on this machine. `program` is Drover's binary.
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn look(program: &Path) -> io::Result<Environment> {
        Ok(Environment { kernel: kernel(), program: hash_file(program)?, machine: machine() })
    }

    /// Reads only what [`Environment::differences`] compares, for callers that have no time for
    /// [`Environment::look`].
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn identity(program: &Path) -> io::Result<Environment> {
        let names = ["processor", "processors"];
        let machine = std::iter::zip(names, [processor(), processors()])
            .filter_map(|(name, value)| Some((name.to_string(), value?)));
        Ok(Environment {
            kernel: kernel(),
            program: hash_file(program)?,
            machine: machine.collect(),
        })
    }

    /// Why a session that began in this environment cannot be resumed in `other`; empty if it can.
    #[must_use]
    pub fn differences(&self, other: &Environment) -> Vec<String> {
        let mut differences = Vec::new();
        if self.kernel != other.kernel {
            differences
                .push(format!("the kernel was {}, here it is {}", self.kernel, other.kernel));
        }
        if self.program != other.program {
            differences.push("the program under test is another one".to_string());
        }
        for name in ["processor", "processors"] {
            let of = |machine: &BTreeMap<String, String>| machine.get(name).cloned();
            let (before, now) = (of(&self.machine), of(&other.machine));
            if before != now {
                let told = |value: Option<String>| value.unwrap_or("not told".to_string());
                differences.push(format!("{name}: {} then, {} now", told(before), told(now)));
            }
        }
        differences
    }
}

/// Name, release, version and architecture of the kernel.
fn kernel() -> String {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    [uname.sysname(), uname.release(), uname.version(), uname.machine()].map(text).join(" ")
}

/// The value of a name for the first processor in /proc/cpuinfo.
fn of_cpu(name: &str) -> Option<String> {
    let cpuinfo = read("/proc/cpuinfo")?;
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// The model of the processor.
fn processor() -> Option<String> {
    of_cpu("model name")
}

/// How many processors this process may use.
fn processors() -> Option<String> {
    drover_sys::process::usable_cpus().ok().map(|cpus| cpus.len().to_string())
}

/// Facts that the kernel tells about the machine. Unknown facts are missing.
fn machine() -> BTreeMap<String, String> {
    let virtual_machine =
        of_cpu("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor").to_string());
    let memory = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().to_string())
    });
    let limit = |limit: drover_sys::process::Limit| {
        let end = |end: Option<u64>| end.map_or("unlimited".to_string(), |end| end.to_string());
        format!("{} (hard limit {})", end(limit.soft), end(limit.hard))
    };
    let told = [
        ("processor", processor()),
        ("processors", processors()),
        ("virtual machine", virtual_machine),
        ("memory", memory),
        ("governor", read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("threads per core", read("/sys/devices/system/cpu/smt/active").map(smt)),
        ("clock", read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("open files", Some(limit(drover_sys::process::open_files_limit()))),
        ("queued signals", Some(limit(drover_sys::process::pending_signals_limit()))),
        ("local ports", read("/proc/sys/net/ipv4/ip_local_port_range")),
        ("accept queue", read("/proc/sys/net/core/somaxconn")),
        ("TIME_WAIT", read("/proc/sys/net/ipv4/tcp_max_tw_buckets")),
        ("load average", read("/proc/loadavg")),
        ("interrupt accounting", accounting("IRQ_TIME_ACCOUNTING")),
        ("steal accounting", accounting("PARAVIRT_TIME_ACCOUNTING")),
        ("tick accounting", accounting("VIRT_CPU_ACCOUNTING_GEN")),
        ("mitigations", Some(mitigations())),
    ];
    told.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

fn smt(active: String) -> String {
    if active == "1" { "several (SMT)" } else { "one" }.to_string()
}

/// Whether the kernel was built with an option for accounting CPU time. Without `IRQ_TIME_ACCOUNTING`, the time of
/// interrupts (most of the work of TCP) counts for the interrupted thread.
fn accounting(option: &str) -> Option<String> {
    let release = read("/proc/sys/kernel/osrelease")?;
    let text = configuration(&release)?;
    let is_set = text.lines().any(|line| line == format!("CONFIG_{option}=y"));
    Some(if is_set { "on" } else { "off" }.to_string())
}

/// The kernel's configuration; `None` if it cannot be found.
fn configuration(release: &str) -> Option<String> {
    let packed = || {
        let output = std::process::Command::new("gzip").args(["-dc", "/proc/config.gz"]).output();
        let output = output.ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    };
    fs::read_to_string(format!("/boot/config-{release}")).ok().or_else(packed)
}

/// The vulnerabilities of the processor for which the kernel uses a mitigation that costs time.
fn mitigations() -> String {
    let Ok(faults) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return String::new();
    };
    let mut active: Vec<String> = faults
        .filter_map(|fault| {
            let fault = fault.ok()?;
            let state = fs::read_to_string(fault.path()).ok()?;
            let state = state.trim().strip_prefix("Mitigation: ")?;
            Some(format!("{}: {state}", fault.file_name().to_string_lossy()))
        })
        .collect();
    active.sort();
    active.join("; ")
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().replace('\t', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_about_itself() {
        let program = std::env::current_exe().unwrap();
        let here = Environment::look(&program).unwrap();
        assert!(here.kernel.starts_with("Linux "), "{}", here.kernel);
        assert!(here.machine.contains_key("processors") && here.machine.contains_key("memory"));
        assert_eq!(here.differences(&here), Vec::<String>::new());
        let identity = Environment::identity(&program).unwrap();
        assert_eq!(here.differences(&identity), Vec::<String>::new());
        assert!(identity.machine.len() <= 2, "{identity:?}");
    }

    #[test]
    fn another_kernel_or_program_is_a_difference() {
        let here = Environment { kernel: "Linux 6.1".into(), ..Environment::default() };
        let there = Environment { program: "f00".into(), ..Environment::default() };
        assert_eq!(here.differences(&there).len(), 2);
    }
}
