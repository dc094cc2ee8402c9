//! A control group for a subject. The kernel puts children into the group at fork(2), so that the CPU time of
//! daemons, of processes in sessions of their own, and of ended processes is included (cgroups(7)).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How often the removal of a group is tried again while its last processes end.
const REMOVALS: u32 = 200;

/// The kind of hierarchy that a group is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2. `cpu.stat` has `usage_usec` in every group, even if no controller is enabled.
    V2,
    /// Version 1 with the controller `cpuacct`: `cpuacct.usage` counts nanoseconds.
    Cpuacct,
}

/// A control group. Dropping the value kills the processes that are left in the group, and removes the group.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    hierarchy: Hierarchy,
}

impl Cgroup {
    /// Creates a group below the group of this process, in the first hierarchy that allows it.
    ///
    /// # Errors
    /// The text says why no hierarchy allows it: none is mounted, or this user may not create groups.
    pub fn create() -> Result<Cgroup, String> {
        let mut reasons = Vec::new();
        for (hierarchy, parent) in hierarchies() {
            sweep(&parent);
            let folder = parent.join(name());
            let made = fs::create_dir(&folder).and_then(|()| {
                let group = Cgroup { folder: folder.clone(), hierarchy };
                // A group with a clock or a list of members that this user may not use is useless.
                group.cpu_time()?;
                fs::OpenOptions::new().write(true).open(group.folder.join("cgroup.procs"))?;
                Ok(group)
            });
            match made {
                Ok(group) => return Ok(group),
                Err(error) => reasons.push(format!("{}: {error}", parent.display())),
            }
        }
        if reasons.is_empty() {
            reasons.push("no hierarchy of control groups is mounted".to_string());
        }
        Err(reasons.join("; "))
    }

    /// The folder of the group.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kind of the group's hierarchy.
    #[must_use]
    pub fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }

    /// Moves a process into the group. Children that it starts from now on are in the group too.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process; what the kernel says if the process may not be moved.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }

    /// The processes in the group.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn members(&self) -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// CPU time, user and system, of all processes while they were in the group, ended ones included. The kernel
    /// updates the time of a running thread at ticks and switches: the value may lag by a tick per processor.
    ///
    /// # Errors
    /// What the kernel says; `InvalidData` if the file has another form.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        match self.hierarchy {
            Hierarchy::V2 => {
                let text = fs::read_to_string(self.folder.join("cpu.stat"))?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                let usage = usage.and_then(|usage| usage.trim().parse().ok());
                usage.map(Duration::from_micros).ok_or_else(invalid)
            }
            Hierarchy::Cpuacct => {
                let text = fs::read_to_string(self.folder.join("cpuacct.usage"))?;
                text.trim().parse().map(Duration::from_nanos).map_err(|_| invalid())
            }
        }
    }

    /// Kills every process in the group, including processes that start meanwhile.
    pub fn kill(&self) {
        // Kills all at once. Linux has the file since 5.14, in version 2 only.
        if fs::write(self.folder.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        for _ in 0..REMOVALS {
            let members = self.members().unwrap_or_default();
            if members.is_empty() {
                return;
            }
            for pid in members {
                if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.kill();
        for _ in 0..REMOVALS {
            match fs::remove_dir(&self.folder) {
                // A process of the group has not ended yet.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return,
            }
        }
    }
}

/// The beginning of the names of groups. The process id of the lab follows.
const PREFIX: &str = "drover-lab-";

/// The name of a new group of this lab.
pub(super) fn name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{PREFIX}{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Removes the groups of labs that were killed. A group that still has processes stays.
pub(super) fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The folders of this process's groups that count CPU time. Version 2 comes first.
fn hierarchies() -> Vec<(Hierarchy, PathBuf)> {
    let (mounts, groups) = own_texts();
    hierarchies_of(&mounts, &groups, "cpuacct")
}

/// The folder of this process's group in the hierarchy of version 1 that has a controller.
pub(super) fn of_version_1(controller: &str) -> Option<PathBuf> {
    let (mounts, groups) = own_texts();
    let found = hierarchies_of(&mounts, &groups, controller);
    found.into_iter().find(|(hierarchy, _)| *hierarchy != Hierarchy::V2).map(|(_, folder)| folder)
}

/// What the kernel says of mounts and of this process's groups.
fn own_texts() -> (String, String) {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    (read("/proc/self/mountinfo"), read("/proc/self/cgroup"))
}

/// The hierarchies of version 2 and of a controller of version 1, from the texts of proc_pid_mountinfo(5) and cgroups(7).
fn hierarchies_of(mounts: &str, groups: &str, controller: &str) -> Vec<(Hierarchy, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((front, back)) = line.split_once(" - ") else { continue };
        let front: Vec<&str> = front.split(' ').collect();
        let mut back = back.split(' ');
        let (Some(kind), Some(options)) = (back.next(), back.nth(1)) else { continue };
        let hierarchy = match kind {
            "cgroup2" => Hierarchy::V2,
            "cgroup" if options.split(',').any(|option| option == controller) => Hierarchy::Cpuacct,
            _ => continue,
        };
        let (Some(&root), Some(&mounted)) = (front.get(3), front.get(4)) else { continue };
        let own = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let fits = match hierarchy {
                Hierarchy::V2 => controllers.is_empty(),
                Hierarchy::Cpuacct => controllers.split(',').any(|one| one == controller),
            };
            fits.then_some(path)
        });
        let Some(own) = own else { continue };
        let below = if root == "/" { Some(own) } else { own.strip_prefix(root) };
        let below = below.unwrap_or("").trim_start_matches('/');
        found.push((hierarchy, Path::new(mounted).join(below)));
    }
    found.sort_by_key(|(hierarchy, _)| *hierarchy != Hierarchy::V2);
    found
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn hierarchies_are_found_in_both_versions() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      40 23 0:30 /box /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
                      41 23 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let groups = "4:memory:/m\n2:cpu,cpuacct:/a/b\n0::/box/inner\n";
        let found = hierarchies_of(mounts, groups, "cpuacct");
        let expected = [
            (Hierarchy::V2, PathBuf::from("/sys/fs/cgroup/unified/inner")),
            (Hierarchy::Cpuacct, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/a/b")),
        ];
        assert_eq!(found, expected);
        assert_eq!(hierarchies_of("", groups, "cpuacct"), []);
    }

    #[test]
    fn a_daemon_is_on_the_bill_and_killed_with_the_group() {
        let group = match Cgroup::create() {
            Ok(group) => group,
            Err(why) => return drover_testing::skip!("control groups: {why}"),
        };
        // The script waits until it is in the group. Then it leaves a working grandchild in a session of its own.
        let script = "read -r _; setsid sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; \
                      echo done; exec sleep 1000' & echo started; exit 0";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        group.add(child.id()).unwrap();
        drop(child.stdin.take());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while lines.next().unwrap().unwrap() != "done" {}
        child.wait().unwrap();
        assert!(group.cpu_time().unwrap() > Duration::from_micros(500));
        assert_eq!(group.members().unwrap().len(), 1);
        let folder = group.folder().to_owned();
        drop(group);
        assert!(!folder.exists(), "the group was not removed");
        assert!(lines.next().is_none(), "the daemon was not killed");
    }
}
