//! How many waiters this machine has room for, and which resource limits the number: memory, numbers of processes and
//! descriptors, or the limits of control groups.

use std::fs;
use std::path::Path;

/// The memory of a forked, waiting process, in bytes, in the kernel and in user space.
const PROCESS: u64 = 160 << 10;
/// The memory of a waiting thread, in bytes, in the kernel and in user space.
const THREAD: u64 = 48 << 10;
/// The memory of each descriptor that is waited on, in bytes: an entry in a wait queue and an entry in the table of
/// files.
const DESCRIPTOR: u64 = 96;
/// Descriptors that a process has in addition to those that it waits on.
const OTHER_DESCRIPTORS: u64 = 64;

/// The available resources. `None` if the kernel does not tell; such a resource limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Memory that is available without swapping, in bytes.
    pub memory: Option<u64>,
    /// How many more processes and threads the kernel can number.
    pub ids: Option<u64>,
    /// How many more processes and threads this user may have.
    pub of_user: Option<u64>,
    /// How many more processes and threads the control group may have.
    pub of_group: Option<u64>,
    /// How many more bytes of memory the control group may use.
    pub memory_of_group: Option<u64>,
    /// The most descriptors that a process may have.
    pub descriptors: Option<u64>,
}

impl Room {
    /// Reads the resources of this machine.
    #[must_use]
    pub fn look() -> Room {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        let threads = running_threads().unwrap_or_default();
        let most = [number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max")];
        let most = most.into_iter().flatten().min();
        Room {
            memory: memory.map(|kibibytes| kibibytes << 10),
            ids: most.map(|most| most.saturating_sub(threads)),
            // The limit does not apply to root (setrlimit(2)).
            of_user: match drover_sys::process::is_root() {
                true => None,
                false => {
                    drover_sys::process::processes_limit().soft.map(|n| n.saturating_sub(threads))
                }
            },
            of_group: left_to_group("pids", &PIDS),
            memory_of_group: left_to_group("memory", &MEMORY),
            descriptors: drover_sys::process::open_files_limit().hard,
        }
    }

    /// The most waiters that there is room for, if each watches `descriptors` descriptors; and the resource that
    /// limits the number.
    #[must_use]
    pub fn most(&self, processes: bool, descriptors: u64) -> (u64, &'static str) {
        let each = if processes { PROCESS } else { THREAD } + descriptors * DESCRIPTOR;
        // Half of the memory is left to other programs.
        let by_memory = |memory: Option<u64>| memory.map(|memory| memory / 2 / each);
        // A thread may need a descriptor of its own: of a ring, an epoll instance, or a socket.
        let open = self.descriptors.map(|n| n.saturating_sub(OTHER_DESCRIPTORS + descriptors));
        let limits = [
            (by_memory(self.memory), "memory (half of MemAvailable)"),
            (by_memory(self.memory_of_group), "memory (half of what the control group may take)"),
            (self.ids.map(|ids| ids * 9 / 10), "the numbers of processes (kernel.pid_max)"),
            (self.of_user.map(|ids| ids * 9 / 10), "the user's processes (RLIMIT_NPROC)"),
            (self.of_group.map(|ids| ids * 9 / 10), "the control group's processes (pids.max)"),
            (open.filter(|_| !processes), "descriptors (RLIMIT_NOFILE)"),
        ];
        let known = limits.into_iter().filter_map(|(most, what)| Some((most?, what)));
        known.min_by_key(|limit| limit.0).unwrap_or((u64::MAX, "nothing"))
    }

    /// Why there is no room for a number of waiters with so many descriptors each; `None`: there is room.
    #[must_use]
    pub fn obstacle(&self, waiters: u64, processes: bool, descriptors: u64) -> Option<String> {
        if self.descriptors.is_some_and(|most| most < descriptors + OTHER_DESCRIPTORS) {
            return Some(format!(
                "{descriptors} descriptors each are more than a process may open here (ulimit -Hn)"
            ));
        }
        let (most, what) = self.most(processes, descriptors);
        (waiters > most).then(|| {
            format!(
                "{waiters} waiters are more than {what} allow here: there may be {most} (--levels)"
            )
        })
    }
}

/// The number of threads on the machine: the second number of the fourth field of `/proc/loadavg`.
fn running_threads() -> Option<u64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The files of a control group with the limit and with the use. First of version 2, then of version 1.
type Files = [(&'static str, &'static str); 2];

const PIDS: Files = [("pids.max", "pids.current"), ("pids.max", "pids.current")];
const MEMORY: Files =
    [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")];

/// What the limits of this process's control groups leave of a resource: the least of them.
fn left_to_group(controller: &str, files: &Files) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    left(Path::new("/sys/fs/cgroup"), &groups, controller, files)
}

/// The implementation of [`left_to_group`]. `mount` is where control groups are mounted, `groups` says in which of
/// them a process is (cgroups(7)).
fn left(mount: &Path, groups: &str, controller: &str, files: &Files) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (root, (most, used)) = match controllers {
            "" => (mount.to_path_buf(), files[0]),
            _ if controllers.split(',').any(|it| it == controller) => {
                (mount.join(controller), files[1])
            }
            _ => return None,
        };
        let group = root.join(group);
        // The limit of a group applies to all groups below it.
        let up_to_the_root = group.ancestors().take_while(|folder| folder.starts_with(&root));
        up_to_the_root
            .filter_map(|folder| {
                let most = number(&folder.join(most))?;
                Some(most.saturating_sub(number(&folder.join(used)).unwrap_or_default()))
            })
            .min()
    };
    groups.lines().filter_map(of_line).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        memory: Some(1 << 30),
        ids: Some(5000),
        of_user: None,
        of_group: None,
        memory_of_group: None,
        descriptors: Some(20_000),
    };

    #[test]
    fn the_control_group_limits_processes_and_is_named() {
        let (most, what) = Room { of_group: Some(100), ..ROOM }.most(true, 1);
        assert_eq!((most, what.contains("pids.max")), (90, true), "{what}");
        let (most, what) = Room { memory_of_group: Some(64 << 20), ..ROOM }.most(true, 1);
        assert!(most < 250 && what.contains("control group"), "{most} {what}");
    }

    /// Groups of both versions, and all groups above them.
    #[test]
    fn the_least_that_any_control_group_leaves_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = mount.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let left = |groups: &str| left(mount.path(), groups, "pids", &PIDS);
        write("a/b/pids.max", "max\n");
        assert_eq!(left("0::/a/b\n"), None);
        write("a/pids.max", "500\n");
        write("a/pids.current", "100\n");
        assert_eq!(left("0::/a/b\n"), Some(400));
        write("pids/c/pids.max", "70\n");
        assert_eq!(left("9:pids:/c\n4:memory:/c\n0::/a/b\n"), Some(70));
        assert_eq!(left("9:cpu,cpuacct:/c\n"), None);
    }

    #[test]
    fn what_is_too_many_is_told_with_the_limit_and_what_would_do() {
        assert_eq!(ROOM.obstacle(1000, true, 1), None);
        let why = ROOM.obstacle(4096, true, 1).unwrap();
        assert!(why.contains("4096 waiters") && why.contains("MemAvailable"), "{why}");
        let many = Room { memory: None, ..ROOM };
        let why = many.obstacle(16384, true, 1).unwrap();
        assert!(why.contains("pid_max") && why.contains("there may be 4500"), "{why}");
    }

    #[test]
    fn many_descriptors_leave_room_for_fewer_waiters() {
        assert!(ROOM.most(true, 1019).0 < ROOM.most(true, 1).0);
        assert!(ROOM.most(false, 1).0 > ROOM.most(true, 1).0);
        let few = Room { descriptors: Some(1000), ..ROOM };
        let why = few.obstacle(1, true, 1019).unwrap();
        assert!(why.contains("ulimit -Hn"), "{why}");
    }

    #[test]
    fn this_machine_has_room_for_some() {
        assert!(Room::look().most(true, 1).0 > 10);
    }
}
