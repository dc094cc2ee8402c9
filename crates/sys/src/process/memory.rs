//! How much memory this process may use, and how much a process has.

use std::path::Path;

use rustix::process::Resource;

/// The memory that this process may use, in bytes: the smallest of the machine's memory, the limits of the
/// process' cgroup and of the cgroups above it (version 2, `memory.max`; version 1,
/// `memory.limit_in_bytes`), and `RLIMIT_AS`. `None` if the kernel tells none of these.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let addresses = super::limits::limit(Resource::As).soft;
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_limit(Path::new("/sys/fs/cgroup"), &cgroups);
    [machine, addresses, cgroup].into_iter().flatten().min()
}

/// The memory of a process that is in the machine's memory now, in bytes, shared pages included: the second number of
/// `/proc/PROCESS/statm` (proc_pid_statm(5)). `None` if there is no such process.
#[must_use]
pub fn resident_memory(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// `MemTotal` of proc_meminfo(5).
fn total(meminfo: &str) -> Option<u64> {
    let text = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of the groups that `cgroups` (`/proc/self/cgroup`) names, and of the groups above
/// them, in bytes. In a container the names may belong to another mount: a group that does not exist
/// counts as one without a limit.
fn cgroup_limit(mount: &Path, cgroups: &str) -> Option<u64> {
    let mut least = None;
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(name)) = (fields.next(), fields.next()) else { continue };
        let (hierarchy, file) = if controllers.is_empty() {
            (mount.to_owned(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        for group in Path::new(name.trim_start_matches('/')).ancestors() {
            let text = std::fs::read_to_string(hierarchy.join(group).join(file));
            let limit = text.ok().and_then(|text| text.trim().parse::<u64>().ok());
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
}

/// Gives the kernel the memory that is free in the allocator, wherever it lies.
///
/// glibc has several heaps (malloc(3): arenas), which threads that come later use again. free(3) shortens a heap at its end only;
/// what threads that have ended leave beneath stays resident until then, if nobody calls this function. Other allocators have
/// no such call, and nothing happens.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) has no requirements, and takes the allocator's locks itself (MT-Safe).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_to_is_resident() {
        let before = resident_memory(std::process::id()).unwrap();
        let bytes = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = resident_memory(std::process::id()).unwrap();
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(bytes);
        assert_eq!(resident_memory(u32::MAX), None);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let mount = tempfile::tempdir().unwrap();
        let set = |group: &str, limit: &str| {
            let path = mount.path().join(group);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, limit).unwrap();
        };
        let limit = |cgroups| cgroup_limit(mount.path(), cgroups);
        assert_eq!(limit("0::/a/b\n"), None);
        set("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        set("a/memory.max", "5000\n");
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        set("memory/x/memory.limit_in_bytes", "4000\n");
        let both = "7:cpu,cpuacct:/q\n5:memory:/x\n0::/a/b\n";
        assert_eq!(limit(both), Some(4000));
        set("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("5:memory:/elsewhere\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn this_process_has_a_limit() {
        assert_eq!(total("MemTotal:        8045424 kB\nMemFree: 1 kB\n"), Some(8_045_424 * 1024));
        assert!(memory_limit().is_some_and(|limit| limit > 1 << 20));
    }
}
