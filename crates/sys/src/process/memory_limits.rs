//! How much memory this process may use: what the machine, its cgroups and `RLIMIT_AS` allow.

use std::path::{Path, PathBuf};

use rustix::process::Resource;

/// The limits on the memory of this process, in bytes. `None`: there is no such limit, or the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The machine's memory.
    pub machine: Option<u64>,
    /// The least limit of the process' cgroup and of the cgroups above it.
    pub cgroup: Option<u64>,
    /// The addresses that `RLIMIT_AS` leaves this process for further mappings. Each process has as many of its own.
    pub addresses: Option<u64>,
}

impl MemoryLimits {
    /// The limits now.
    #[must_use]
    pub fn of_this_process() -> MemoryLimits {
        let limit = super::limits::limit(Resource::As).soft;
        let mapped = super::memory::mapped_memory().unwrap_or(0);
        let addresses = limit.map(|limit| limit.saturating_sub(mapped));
        MemoryLimits { addresses, ..MemoryLimits::beneath(Path::new("/")) }
    }

    /// The limits that the files beneath `root` tell: proc(5) in `proc`, and the cgroups where `proc/self/mountinfo` says
    /// that they are mounted.
    fn beneath(root: &Path) -> MemoryLimits {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let hierarchies = hierarchies(&read("proc/self/mountinfo"));
        let groups = read("proc/self/cgroup");
        let limits = groups.lines().filter_map(|line| of_group(root, &hierarchies, line));
        MemoryLimits {
            machine: total(&read("proc/meminfo")),
            cgroup: limits.min(),
            addresses: None,
        }
    }

    /// What all processes of a server may use together, where `processes` of them allocate. `None`: there is no limit.
    #[must_use]
    pub fn least(&self, processes: u64) -> Option<u64> {
        let addresses = self.addresses.map(|addresses| addresses.saturating_mul(processes));
        [self.machine, self.cgroup, addresses].into_iter().flatten().min()
    }
}

/// `MemTotal` of proc_meminfo(5).
fn total(meminfo: &str) -> Option<u64> {
    let text = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A mounted hierarchy of cgroups that limits memory.
struct Hierarchy {
    is_version_2: bool,
    /// The group that is mounted: in a container, mostly the container's own.
    group: String,
    /// Where it is mounted, without the slash in front.
    mount_point: PathBuf,
}

/// The hierarchies of proc_pid_mountinfo(5); those of most systems where the file has none.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let found: Vec<Hierarchy> = mountinfo.lines().filter_map(hierarchy).collect();
    if !found.is_empty() {
        return found;
    }
    let of_most = [(true, "sys/fs/cgroup"), (false, "sys/fs/cgroup/memory")];
    let of_most = of_most.map(|(is_version_2, mount_point)| Hierarchy {
        is_version_2,
        group: "/".to_owned(),
        mount_point: mount_point.into(),
    });
    of_most.into()
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (group, mount_point) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.split(' ');
    let (kind, options) = (file_system.next()?, file_system.nth(1)?);
    let is_version_2 = match kind {
        "cgroup2" => true,
        "cgroup" if options.split(',').any(|option| option == "memory") => false,
        _ => return None,
    };
    Some(Hierarchy {
        is_version_2,
        group: unescaped(group),
        mount_point: unescaped(mount_point.trim_start_matches('/')).into(),
    })
}

/// A path of mountinfo without its escapes: the kernel writes space, tab, line end and backslash as `\040` and the like.
fn unescaped(path: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(path.to_owned(), |path, (escape, byte)| path.replace(escape, byte))
}

/// The least limit of a group and of those above it, as far as they are mounted; `line` is one of proc_pid_cgroup(5).
fn of_group(root: &Path, hierarchies: &[Hierarchy], line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    let is_version_2 = controllers.is_empty();
    if !is_version_2 && controllers.split(',').all(|controller| controller != "memory") {
        return None;
    }
    let mounted = hierarchies.iter().filter(|it| it.is_version_2 == is_version_2);
    let limits = mounted.flat_map(|hierarchy| {
        let top = root.join(&hierarchy.mount_point);
        let groups: Vec<PathBuf> =
            below(group, &hierarchy.group).ancestors().map(|group| top.join(group)).collect();
        groups.into_iter().filter_map(move |folder| limit_of(&folder, is_version_2))
    });
    limits.min()
}

/// The path of `group` beneath the mounted one. Empty if it does not lie there: a container may see its own group alone, and
/// be told the group's name outside of it.
fn below<'g>(group: &'g str, mounted: &str) -> &'g Path {
    let is_outside = |path: &&Path| path.iter().any(|name| name == "..");
    let path = Path::new(group).strip_prefix(mounted).ok();
    path.filter(|path| !is_outside(path)).unwrap_or(Path::new(""))
}

/// Version 1 has no word for "no limit": it is the largest number of whole pages, near 2^63 bytes.
const NO_LIMIT: u64 = 1 << 62;

/// The least limit that a group has itself. Version 2: `memory.max`, and `memory.high`, above which the kernel holds the
/// group's processes up. Version 1: `memory.limit_in_bytes`, and the least one of all groups above, which `memory.stat` has
/// even where these are not mounted.
fn limit_of(folder: &Path, is_version_2: bool) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|limit| *limit < NO_LIMIT);
    if is_version_2 {
        return ["memory.max", "memory.high"].iter().filter_map(|name| number(&read(name))).min();
    }
    let stat = read("memory.stat");
    let of_all = stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "));
    [number(&read("memory.limit_in_bytes")), of_all.and_then(number)].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine as a folder.
    struct Machine(tempfile::TempDir);

    impl Machine {
        /// With a mounted hierarchy of cgroups per line, and the groups of the process.
        fn new(mountinfo: &str, groups: &str) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            machine.set("proc/self/mountinfo", mountinfo);
            machine.set("proc/self/cgroup", groups);
            machine
        }

        fn set(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn cgroup(&self) -> Option<u64> {
            MemoryLimits::beneath(self.0.path()).cgroup
        }
    }

    const VERSION_2: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const VERSION_1: &str = "35 32 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                             36 32 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                             33 32 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let machine = Machine::new(VERSION_2, "0::/a/b\n");
        assert_eq!(machine.cgroup(), None);
        machine.set("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(machine.cgroup(), None);
        machine.set("sys/fs/cgroup/a/memory.max", "5000\n");
        assert_eq!(machine.cgroup(), Some(5000));
        machine.set("sys/fs/cgroup/a/b/memory.high", "4000\n");
        assert_eq!(machine.cgroup(), Some(4000));
        machine.set("sys/fs/cgroup/elsewhere/memory.max", "1\n");
        assert_eq!(machine.cgroup(), Some(4000));
    }

    #[test]
    fn version_1_has_limits_beside_version_2() {
        let machine = Machine::new(VERSION_1, "7:cpu,cpuacct:/q\n5:memory:/x\n0::/y\n");
        machine.set("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine.cgroup(), None);
        machine.set("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4000\n");
        assert_eq!(machine.cgroup(), Some(4000));
        machine
            .set("sys/fs/cgroup/memory/x/memory.stat", "rss 1\nhierarchical_memory_limit 3000\n");
        assert_eq!(machine.cgroup(), Some(3000));
        machine.set("sys/fs/cgroup/cpu/q/memory.limit_in_bytes", "1\n");
        machine.set("sys/fs/cgroup/unified/y/memory.max", "2000\n");
        assert_eq!(machine.cgroup(), Some(2000));
    }

    /// Docker mounts the container's own group, and lets the name be that of the host; a namespace has names above its root.
    #[test]
    fn a_group_that_is_mounted_elsewhere_is_found() {
        let mounts =
            "36 32 0:32 /docker/c\\0401 /groups/the\\040memory ro - cgroup none rw,memory\n";
        let machine = Machine::new(mounts, "5:memory:/docker/c 1/inner\n");
        machine.set("groups/the memory/memory.limit_in_bytes", "7000\n");
        assert_eq!(machine.cgroup(), Some(7000));
        machine.set("groups/the memory/inner/memory.limit_in_bytes", "6000\n");
        assert_eq!(machine.cgroup(), Some(6000));
        for outside in ["/elsewhere", "/../../x", "/docker/c 1/../../../groups"] {
            machine.set("proc/self/cgroup", &format!("5:memory:{outside}\n"));
            assert_eq!(machine.cgroup(), Some(7000), "{outside}");
        }
    }

    #[test]
    fn the_least_of_all_limits_is_what_there_is() {
        let machine = Machine::new("", "0::/a\n");
        machine.set("proc/meminfo", "MemTotal:        8045424 kB\nMemFree: 1 kB\n");
        machine.set("sys/fs/cgroup/a/memory.max", "5000000\n");
        let limits = MemoryLimits::beneath(machine.0.path());
        assert_eq!((limits.machine, limits.least(1)), (Some(8_045_424 * 1024), Some(5_000_000)));
        // Each process has addresses of its own, and all of them share the memory.
        let limits = MemoryLimits { addresses: Some(2_000_000), ..limits };
        assert_eq!([1, 2, 3].map(|it| limits.least(it)), [2, 4, 5].map(|it| Some(it * 1_000_000)));
        assert_eq!(MemoryLimits::default().least(1), None);
    }

    #[test]
    fn this_process_has_a_limit() {
        assert!(MemoryLimits::of_this_process().least(1).is_some_and(|limit| limit > 1 << 20));
    }
}
